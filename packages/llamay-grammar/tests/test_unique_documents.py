"""uniqueItems over arrays and objects, against every document there is."""

# ruff: noqa: E501 - schemas are easier to compare on one line
from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest
from helpers import mask_bits, walk

import llamay_grammar as lg

jsonschema = pytest.importorskip("jsonschema")


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def spellings(value: Any) -> list[bytes]:
    """A value in compact JSON, objects in every order of members."""
    if isinstance(value, dict):
        out = []
        for order in itertools.permutations(value.items()):
            parts = [
                [json.dumps(k).encode() + b":" + text for text in spellings(member)] for k, member in order
            ]
            out += [b"{" + b",".join(pick) + b"}" for pick in itertools.product(*parts)]
        return out
    if isinstance(value, list):
        return [b"[" + b",".join(pick) + b"]" for pick in itertools.product(*map(spellings, value))]
    return [json.dumps(value).encode()]


def objects(**members: list[Any]) -> list[Any]:
    """Every object with some of the members."""
    choices = [[*((k, v) for v in values), None] for k, values in members.items()]
    return [dict(m for m in pick if m is not None) for pick in itertools.product(*choices)]


# The schema of an item, all values of items, and the most items that are tried.
FINITE: dict[str, tuple[Any, list[Any], int]] = {
    "optional members": (closed(a={"const": 1}, b={"type": "boolean"}), objects(a=[1], b=[False, True]), 3),
    "one value": ({**closed(a={"const": 1}, b={"const": 2}), "required": ["a", "b"]}, [{"a": 1, "b": 2}], 2),
    "arrays": ({"type": "array", "items": {"enum": [1, 12]}, "maxItems": 1}, [[], [1], [12]], 3),
    "objects and scalars": ({"anyOf": [closed(a={"enum": [1, 12]}), {"enum": [1, "a", "ab"]}]}, [*objects(a=[1, 12]), 1, "a", "ab"], 3),
    "at most one member": ({**closed(a={"const": 1}, b={"const": 2}), "maxProperties": 1}, [{}, {"a": 1}, {"b": 2}], 3),
    "one of": ({"oneOf": [{**closed(a={"const": 1}), "required": ["a"]}, closed(a={"enum": [1, 2]})]}, [{}, {"a": 2}], 2),
    "inner arrays differ too": ({"type": "array", "uniqueItems": True, "maxItems": 2, "items": closed(a={"const": 1})}, [[], [{}], [{"a": 1}], [{}, {"a": 1}], [{"a": 1}, {}]], 2),
}  # fmt: skip


@pytest.mark.parametrize("whitespace", ["compact", "spaced"])
@pytest.mark.parametrize("name", FINITE)
def test_every_byte_is_allowed_exactly_where_a_document_continues(
    name: str, whitespace: lg.Whitespace, bytes_vocabulary: lg.Vocabulary
) -> None:
    item, values, most = FINITE[name]
    schema = {"type": "array", "items": item, "uniqueItems": True, "maxItems": most}
    grammar = lg.compile_json_schema(schema, bytes_vocabulary, whitespace=whitespace)
    continued: dict[bytes, set[int]] = {}
    for n in range(min(most, len(values)) + 1):
        for pick in itertools.permutations(values, n):
            for text in spellings(list(pick)):
                if whitespace == "spaced":
                    text = text.replace(b",", b", ").replace(b":", b": ")
                for i, byte in enumerate(text):
                    continued.setdefault(text[:i], set()).add(byte)
                continued.setdefault(text, set())
    rng = random.Random(name)
    prefixes = list(continued)
    for prefix in rng.sample(prefixes, min(len(prefixes), 400)):
        matcher = grammar.matcher()
        for byte in prefix:
            matcher.accept(byte)
        allowed = {b for b in mask_bits(matcher) if b < 256 and b != ord("\\")}
        assert allowed == continued[prefix], prefix
        assert matcher.is_complete == (not continued[prefix])


WALKED: dict[str, Any] = {
    "flags": closed(a={"enum": ["a", "ab"]}, b={"type": "boolean"}),
    "short strings": {"anyOf": [{"type": "string", "maxLength": 1}, {**closed(name={"type": "string", "maxLength": 1}), "required": ["name"]}]},
    "patterns": {**closed(name={"type": "string", "pattern": "^[ab]{1,2}$"}, id={"type": "integer", "minimum": 0, "maximum": 12}), "required": ["name"]},
    "anything": {},
    "nested": {"type": "array", "uniqueItems": True, "items": closed(a={"type": "boolean"}), "maxItems": 2},
    "open objects": {"type": "object", "properties": {"a": {"type": "integer"}}, "maxProperties": 2},
    "few names": {"type": "object", "patternProperties": {"^[ab]$": {"type": "boolean"}}, "additionalProperties": False},
    "several at least": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"], "minProperties": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", WALKED)
def test_walks_that_go_on_as_long_as_they_can_stay_valid(
    name: str, awkward_vocabulary: lg.Vocabulary
) -> None:
    schema = {
        "type": "array",
        "items": WALKED[name],
        "uniqueItems": True,
        "minItems": int("least" in name) * 2,
    }
    grammar = lg.compile_json_schema(schema, awkward_vocabulary, max_whitespace=1)
    validator = jsonschema.Draft202012Validator(schema)
    rng = random.Random(name)

    def as_if_tried(matcher: lg.Matcher, allowed: list[int]) -> None:
        if rng.random() < 0.1:
            assert allowed == [t for t in range(len(awkward_vocabulary)) if matcher.allows(t)]

    ended = 0
    for _ in range(25):
        text = walk(grammar, rng, 150, as_if_tried)
        if text is not None:
            validator.validate(json.loads(text))
            ended += 1
    assert ended >= 5


def test_the_same_object_in_another_spelling_is_refused(bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_json_schema(
        {"type": "array", "items": {"type": "object"}, "uniqueItems": True}, bytes_vocabulary
    )
    matcher = grammar.matcher()
    for byte in b'[{"a": "x", "b": [1, {}]}, { "b":[1,{ }],"\\u0061":"\\u0078"':
        matcher.accept(byte)
    assert not matcher.allows(ord("}"))
    assert matcher.allows(ord(","))
    matcher.accept(ord(","))
    for byte in b'"c":1}]':
        matcher.accept(byte)
    assert matcher.is_complete


def test_too_few_different_items_are_refused(bytes_vocabulary: lg.Vocabulary) -> None:
    schema = {"type": "array", "items": closed(a={"const": 1}), "uniqueItems": True, "minItems": 2}
    with pytest.raises(lg.CompileError, match="several different") as refused:
        lg.compile_json_schema(schema, bytes_vocabulary)
    assert refused.value.pointer == "/uniqueItems"
