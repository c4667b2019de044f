"""The backend is used through one table, so that another one can take its place."""

import ast
import inspect
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import llamay_kv
import llamay_models
from llamay_models import load, scoring
from llamay_models.backend import CPU, Backend
from llamay_models.kv_cache.pool import kv_pool

from .standin import STANDIN

SOURCES = Path(llamay_models.__file__).parent
# Files' formats are the same for every backend, and so is which interface the package was written for.
MAY = {"backend.py", "tensors.py", "interfaces.py", "quantization/decisions.py", "quantization/file.py"}


def test_nothing_else_knows_the_kernels():
    uses = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if any(name.split(".")[0] == "llamay_kernels" for name in names):
                uses.add(path.relative_to(SOURCES).as_posix())
    assert uses == MAY


@pytest.mark.parametrize("made", [CPU, STANDIN], ids=["cpu", "standin"])
def test_a_backend_fills_the_whole_table(made: Backend):
    optional = {"memory", "packed"}
    assert all(getattr(made, f.name) is not None for f in fields(made) if f.name not in optional)
    flag = made.flag()
    assert not flag.on
    flag.set()
    assert flag.on
    flag.set(False)
    assert not flag.on


def test_a_backend_shows_its_name_only():
    assert repr(CPU) == "<Backend cpu>"
    assert "backend: 'Backend' = <Backend cpu>" in str(inspect.signature(load))


@pytest.mark.parametrize("wrong", ["cpu", None, Backend, object()])
def test_what_is_no_backend_is_refused_before_the_file_is_opened(wrong):
    with pytest.raises(
        ValueError, match=r"backend must be a llamay_models.backend.Backend, such as CPU"
    ) as error:
        load("missing.gguf", backend=wrong)
    assert repr(wrong) in str(error.value)


def test_a_file_is_loaded_by_the_backend_that_it_is_given(shared_data):
    path = shared_data / "models" / "stories260K.gguf"
    tokens = [1, 20, 33, 47, 301, 8, 99, 100]
    with load(path, threads=1, kv="f32") as first, load(path, backend=STANDIN, kv="f32") as second:
        assert (first.backend, second.backend) == (CPU, STANDIN)
        ours, theirs = (np.concatenate(list(scoring.logits(m, tokens))) for m in (second, first))
        np.testing.assert_allclose(ours, theirs, atol=0.1)
        assert first.identity.difference(second.identity) == "device"
        text = second.context("Once upon a time").generate(max_tokens=4).text
        assert text == second.context("Once upon a time").generate(max_tokens=4).text


def test_pages_are_in_the_memory_of_the_backend(shared_data):
    given = []

    def memory():
        def allocate(n):
            given.append(n)
            return bytearray(n)

        return allocate

    path = shared_data / "models" / "stories260K.gguf"
    with load(path, threads=1, backend=replace(CPU, memory=memory), kv_budget=1 << 20) as model:
        with load(path, threads=1) as plain:
            expected = plain.context([1, 20, 33]).logits
        assert np.array_equal(model.context([1, 20, 33]).logits, expected)
    assert len(given) == len(model.pool.layout.groups)


@pytest.mark.parametrize("budget", [2**63, 2**64, 10**30])
def test_a_budget_beyond_all_addresses_is_refused_by_its_name(budget):
    layout = llamay_kv.Layout([llamay_kv.Group.full([llamay_kv.Layer(0, 64, 256, 256)], "f32")])
    with pytest.raises(ValueError, match=f"^kv_budget .*{budget}"):
        kv_pool(layout, 1024, budget, CPU)
