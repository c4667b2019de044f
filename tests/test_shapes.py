"""The benchmark of real shapes: its models are what they are called, and nothing an engine does stops it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import pytest

import llamay_models

FOLDER = Path(__file__).parents[1] / "benchmarks"
FAKE = """
import json, sys, time
print("words of its own", flush=True)
if "{fault}" == "load":
    sys.stderr.write("error loading model: no such tensor\\ntrace\\n"); sys.exit(3)
print(json.dumps({{"hello": 1}}), flush=True)
for line in sys.stdin:
    if "{fault}" == "hang":
        time.sleep(60)
    if "{fault}" == "die":
        sys.stderr.write("GGML_ASSERT(x > 0) failed\\n"); sys.exit(-6)
    print(json.dumps({{"rate": 2.0}}), flush=True)
"""


@pytest.fixture(autouse=True)
def _on_the_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in ("shapes", "engines", "real_shapes")]:
        sys.modules.pop(name, None)


@pytest.fixture
def engine(tmp_path: Path) -> Any:
    """Return a function that starts an engine with a fault."""
    from engines import process

    def start(fault: str, timeout: float = 30) -> Any:
        script = tmp_path / f"{fault}.py"
        script.write_text(FAKE.format(fault=fault))
        return process.Engine(sys.executable, str(script), timeout=timeout)

    return start


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen3-0.6b", 596_049_920),
        ("llama-3.2-1b", 1_235_814_400),
        ("gemma-3-1b", 999_885_952),
        ("gpt2-124m", 124_439_808),
    ],
)
def test_a_shape_has_the_parameters_of_its_model(name: str, parameters: int) -> None:
    from real_shapes.models import SHAPES

    found = {tensor: prod(size) for tensor, size in SHAPES[name].tensors() if tensor != "rope_freqs.weight"}
    assert sum(found.values()) == parameters


@pytest.mark.parametrize("name", ["qwen2.5-0.5b", "qwen3-0.6b", "llama-3.2-1b", "gemma-3-1b", "gpt2-124m"])
def test_a_model_of_a_shape_loads_and_writes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from real_shapes import models

    small = replace(models.SHAPES[name], layers=2, vocabulary=512, hidden=512)
    monkeypatch.setitem(models.SHAPES, name, small)
    path = models.model_file(tmp_path, name, "Q4_K_M")
    assert models.model_file(tmp_path, name, "Q4_K_M") == path
    with llamay_models.load(path, threads=1, ctx_size=64) as model, model.context("a b t") as context:
        assert model.decode(model.encode("a b t")) == "a b t"
        written = context.generate(llamay_models.Sampling(temperature=0.0), max_tokens=4, ignore_eos=True)
        assert len(written.tokens) == 4


def test_an_engine_that_ends_says_why(engine: Any) -> None:
    from engines.process import EngineError

    with pytest.raises(EngineError, match="ended with 3: error loading model: no such tensor"):
        engine("load")
    dying = engine("die")
    with pytest.raises(EngineError, match=r"GGML_ASSERT\(x > 0\) failed"):
        dying.ask("decode")


def test_an_engine_that_hangs_is_ended(engine: Any) -> None:
    from engines.process import EngineError

    hanging = engine("hang")
    with pytest.raises(EngineError, match="did not answer in 1 s"):
        hanging.ask("decode", timeout=1)
    assert hanging.process.poll() is not None
    well = engine("none")
    assert well.ask("decode") == {"rate": 2.0}
    well.close()


def rows_of(**changes: Any) -> dict[str, Any]:
    """Return a row as a run writes it."""
    limits = {"read_bandwidth": 5e10, "int8_ops": 1e12}
    rounds = [
        {"llamay": 100.0, "llama.cpp": 50.0, "limits": limits},
        {"llamay": 120.0, "llama.cpp": 40.0, "limits": limits},
        {"llamay": 110.0, "llama.cpp": 44.0, "limits": limits},
    ]
    bounds = {
        "operations": 1e9,
        "integer": True,
        "weight_bytes": 4e8,
        "state_bytes": 0,
        "positions": 0,
        "isa": "avx2",
    }
    return {
        "model": "qwen2.5-0.5b",
        "kind": "Q8_0",
        "threads": 2,
        "measure": "decode",
        "clock": "wall",
        "machine": "a processor, 2 cores",
        "versions": {"llama.cpp": "xllamacpp 1"},
        "missing": {},
        "failed": {"ik_llama.cpp": "it ended"},
        "rounds": rounds,
        "bounds": bounds,
        **changes,
    }


def test_the_table_has_the_median_of_ratios_and_the_fraction_of_the_limit(tmp_path: Path) -> None:
    from real_shapes.tables import BEGIN, END, markdown, put_into

    table = markdown([rows_of()])
    assert "| qwen2.5-0.5b | Q8_0 | 110 | 88 % | **2.50** (2.00 to 3.00) | - |" in table
    assert "* ik_llama.cpp: it ended (qwen2.5-0.5b Q8_0 decode)" in table
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    put_into(page, table)
    assert page.read_text() == f"before\n{BEGIN}\n{table.strip()}\n{END}\nafter\n"
    page.write_text("no marks")
    with pytest.raises(SystemExit, match="needs one line"):
        put_into(page, table)


def test_unquantized_weights_have_no_integer_limit() -> None:
    from real_shapes.tables import markdown

    row = rows_of(measure="prefill")
    assert "| 110 | 11 % | **2.50**" in markdown([row])
    row["bounds"]["integer"] = False
    assert "| 110 | - | **2.50**" in markdown([row])


def test_depth_streams_and_threads_are_shares_of_the_rate_without() -> None:
    from real_shapes.tables import markdown

    half = [{**one, "llamay": one["llamay"] / 2} for one in rows_of()["rounds"]]
    fourfold = [{**one, "llamay": one["llamay"] * 4} for one in rows_of()["rounds"]]
    rows = [
        rows_of(),
        rows_of(measure="depth", rounds=half),
        rows_of(measure="streams", rounds=fourfold),
        rows_of(threads=1, rounds=half),
    ]
    (line,) = (x for x in markdown(rows).split("\n\n")[2].splitlines() if x.startswith("| qwen"))
    assert line.startswith("| qwen2.5-0.5b | Q8_0 | 50 % | **1.25**")
    assert "| 4.00 x |" in line
    assert "| 0.50 x |" in line


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shapes

    out = tmp_path / "rows.jsonl"
    out.write_text(json.dumps(rows_of()) + "\n" + json.dumps(rows_of(measure="prefill"))[:40])
    measured: list[str] = []

    def one_row(name: str, cell: Any, *_: Any) -> dict[str, Any]:
        measured.append(name)
        if name == "around":
            raise KeyboardInterrupt
        return {"rounds": [], "failed": {}}

    monkeypatch.setattr(shapes, "one_row", one_row)
    monkeypatch.setattr(shapes, "find_peers", lambda *_: ([], {}))
    monkeypatch.setattr(shapes, "context_of", lambda path: 2240)
    monkeypatch.setattr(shapes, "model_file", lambda *_: tmp_path / "model.gguf")
    (tmp_path / "model.gguf").write_bytes(b"a model")
    options = argparse.Namespace(
        budget=0.0,
        out=out,
        quick=False,
        clock="wall",
        deadline=0,
        model=[],
        shape=["qwen2.5-0.5b"],
        format=["Q8_0"],
        threads=[2, 1],
        measure=["decode", "prefill", "around"],
        cache=tmp_path,
    )
    with pytest.raises(KeyboardInterrupt):
        shapes.run(options, lambda _: None)
    assert measured == ["prefill", "around"]
    assert [r["measure"] for r in shapes.read_rows(out)] == ["decode", "prefill"]
    measured.clear()
    options.measure = ["decode", "prefill"]
    shapes.run(options, lambda _: None)
    assert measured == ["decode", "prefill"]  # with one thread


def test_a_budget_is_spent_on_what_the_tables_need() -> None:
    from real_shapes.budget import applies

    options = argparse.Namespace(
        budget=25.0, threads=[2, 1], shape=["a", "b"], format=["Q4_K_M", "Q8_0", "F16"]
    )

    def asked(shape: str, kind: str, threads: int) -> set[str]:
        measures = ("prefill", "decode", "depth", "start")
        return {m for m in measures if applies(m, shape, kind, threads, options)}

    everything, scaled = {"prefill", "decode", "depth", "start"}, {"prefill", "decode"}
    assert asked("a", "Q4_K_M", 2) == asked("real", "file", 2) == everything
    assert asked("a", "Q4_K_M", 1) == asked("real", "file", 1) == scaled
    assert asked("a", "Q8_0", 2) == asked("a", "F16", 2) == asked("b", "Q4_K_M", 2) == scaled
    assert asked("b", "F16", 2) == asked("b", "Q4_K_M", 1) == set()


def test_a_row_has_its_part_of_the_time_and_what_others_left(monkeypatch: pytest.MonkeyPatch) -> None:
    from real_shapes import budget as budgets

    now = 1000.0
    monkeypatch.setattr(budgets.time, "monotonic", lambda: now)
    budget = budgets.Budget(100.0)
    for weight in (1.0, 3.0, 1.0):
        budget.expect(weight)
    assert budget.share(1.0).end == 1020.0
    now = 1000.0  # the first row took no time, so that the others share all of it
    second = budget.share(3.0)
    assert second.end == 1075.0
    now = 1070.0
    assert second.allows(5.0)
    assert not second.allows(6.0)
    assert budget.share(1.0).end == 1100.0
    assert not budget.over
    now = 1101.0
    assert budget.over
    assert budgets.Budget(0.0).share(1.0).allows(1e9)


def test_an_engine_that_keeps_dying_is_left_out(
    engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engines.process import EngineError
    from real_shapes import cell as cells

    started = []

    def start(*_: Any) -> Any:
        started.append(1)
        return engine("die")

    monkeypatch.setattr(cells.Cell, "_start", start)
    options = argparse.Namespace(clock="wall", timeout=30)
    cell = cells.Cell("model", "file", tmp_path, 1, [], 64, options)
    for _ in range(4):
        with pytest.raises(EngineError, match="GGML_ASSERT"):
            cell.ask("llama.cpp", "plain", 1, {"what": "decode"})
    assert len(started) == cells.PATIENCE
