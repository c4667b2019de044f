"""Masks and compilation of llamay-grammar beside llguidance and xgrammar, in one run and at the same positions.

    pip install llguidance xgrammar gguf llama-models
    python benchmarks/grammar.py [--json] [--schemas N] [--vocab NAME=PATH ...]

Every engine compiles the same JSON schemas (MaskBench, from the test data) and follows the same valid documents, cut
into the same tokens. A mask is timed at every token, in CPU time of the thread, so that other work on the machine
counts less; a comparison is still only one between columns of the same run. The last lines are ratios against the
better of the peers, row by row.

PATH is a GGUF file (its vocabulary is read), or a tiktoken file ("base64 rank" per line) such as Llama 3's
tokenizer.model in the package llama-models, which is found by itself.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import llamay_grammar as lg

ROOT = Path(__file__).resolve().parents[1]
clock = time.thread_time_ns


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
    named = os.environ.get("LLAMAY_TEST_DATA")
    archive = (Path(named) if named else ROOT.parent / "shared" / "data") / "maskbench-half.tar.xz"
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
        native, mask = matcher._native, self.mask
        return lambda: native.fill_mask(mask), matcher.accept

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
        self.fill = llguidance.numpy.fill_next_token_bitmask

    def compile(self, schema: Any) -> Any:
        grammar = self.lib.LLMatcher.grammar_from_json_schema(schema)
        matcher = self.lib.LLMatcher(self.tokenizer, grammar)
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, grammar: Any) -> tuple[Callable[[], Any], Callable[[int], Any]]:
        matcher = grammar.deep_copy()
        fill, mask = self.fill, self.mask

        def accept(token: int) -> None:
            if not matcher.consume_token(token):
                raise ValueError("refused")

        return lambda: fill(matcher, mask, 0), accept

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


def numbers(values: list[float], tails: tuple[float, ...]) -> dict[str, float]:
    a = np.array(values or [0.0])
    out = {"n": len(values), "avg": float(a.mean()), "max": float(a.max())}
    return out | {f"p{t:g}": float(np.percentile(a, t)) for t in tails}


def measure(engine: Any, all_cases: list[Case], v: Tokens) -> dict[str, Any]:
    compile_ms, mask_us = [], []
    compiled = accepted = documents = 0
    for case in all_cases:
        documents += len(case.documents)
        before = clock()
        try:
            grammar = engine.compile(case.schema)
        except Exception:  # every engine has its own
            continue
        compile_ms.append((clock() - before) / 1e6)
        compiled += 1
        for text in case.documents:
            fill, accept = engine.start(grammar)
            try:
                for token in v.cut(text):
                    before = clock()
                    fill()
                    mask_us.append((clock() - before) / 1e3)
                    if not engine.allowed(token):
                        raise ValueError("not allowed")
                    accept(token)
                fill()
                accepted += engine.allowed(v.end)
            except Exception:
                continue
    return {
        "compiled": compiled / len(all_cases),
        "valid_accepted": accepted / max(1, documents),
        "compile_ms": numbers(compile_ms, (50, 99)),
        "mask_us": numbers(mask_us, (50, 99, 99.9)),
    }


def special_cases(engine: Any, v: Tokens) -> dict[str, float]:
    grammar = engine.compile({"type": "string", "pattern": "^[^<>]{1,3000}$"})
    fill, accept = engine.start(grammar)
    times = []
    for token in v.cut(b'"' + b"The quick brown fox jumps over the lazy dog. " * 20):
        before = clock()
        fill()
        times.append((clock() - before) / 1e3)
        accept(token)
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
    return {
        "pattern_3000_mask_us_p50": float(np.median(times)),
        "tools_128x20_compile_ms": (clock() - before) / 1e6,
    }


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


def ratios(results: dict[str, Any]) -> dict[str, float]:
    """Of every row, how many times as fast as the better of the others: above 1 is ahead."""
    ours = results.get(Llamay.name)
    others = [r for name, r in results.items() if name != Llamay.name]
    if ours is None or not others:
        return {}
    out = {}
    for row, part in ROWS:
        values = [r[row][part] if part else r[row] for r in (ours, *others)]
        out[f"{row} {part}".strip()] = min(values[1:]) / max(values[0], 1e-9)
    return out


def vocabularies(given: list[str]) -> Iterator[Tokens]:
    for entry in given:
        name, _, path = entry.partition("=")
        yield from_gguf(name, Path(path)) if path.endswith(".gguf") else from_tiktoken(name, Path(path))
    if (path128 := llama3()) is not None:
        yield from_tiktoken("llama3-128k", path128)


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
    args = parser.parse_args()
    chosen = [e for e in (Llamay, LLGuidance, XGrammar) if e.name in args.engines.split(",")]
    report: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "schemas": args.schemas,
        "results": {},
        "ratios": {},
    }
    all_cases = cases(args.schemas)
    for v in vocabularies(args.vocab):
        for kind in chosen:
            try:
                engine = kind(v)
            except ImportError as error:
                print(f"{kind.name} is not installed: {error}", file=sys.stderr)
                continue
            # Once to warm the process up: allocators, lazily built tables of the libraries, not the grammars.
            measure(engine, all_cases[:3], v)
            result = measure(engine, all_cases, v) | special_cases(engine, v)
            report["results"].setdefault(v.name, {})[kind.name] = result
            if not args.json:
                c, m = result["compile_ms"], result["mask_us"]
                parts = [
                    f"{v.name:12} {kind.name:10}",
                    f"compiled {result['compiled']:.1%} accepted {result['valid_accepted']:.1%}",
                    f"compile ms p50 {c['p50']:.3f} p99 {c['p99']:.1f} max {c['max']:.0f}",
                    f"mask us avg {m['avg']:.1f} p50 {m['p50']:.2f} p99 {m['p99']:.0f} p99.9 {m['p99.9']:.0f}",
                    f"max {m['max']:.0f}  pattern {result['pattern_3000_mask_us_p50']:.1f} us",
                    f"tools {result['tools_128x20_compile_ms']:.0f} ms",
                ]
                print("  ".join(parts), flush=True)
        report["ratios"][v.name] = ratios(report["results"].get(v.name, {}))
        if not args.json:
            for row, ratio in report["ratios"][v.name].items():
                print(f"{v.name:12} {row:28} {ratio:8.2f} x the better of the others")
    if args.json:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
