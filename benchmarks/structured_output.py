"""What real models write under fifty schemas, greedily and at temperature 1: does every document that ends validate?

    pip install 'jsonschema[format-nongpl]' jsonschema-rs
    python benchmarks/structured_output.py MODEL.gguf [MODEL.gguf ...] [--max-tokens 160] [--samples 1] [--json]
    python benchmarks/structured_output.py MODEL.gguf --calls qwen3-coder

Two validators with formats asserted, jsonschema and jsonschema-rs, have to agree that a document is valid. A text that
was cut off at the limit counts as "cut off", not as wrong. With `--calls` the schemas are those of a function's
arguments, the model writes a call in that format, and the result of the server's reader is judged. The exit status
is 1 if any document that ended by itself is not valid.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import jsonschema_rs

import llamay
import llamay_grammar as lg
from llamay_models.answers import Reader, ToolCall

SCHEMAS = Path(__file__).resolve().parents[1] / "tests" / "grammar" / "schemas.json"


def errors(text: str, by_python: Any, by_rust: Any) -> list[str]:
    """The errors of two validators about a document."""
    document = json.loads(text)
    found = [f"jsonschema: {error.message}" for error in by_python.iter_errors(document)]
    return found + [f"jsonschema-rs: {error.message}" for error in by_rust.iter_errors(document)]


def call_of(text: str, schema: Any, form: str) -> str:
    """The arguments of the call that a text is."""
    reader = Reader({"write": schema}, formats=lg, form=form)
    calls = [e for e in (*reader.feed(text), *reader.finish("stop", None)) if isinstance(e, ToolCall)]
    return calls[0].arguments if len(calls) == 1 else json.dumps({"no call": text})


def as_arguments(schema: Any) -> Any:
    """An object with the value, where the schema describes none."""
    if isinstance(schema, dict) and schema.get("type") == "object":
        return schema
    outer: dict[str, Any] = {"type": "object", "properties": {"value": schema}, "required": ["value"]}
    if isinstance(schema, dict):  # what references lead to stays where it was
        outer |= {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    return outer | {"additionalProperties": False}


def measure(path: Path, max_tokens: int, samples: int, form: str | None) -> dict[str, Any]:
    schemas: dict[str, Any] = json.loads(SCHEMAS.read_text("utf-8"))
    if form is not None:
        schemas = {name: as_arguments(schema) for name, schema in schemas.items()}
    counts = {"valid": 0, "cut off": 0, "invalid": 0}
    wrong = []
    tokens = 0
    before = time.perf_counter()
    with llamay.load(path) as model:
        words = llamay.vocabulary(model)
        for name, schema in schemas.items():
            if form is None:
                grammar = lg.compile_json_schema(schema, words, max_whitespace=2)
            else:
                tool = {"name": "write", "parameters": schema}
                grammar = lg.compile_tools([tool], words, format=form, choice="write", max_whitespace=2)
            by_python = jsonschema.Draft202012Validator(
                schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
            )
            by_rust = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
            for number in range(1 + samples):
                sampling = llamay.Sampling(
                    temperature=0.0 if number == 0 else 1.0, top_k=0, top_p=1, min_p=0, seed=number
                )
                with model.context(f"Here is {name} as JSON:\n") as context:
                    made = context.generate(sampling, max_tokens=max_tokens, constraint=grammar.matcher())
                    text = made.text
                tokens += made.usage.completion_tokens
                if made.error is not None:
                    raise made.error
                if made.finish_reason != "stop":
                    counts["cut off"] += 1
                elif not (why := errors(call_of(text, schema, form) if form else text, by_python, by_rust)):
                    counts["valid"] += 1
                else:
                    counts["invalid"] += 1
                    wrong.append({"schema": name, "text": text, "why": why})
    return {
        "model": path.name,
        "schemas": len(schemas),
        **counts,
        "tokens": tokens,
        "seconds": round(time.perf_counter() - before, 1),
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.gguf")
    parser.add_argument("--max-tokens", type=int, default=160)
    parser.add_argument("--samples", type=int, default=1, help="texts at temperature 1 for every schema")
    parser.add_argument(
        "--calls", metavar="FORMAT", choices=sorted(lg.tool_formats()), help="calls in a format"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    args = parser.parse_args()
    results = []
    for path in args.models:
        found = measure(path, args.max_tokens, args.samples, args.calls)
        results.append(found)
        if not args.json:
            print(
                f"{found['model']}: {found['valid']} documents ended and are valid, {found['invalid']} are not, "
                f"{found['cut off']} were cut off at {args.max_tokens} tokens; {found['tokens']} tokens in "
                f"{found['seconds']} s",
                flush=True,
            )
            for bad in found["wrong"]:
                print(f"  {bad['schema']}: {bad['text']!r}: {'; '.join(bad['why'])}")
    if args.json:
        print(json.dumps(results, indent=1))
    sys.exit(1 if any(found["invalid"] for found in results) else 0)


if __name__ == "__main__":
    main()
