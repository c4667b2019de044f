"""Masks and compilation of llamay-grammar beside llguidance and xgrammar, in one run and at the same positions.

    pip install llguidance xgrammar gguf llama-models
    python benchmarks/grammar.py [--json] [--schemas N] [--vocab NAME=PATH ...] [--each S] [--total S]

Every engine compiles the same JSON schemas (MaskBench, from the test data) and follows the same valid documents, cut
into the same tokens. A mask is timed at every token, in CPU time of the thread, so that other work on the machine
counts less, and without what reading that clock takes; it is written to an address where an engine takes one (xgrammar
takes arrays). A comparison is still only one between columns of the same run. Every engine has a process of its own:
one that takes longer than --each over a schema is killed, the schema counted as left out, and the next one asked of a
new process; after --total seconds the rest is left out as not reached. The last lines are ratios against the better of
the peers, row by row, each over the schemas that both compiled.

PATH is a GGUF file (its vocabulary is read), or a tiktoken file ("base64 rank" per line) such as Llama 3's
tokenizer.model in the package llama-models, which is found by itself.
"""

from __future__ import annotations

import argparse
import base64
import functools
import importlib.util
import itertools
import json
import multiprocessing
import platform
import runpy
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import llamay_grammar as lg

ROOT = Path(__file__).resolve().parents[1]
clock = time.thread_time_ns


@functools.cache
def clock_cost() -> int:
    """Nanoseconds that an empty measurement shows: half a microsecond on many machines."""
    shown = []
    for _ in range(2001):
        before = clock()
        shown.append(clock() - before)
    return sorted(shown)[len(shown) // 2]


def since(before: int) -> int:
    """Nanoseconds of CPU time since `before`."""
    return max(0, clock() - before - clock_cost())


@dataclass
class Tokens:
    """A vocabulary as every engine can take it."""

    name: str
    tokens: list[bytes]
    special: list[int]
    end: int
    by_bytes: dict[bytes, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        skip = {*self.special, self.end}
        for i, t in enumerate(self.tokens):
            if t and i not in skip:
                self.by_bytes.setdefault(t, i)

    def cut(self, text: bytes) -> list[int]:
        """The longest token that fits, again and again: not the model's way, but the same for every engine."""
        out, at = [], 0
        while at < len(text):
            n = min(24, len(text) - at)
            while text[at : at + n] not in self.by_bytes:
                n -= 1
                if n == 0:
                    raise ValueError("the vocabulary cannot spell the document")
            out.append(self.by_bytes[text[at : at + n]])
            at += n
        return out


def from_gguf(name: str, path: Path) -> Tokens:
    from gguf import GGUFReader

    fields = GGUFReader(path).fields

    def strings(key: str) -> list[bytes]:
        return [bytes(fields[key].parts[i]) for i in fields[key].data]

    texts = strings("tokenizer.ggml.tokens")
    kinds = [
        int(fields["tokenizer.ggml.token_type"].parts[i][0]) for i in fields["tokenizer.ggml.token_type"].data
    ]
    bpe = strings("tokenizer.ggml.model")[0] == b"gpt2"
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    letters = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    tokens, special = [], []
    for i, (raw, kind) in enumerate(zip(texts, kinds, strict=True)):
        text = raw.decode()
        if kind in (2, 3, 5):
            special.append(i)
        if kind == 6:
            tokens.append(bytes([int(text[3:5], 16)]))
        elif bpe and all(c in letters for c in text):
            tokens.append(bytes(letters[c] for c in text))
        else:
            tokens.append(raw if bpe else text.replace("\u2581", " ").encode())
    key = "tokenizer.ggml.eos_token_id"
    return Tokens(name, tokens, special, int(fields[key].parts[fields[key].data[0]][0]))


def from_tiktoken(name: str, path: Path) -> Tokens:
    tokens = [base64.b64decode(line.split()[0]) for line in path.read_bytes().splitlines()]
    n = len(tokens)
    return Tokens(name, tokens + [b"<|special_%d|>" % i for i in range(256)], list(range(n, n + 256)), n + 1)


def llama3() -> Path | None:
    spec = importlib.util.find_spec("llama_models")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "llama3" / "tokenizer.model"
    return path if path.is_file() else None


@dataclass
class Case:
    name: str
    schema: Any
    documents: list[bytes]


def schemas_with_tests() -> Iterator[tuple[str, Any, list[dict[str, Any]]]]:
    """Name, schema and tests (``{"data": ..., "valid": bool}``) of MaskBench, by name."""
    data = runpy.run_path(str(ROOT / "tests" / "larger_data.py"))["data_folder"]()
    archive = data / "maskbench-half.tar.xz"
    if not archive.is_file():
        sys.exit(f"no schemas at {archive}; set LLAMAY_TEST_DATA")
    with tarfile.open(archive) as tar:
        found = {}
        for member in tar:
            if member.name.endswith(".json"):
                stream = tar.extractfile(member)
                assert stream is not None
                found[member.name] = stream.read()
    for name in sorted(found):
        case = json.loads(found[name])
        yield name, case["schema"], case["tests"]


def cases(limit: int) -> list[Case]:
    everything = list(schemas_with_tests())
    out = []
    for name, schema, tests in everything[:: max(1, len(everything) // limit)]:
        valid = [json.dumps(t["data"], ensure_ascii=False) for t in tests if t["valid"]]
        out.append(Case(name, schema, [text.encode("utf-8", "replace") for text in valid]))
    return out


class Llamay:
    name = "llamay"

    def __init__(self, v: Tokens) -> None:
        self.vocabulary = lg.Vocabulary(v.tokens, special=v.special, end=[v.end])
        self.mask = np.zeros(self.vocabulary.mask_words, np.uint32)

    def compile(self, schema: Any) -> Any:
        return lg.compile_json_schema(schema, self.vocabulary)

    def start(self, grammar: Any) -> tuple[Callable[[], Any], Callable[[int], Any]]:
        matcher = grammar.matcher()
        fill, address = matcher._native.fill_pointer, self.mask.ctypes.data
        return lambda: fill(address), matcher.accept

    def allowed(self, token: int) -> bool:
        return bool(self.mask[token >> 5] >> (token & 31) & 1)


class LLGuidance:
    name = "llguidance"

    def __init__(self, v: Tokens) -> None:
        import llguidance
        import llguidance.numpy

        class Wrapped:
            eos_token_id = v.end
            bos_token_id = None
            tokens = v.tokens
            special_token_ids = v.special

            def __call__(self, text: str) -> list[int]:
                return v.cut(text.encode() if isinstance(text, str) else text)

        self.lib = llguidance
        self.tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Wrapped()))
        self.mask = llguidance.numpy.allocate_token_bitmask(1, len(v.tokens))

    def compile(self, schema: Any) -> Any:
        grammar = self.lib.LLMatcher.grammar_from_json_schema(schema)
        matcher = self.lib.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, grammar: Any) -> tuple[Callable[[], Any], Callable[[int], Any]]:
        matcher = grammar.deep_copy()
        fill, address, size = matcher.unsafe_compute_mask_ptr, self.mask.ctypes.data, self.mask.nbytes

        def accept(token: int) -> None:
            if not matcher.consume_token(token):
                raise ValueError("refused")

        return lambda: fill(address, size), accept

    def allowed(self, token: int) -> bool:
        return bool(int(self.mask[0, token >> 5]) >> (token & 31) & 1)


class XGrammar:
    name = "xgrammar"

    def __init__(self, v: Tokens) -> None:
        import xgrammar

        info = xgrammar.TokenizerInfo(
            v.tokens, vocab_type=xgrammar.VocabType.RAW, vocab_size=len(v.tokens), stop_token_ids=[v.end]
        )
        self.lib = xgrammar
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.mask = xgrammar.allocate_token_bitmask(1, len(v.tokens))

    def compile(self, schema: Any) -> Any:
        return self.compiler.compile_json_schema(json.dumps(schema), strict_mode=False)

    def start(self, grammar: Any) -> tuple[Callable[[], Any], Callable[[int], Any]]:
        matcher = self.lib.GrammarMatcher(grammar)
        mask = self.mask

        def accept(token: int) -> None:
            if not matcher.accept_token(token):
                raise ValueError("refused")

        return lambda: matcher.fill_next_token_bitmask(mask), accept

    def allowed(self, token: int) -> bool:
        return bool(int(self.mask[0, token >> 5]) >> (token & 31) & 1)


def one_case(engine: Any, case: Case, v: Tokens) -> dict[str, Any]:
    """Compile one schema and follow its valid documents; times in nanoseconds."""
    before = clock()
    try:
        grammar = engine.compile(case.schema)
    except Exception as error:  # every engine has its own
        return {"refused": str(error)[:200]}
    out: dict[str, Any] = {"compile_ns": since(before), "mask_ns": [], "accepted": 0}
    for text in case.documents:
        fill, accept = engine.start(grammar)
        try:
            for token in v.cut(text):
                before = clock()
                fill()
                out["mask_ns"].append(since(before))
                if not engine.allowed(token):
                    raise ValueError("not allowed")
                accept(token)
            fill()
            out["accepted"] += int(engine.allowed(v.end))
        except Exception:
            continue
    return out


def pattern_case(engine: Any, v: Tokens) -> float:
    """Median microseconds of a mask inside a string of at most 3,000 characters."""
    grammar = engine.compile({"type": "string", "pattern": "^[^<>]{1,3000}$"})
    fill, accept = engine.start(grammar)
    times = []
    for token in v.cut(b'"' + b"The quick brown fox jumps over the lazy dog. " * 20):
        before = clock()
        fill()
        times.append(since(before) / 1e3)
        accept(token)
    return float(np.median(times))


def tools_case(engine: Any, v: Tokens) -> float:
    """Milliseconds to compile 128 tools of 20 properties each."""
    schema = {
        "anyOf": [
            {
                "type": "object",
                "properties": {
                    "name": {"const": f"tool_{i}"},
                    "arguments": {
                        "type": "object",
                        "properties": {
                            f"property_{k}_{i}": {"type": ["string", "integer"]} for k in range(20)
                        },
                        "required": [f"property_{k}_{i}" for k in range(10)],
                        "additionalProperties": False,
                    },
                },
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
            for i in range(128)
        ]
    }
    before = clock()
    engine.compile(schema)
    return since(before) / 1e6


SPECIAL = {"pattern_3000_mask_us_p50": pattern_case, "tools_128x20_compile_ms": tools_case}


def serve(kind: type[Any], v: Tokens, all_cases: list[Case], pipe: Connection) -> None:
    """The loop of an engine's process: the requested cases, one after another."""
    try:
        engine = kind(v)
    except ImportError as error:
        pipe.send({"missing": str(error)})
        return
    # Once to warm the process up: allocators, lazily built tables of the libraries, not the grammars.
    one_case(engine, Case("", {"type": "object"}, [b"{}"]), v)
    pipe.send({})
    while (asked := pipe.recv()) is not None:
        try:
            if isinstance(asked, int):
                pipe.send(one_case(engine, all_cases[asked], v))
            else:
                pipe.send({"value": SPECIAL[asked](engine, v)})
        except Exception as error:
            pipe.send({"refused": str(error)[:200]})


@dataclass
class Runner:
    """An engine in a process of its own, which is killed when it takes too long, and started again."""

    kind: type[Any]
    tokens: Tokens
    all_cases: list[Case]
    each: float  # seconds for one schema
    total: float  # seconds for all of them
    missing: str = ""
    used: float = 0.0
    results: dict[int | str, dict[str, Any]] = field(default_factory=dict)
    process: Any = None
    pipe: Any = None

    def start(self) -> bool:
        context = multiprocessing.get_context("spawn")
        self.pipe, there = context.Pipe()
        self.process = context.Process(
            target=serve, args=(self.kind, self.tokens, self.all_cases, there), daemon=True
        )
        self.process.start()
        there.close()
        ready = self.answer(120.0)
        if ready is None or "missing" in ready:
            self.missing = (
                "its vocabulary was not ready in two minutes" if ready is None else ready["missing"]
            )
            self.stop()
            return False
        return True

    def answer(self, seconds: float) -> dict[str, Any] | None:
        try:
            return self.pipe.recv() if self.pipe.poll(seconds) else None
        except EOFError:  # it crashed
            return None

    def ask(self, what: int | str) -> None:
        if self.missing or (self.process is None and not self.start()):
            return
        if self.used >= self.total:
            self.results[what] = {"left_out": "not_reached"}
            return
        before = time.monotonic()
        self.pipe.send(what)
        got = self.answer(self.each)
        self.used += time.monotonic() - before
        if got is None:
            got = {"left_out": "killed" if self.process.is_alive() else "crashed"}
            self.stop()
        self.results[what] = got

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.pipe.close()
        self.process = None


def numbers(values: list[float], tails: tuple[float, ...]) -> dict[str, float]:
    a = np.array(values or [0.0])
    out = {"n": len(values), "avg": float(a.mean()), "max": float(a.max())}
    return out | {f"p{t:g}": float(np.percentile(a, t)) for t in tails}


def summary(runner: Runner, over: set[int]) -> dict[str, Any]:
    """The figures of an engine over some of the schemas."""
    done = [runner.results[i] for i in sorted(over)]
    compiled = [r for r in done if "compile_ns" in r]
    documents = sum(len(runner.all_cases[i].documents) for i in over)
    out: dict[str, Any] = {
        "schemas": len(done),
        "compiled": len(compiled) / max(1, len(done)),
        "valid_accepted": sum(r["accepted"] for r in compiled) / max(1, documents),
        "compile_ms": numbers([r["compile_ns"] / 1e6 for r in compiled], (50, 99)),
        "mask_us": numbers([n / 1e3 for r in compiled for n in r["mask_ns"]], (50, 99, 99.9)),
    }
    for name in SPECIAL:
        out[name] = runner.results.get(name, {}).get("value")
    return out


def reached(runner: Runner) -> set[int]:
    return {i for i, r in runner.results.items() if isinstance(i, int) and "left_out" not in r}


def left_out(runner: Runner) -> dict[str, int]:
    """How many schemas and single cases have no figure, by reason."""
    return dict(Counter(r["left_out"] for r in runner.results.values() if "left_out" in r))


ROWS = (
    ("compile_ms", "p50"),
    ("compile_ms", "p99"),
    ("compile_ms", "max"),
    ("mask_us", "avg"),
    ("mask_us", "p50"),
    ("mask_us", "p99"),
    ("mask_us", "p99.9"),
    ("mask_us", "max"),
    ("pattern_3000_mask_us_p50", ""),
    ("tools_128x20_compile_ms", ""),
)


def part_of(result: dict[str, Any], row: str, part: str) -> float | None:
    value: float | None = result[row][part] if part else result[row]
    return value


def ratios(runners: list[Runner]) -> dict[str, float | None]:
    """Of every row, how many times as fast as the better of the others: above 1 is ahead.

    Each of the others is compared over the schemas that it and we compiled, so that what an engine refuses or is
    killed over does not make it faster.
    """
    ours = next((r for r in runners if r.kind is Llamay), None)
    others = [r for r in runners if r.kind is not Llamay and not r.missing]
    if ours is None or ours.missing or not others:
        return {}
    out: dict[str, float | None] = {}
    pairs = []
    for other in others:
        both = {
            i
            for i in reached(ours) & reached(other)
            if "compile_ns" in ours.results[i] and "compile_ns" in other.results[i]
        }
        pairs.append((summary(ours, both), summary(other, both)))
    for row, part in ROWS:
        found = []
        for mine, theirs in pairs:
            a, b = part_of(mine, row, part), part_of(theirs, row, part)
            if a and b:
                found.append(b / a)
        out[f"{row} {part}".strip()] = min(found) if found else None
    return out


def vocabularies(given: list[str]) -> Iterator[Tokens]:
    for entry in given:
        name, _, path = entry.partition("=")
        yield from_gguf(name, Path(path)) if path.endswith(".gguf") else from_tiktoken(name, Path(path))
    if (path128 := llama3()) is not None:
        yield from_tiktoken("llama3-128k", path128)


def show(v: Tokens, runner: Runner, result: dict[str, Any]) -> None:
    c, m = result["compile_ms"], result["mask_us"]
    pattern, tools = (result[name] for name in SPECIAL)
    parts = [
        f"{v.name:12} {runner.kind.name:10}",
        f"compiled {result['compiled']:.1%} accepted {result['valid_accepted']:.1%}",
        f"compile ms p50 {c['p50']:.3f} p99 {c['p99']:.1f} max {c['max']:.0f}",
        f"mask us avg {m['avg']:.1f} p50 {m['p50']:.2f} p99 {m['p99']:.0f} p99.9 {m['p99.9']:.0f}",
        f"max {m['max']:.0f}",
        "pattern -" if pattern is None else f"pattern {pattern:.1f} us",
        "tools -" if tools is None else f"tools {tools:.0f} ms",
    ]
    print("  ".join(parts), flush=True)
    for reason, n in left_out(runner).items():
        print(f"{'':12} {runner.kind.name:10}  {n} left out: {reason.replace('_', ' ')}", flush=True)


def compare(
    v: Tokens, chosen: list[type[Any]], all_cases: list[Case], each: float, total: float
) -> list[Runner]:
    """Run every case through every engine, engine by engine, so that other load on the machine affects all of them."""
    runners = [Runner(kind, v, all_cases, each, total) for kind in chosen]
    try:
        for what in (*SPECIAL, *range(len(all_cases))):
            for runner in runners:
                runner.ask(what)
    finally:
        for runner in runners:
            runner.stop()
    return runners


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--schemas", type=int, default=300, help="how many schemas of MaskBench (default 300)"
    )
    parser.add_argument("--vocab", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--engines", default="llamay,llguidance,xgrammar")
    parser.add_argument(
        "--each",
        type=float,
        default=10,
        help="seconds for one schema before an engine is killed (default 10)",
    )
    parser.add_argument(
        "--total", type=float, default=120, help="seconds for one engine and vocabulary (default 120)"
    )
    args = parser.parse_args()
    chosen = [e for e in (Llamay, LLGuidance, XGrammar) if e.name in args.engines.split(",")]
    report: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "schemas": args.schemas,
        "results": {},
        "ratios": {},
        "growth": {},
    }
    all_cases = cases(args.schemas)
    for v in vocabularies(args.vocab):
        runners = compare(v, chosen, all_cases, args.each, args.total)
        for runner in runners:
            if runner.missing:
                print(f"{runner.kind.name} is left out: {runner.missing}", file=sys.stderr)
                continue
            result = summary(runner, reached(runner)) | {"left_out": left_out(runner)}
            result["tokens"] = len(v.tokens)
            report["results"].setdefault(v.name, {})[runner.kind.name] = result
            if not args.json:
                show(v, runner, result)
        report["ratios"][v.name] = ratios(runners)
        if not args.json:
            for row, ratio in report["ratios"][v.name].items():
                shown = "not measured" if ratio is None else f"{ratio:8.2f} x the better of the others"
                print(f"{v.name:12} {row:28} {shown}")
    # The cost of a vocabulary twice as large: the largest against the next one.
    by_size = sorted(report["results"].values(), key=lambda r: next(iter(r.values()))["tokens"])
    for small, large in itertools.pairwise(by_size[-2:]):
        for name in small.keys() & large.keys():
            grown = {
                k: large[name]["mask_us"][k] / max(1e-9, small[name]["mask_us"][k]) for k in ("avg", "p50")
            }
            report["growth"][name] = grown
            if not args.json:
                print(
                    f"{name:12} largest vocabulary over the next: mask avg {grown['avg']:.2f} p50 {grown['p50']:.2f}"
                )
    if args.json:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
