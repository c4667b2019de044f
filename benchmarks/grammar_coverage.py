"""How much of MaskBench each engine compiles, and how much of that is right.

    pip install llguidance xgrammar
    python benchmarks/grammar_coverage.py [--json] [--engines llamay,llguidance,xgrammar] [--every N] [--refused]

Documents are read byte by byte, the end token included: the vocabulary is the 256 bytes, so tokenization plays no
part. "All right" means that every valid document of a schema is accepted and every invalid one is not. The schemas
are `maskbench-half.tar.xz` of the test data (LLAMAY_TEST_DATA).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any

from grammar import Llamay, LLGuidance, Tokens, XGrammar, schemas_with_tests

import llamay_grammar as lg


def accepts(engine: Any, grammar: Any, text: bytes, end: int) -> bool:
    """Whether a document is allowed from its first byte to the end token."""
    fill, accept = engine.start(grammar)
    try:
        for byte in text:
            fill()
            if not engine.allowed(byte):
                return False
            accept(byte)
        fill()
        return bool(engine.allowed(end))
    except Exception:  # every engine has its own
        return False


def measure(engine: Any, every: int, end: int) -> dict[str, Any]:
    total = compiled = tested = right = valid = accepted = over = unsatisfiable = 0
    refused: Counter[str] = Counter()
    for number, (_name, schema, tests) in enumerate(schemas_with_tests()):
        if number % every:
            continue
        total += 1
        tested += bool(tests)
        valid += sum(t["valid"] for t in tests)
        try:
            grammar = engine.compile(schema)
        except Exception as error:
            if isinstance(error, lg.CompileError):
                unsatisfiable += "no document" in str(error)
                refused[error.keyword or "(whole schema)"] += 1
            continue
        compiled += 1
        ok, too_much = True, False
        for test in tests:
            text = json.dumps(test["data"], ensure_ascii=False).encode("utf-8", "surrogatepass")
            got = accepts(engine, grammar, text, end)
            accepted += got and test["valid"]
            ok &= got == test["valid"]
            too_much |= got and not test["valid"]
        right += ok and bool(tests)
        over += too_much
    return {
        "schemas": total,
        "compiled": compiled / total,
        "refused_as_unsatisfiable": unsatisfiable / total,
        "all_right": right / max(1, tested),
        "valid_accepted": accepted / max(1, valid),
        "over_accepting": over,
        "refused": dict(refused.most_common()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--engines", default="llamay,llguidance,xgrammar")
    parser.add_argument("--every", type=int, default=1, help="only every Nth schema")
    parser.add_argument("--refused", action="store_true", help="also how many schemas are refused by keyword")
    args = parser.parse_args()
    end = 256
    vocabulary = Tokens("bytes", [bytes([b]) for b in range(256)] + [b"</s>"], [end], end)
    report = {}
    for kind in (Llamay, LLGuidance, XGrammar):
        if kind.name not in args.engines.split(","):
            continue
        try:
            engine = kind(vocabulary)
        except ImportError as error:
            print(f"{kind.name} is not installed: {error}", file=sys.stderr)
            continue
        found = report[kind.name] = measure(engine, args.every, end)
        if not args.json:
            print(
                f"{kind.name:10}  {found['schemas']} schemas  compiled {found['compiled']:.2%}  "
                f"all right {found['all_right']:.2%}  valid accepted {found['valid_accepted']:.2%}  "
                f"over-accepting {found['over_accepting']}",
                flush=True,
            )
            if args.refused and found["refused"]:
                print("            refused: " + ", ".join(f"{k} {n}" for k, n in found["refused"].items()))
    if args.json:
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
