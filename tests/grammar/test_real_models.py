"""What real models write under schemas. All fifty schemas: `python benchmarks/structured_output.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llamay
import llamay_grammar as lg

jsonschema = pytest.importorskip("jsonschema")

# Short documents of every kind of keyword, so that the whole takes seconds.
NAMES = [
    "a colour",
    "an even number",
    "unique tags",
    "a date",
    "a postcode",
    "a cat or a dog",
    "if cash then change",
    "some flags",
    "a tree",
    "an escape",
]


@pytest.mark.model
@pytest.mark.parametrize("key", ["smollm2", "gemma3-270m"])
def test_a_document_that_ends_by_itself_is_valid(
    key: str, model_file: Callable[[str], Path], schemas: dict[str, Any]
) -> None:
    ended = 0
    with llamay.load(model_file(key)) as model:
        vocabulary = llamay.vocabulary(model)
        for name in NAMES:
            grammar = lg.compile_json_schema(schemas[name], vocabulary, max_whitespace=1)
            validator = jsonschema.Draft202012Validator(
                schemas[name], format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
            )
            for temperature in (0.0, 1.0):
                with model.context(f"Here is {name} as JSON:\n") as context:
                    made = context.generate(
                        llamay.Sampling(temperature=temperature, top_k=0, top_p=1, min_p=0, seed=7),
                        max_tokens=40,
                        constraint=grammar.matcher(),
                    )
                    text = made.text
                    assert made.error is None
                    if made.finish_reason == "stop":
                        ended += 1
                        validator.validate(json.loads(text))
    assert ended >= len(NAMES)


def test_documents_of_many_schemas_at_once_are_those_written_alone(
    model_file: Callable[[str], Path], schemas: dict[str, Any]
) -> None:
    with llamay.load(model_file("smollm2"), threads=2) as model:
        vocabulary = llamay.vocabulary(model)
        grammars = [lg.compile_json_schema(schemas[name], vocabulary, max_whitespace=1) for name in NAMES]

        def request(i: int) -> llamay.Request:
            prompt = model.encode(f"Here is {NAMES[i]} as JSON:\n")
            return llamay.Request(
                prompt, llamay.Sampling(seed=i), 24, constraint=grammars[i].matcher(), reuse=False
            )

        alone = [model.engine.submit(request(i)).tokens for i in range(len(NAMES))]
        together = model.engine.call(lambda: [model.engine.submit(request(i)) for i in range(len(NAMES))])
        assert [g.tokens for g in together] == alone
