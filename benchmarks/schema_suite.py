"""How many groups of the JSON Schema test suite are exactly right, draft by draft, and which schemas are refused.

    pip install jsonschema-specifications
    python benchmarks/schema_suite.py [--json] [--suite FOLDER]

A group is a schema with documents. It is right when every document is judged as the suite does, read byte by byte with
the end token included; a schema that is refused because no document satisfies it is right where the suite has no valid
one. `format` is asserted, which the suite counts as an error in 2019-09 and 2020-12. FOLDER holds `tests` and
`remotes`; by default it is `json-schema-test-suite` of the test data (LLAMAY_TEST_DATA). The exit status is 1 if any
group accepts a document that is invalid.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from jsonschema_specifications import REGISTRY

import llamay_grammar as lg

DRAFTS = ("4", "6", "7", "2019-09", "2020-12")
ROOT = Path(__file__).resolve().parents[1]
DATA: Path = runpy.run_path(str(ROOT / "tests" / "larger_data.py"))["data_folder"]()


def accepts(grammar: lg.Grammar, text: bytes) -> bool:
    """Whether a document is allowed from its first byte to its end."""
    matcher = grammar.matcher()
    try:
        for byte in text:
            matcher.accept(byte)
    except lg.RefusedTokenError:
        return False
    return matcher.is_complete


def measure(suite: Path, draft: str, words: lg.Vocabulary) -> dict[str, Any]:
    remotes = {
        f"http://localhost:1234/{p.relative_to(suite / 'remotes').as_posix()}": p.read_text("utf-8")
        for p in (suite / "remotes").rglob("*.json")
    }

    def resolver(uri: str) -> Any:
        if uri in remotes:
            return remotes[uri]
        return next((REGISTRY[name].contents for name in (uri, uri + "#") if name in REGISTRY), None)

    groups = right = 0
    over, stricter = [], []
    refused: Counter[str] = Counter()
    for file in sorted((suite / "tests" / f"draft{draft}").glob("*.json")):
        for group in json.loads(file.read_text("utf-8")):
            groups += 1
            name = f"{file.stem}: {group['description']}"
            try:
                grammar = lg.compile_json_schema(group["schema"], words, draft=draft, resolver=resolver)  # type: ignore[arg-type]
            except lg.CompileError as error:
                if "no document" in str(error) and not any(t["valid"] for t in group["tests"]):
                    right += 1
                else:
                    refused[error.keyword or str(error)] += 1
                continue
            verdicts = [
                (accepts(grammar, json.dumps(t["data"]).encode()), bool(t["valid"])) for t in group["tests"]
            ]
            right += all(got == wanted for got, wanted in verdicts)
            if any(got and not wanted for got, wanted in verdicts):
                over.append(name)
            elif any(wanted and not got for got, wanted in verdicts):
                stricter.append(name)
    return {
        "draft": draft,
        "groups": groups,
        "right": right,
        "percent": round(100 * right / groups, 1),
        "refused": dict(refused.most_common()),
        "stricter": stricter,
        "over": over,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", type=Path, default=DATA / "json-schema-test-suite", metavar="FOLDER")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    if not (args.suite / "tests").is_dir():
        sys.exit(f"the test suite is not in {args.suite}")
    words = lg.Vocabulary([*(bytes([b]) for b in range(256)), b""], special=[256], end=[256])
    results = [measure(args.suite, draft, words) for draft in DRAFTS]
    if args.json:
        print(json.dumps(results, indent=1))
    else:
        for found in results:
            print(
                f"draft {found['draft']}: {found['right']} of {found['groups']} groups right "
                f"({found['percent']} %), {len(found['over'])} accept something invalid"
            )
            for keyword, number in found["refused"].items():
                print(f"  refused for {keyword}: {number}")
            for name in found["stricter"]:
                print(f"  refuses a valid document: {name}")
            for name in found["over"]:
                print(f"  accepts an invalid document: {name}")
    sys.exit(1 if any(found["over"] for found in results) else 0)


if __name__ == "__main__":
    main()
