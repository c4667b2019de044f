"""Tokens that end a name and go on: through its value, and behind it into an object that is in another state."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from helpers import awkward_tokens, mask_bits

import llamay_grammar as lg

VALUES = [
    "1",
    "-2.5",
    "1e3",
    "12",
    '"x"',
    '""',
    "[]",
    "[1]",
    "[[",
    "{}",
    '{"k":1}',
    '{"k":[',
    "true",
    "null",
    " 0",
    "nu",
]
ENDS = ["", ",", ",\n", ',"', '","', "}", "},", " }", "]", ',"b":', ',"b', ',"b":1,"a"', ',"":', " ,", "}]"]
SCHEMAS: list[Any] = [
    {"additionalProperties": {"type": "number"}},
    {"additionalProperties": {"type": ["integer", "string"]}, "required": ["b"]},
    {"properties": {"a": {}, "b": {"type": "integer"}}, "required": ["a"]},
    {"properties": {"a": {}, "b": {}}, "additionalProperties": {"type": "array"}, "minProperties": 3},
    {"additionalProperties": {"type": ["object", "boolean"]}, "maxProperties": 2},
    {
        "patternProperties": {"^[a-m]*$": {"type": "null"}},
        "additionalProperties": {"type": "string", "maxLength": 2},
    },
    {"properties": {"b": {"type": "integer"}}, "unevaluatedProperties": {"items": {"maximum": 1}}},
    {"dependentRequired": {"a": ["b"]}, "properties": {"a": {}, "b": {}}},
]


@pytest.fixture(scope="module")
def crossing() -> lg.Vocabulary:
    tokens = awkward_tokens()
    for name, value, end in itertools.product(("", "a", "zz"), VALUES, ENDS):
        tokens.append(f'{name}":{value}{end}'.encode())
    tokens += [f'"{value}{end}'.encode() for value in VALUES for end in ENDS[:4]]
    size = len(tokens)
    return lg.Vocabulary([*tokens, b"</s>"], special=[size], end=[size])


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "flexible"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda s: ",".join(s))
def test_what_follows_a_name_is_what_trying_every_token_says(
    schema: Any, whitespace: Any, crossing: lg.Vocabulary
) -> None:
    space = "" if whitespace == "compact" else " "
    # One grammar for all: what is remembered of one object must hold in the next.
    grammar = lg.compile_json_schema(
        {"type": ["object", "array"], "items": schema} | schema, crossing, whitespace=whitespace
    )
    tried = 0
    for value in ("1", '"x"', "[0]", "{}", "null"):
        for document in (
            f'{{"z": {value}, "zz": {value}, "b": 1, "a": {value}, "zzz": {value}}}',
            f'[{{"a": {value}, "m": {value}}}, {{"b": 0, "n": {value}, "q": {value}}}, {{}}]',
        ):
            matcher = grammar.matcher()
            for byte in document.replace(" ", space).encode():
                allowed = mask_bits(matcher)
                assert allowed == [t for t in range(len(crossing)) if matcher.allows(t)], matcher.tokens
                tried += 1
                token = next(t for t in range(len(crossing)) if crossing.bytes_of(t) == bytes([byte]))
                if token not in allowed:
                    break
                matcher.accept(token)
    assert tried > 60


def test_of_few_names_none_comes_twice(crossing: lg.Vocabulary) -> None:
    schema = {"patternProperties": {"^(a|b|ba|zz)?$": {"type": "null"}}, "additionalProperties": False}
    for names in itertools.permutations(["", "a", "b", "ba", "zz"], 3):
        matcher = lg.compile_json_schema(
            {"type": "object"} | schema, crossing, whitespace="compact"
        ).matcher()
        text = "{" + ",".join(f'"{name}":null' for name in names) + "}"
        for byte in text.encode():
            assert mask_bits(matcher) == [t for t in range(len(crossing)) if matcher.allows(t)], (
                matcher.tokens
            )
            matcher.accept(next(t for t in range(len(crossing)) if crossing.bytes_of(t) == bytes([byte])))
