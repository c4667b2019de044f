"""Arrays whose items are different strings of many forms, and of a limited length."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from helpers import accepts, mask_bits, walk

import llamay_grammar as lg

jsonschema = pytest.importorskip("jsonschema")

STRINGS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "email": ({"format": "email"}, ["ann@example.com", "bob@example.com", "ann@example.org"]),
    "idn-email": ({"format": "idn-email"}, ["ann@example.com", "bob@example.com"]),
    "hostname": ({"format": "hostname"}, ["example.com", "example.org", "a"]),
    "idn-hostname": ({"format": "idn-hostname"}, ["example.com", "example.org"]),
    "uri": ({"format": "uri"}, ["https://example.com/a", "https://example.com/b"]),
    "uri of some length": ({"format": "uri", "maxLength": 2048}, ["https://example.com/a", "https://example.com"]),
    "email of some length": ({"format": "email", "minLength": 6, "maxLength": 100}, ["ann@example.com", "b@a.de"]),
    "long": ({"maxLength": 100_000}, ["", "a", "b"]),
    "long and not empty": ({"minLength": 1, "maxLength": 100_000}, ["a", "b"]),
    "long words": ({"pattern": "^[a-z]+( [a-z]+)*$", "maxLength": 10_000}, ["a", "a b"]),
}  # fmt: skip


@pytest.mark.parametrize("name", STRINGS)
def test_different_strings_are_accepted_and_equal_ones_are_not(
    name: str, bytes_vocabulary: lg.Vocabulary
) -> None:
    string, values = STRINGS[name]
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "string", **string}}
    grammar = lg.compile_json_schema(schema, bytes_vocabulary)
    assert accepts(grammar, json.dumps(values).encode())
    for value in values:
        assert not accepts(grammar, json.dumps([*values, value]).encode())


@pytest.mark.parametrize("name", STRINGS)
def test_objects_with_different_strings_are_accepted_and_equal_ones_are_not(
    name: str, bytes_vocabulary: lg.Vocabulary
) -> None:
    string, values = STRINGS[name]
    item = {
        "type": "object",
        "properties": {"s": {"type": "string", **string}},
        "required": ["s"],
        "additionalProperties": False,
    }
    schema = {"type": "array", "uniqueItems": True, "items": item}
    grammar = lg.compile_json_schema(schema, bytes_vocabulary)
    documents = [{"s": value} for value in values]
    assert accepts(grammar, json.dumps(documents).encode())
    for document in documents:
        assert not accepts(grammar, json.dumps([*documents, document]).encode())


@pytest.mark.parametrize("kind", ["email", "hostname", "uri", "date", "uuid", "ipv6"])
@pytest.mark.parametrize("members", [0, 1, 2])
def test_a_walk_through_different_strings_meets_no_dead_end_and_no_limit(
    kind: str, members: int, awkward_vocabulary: lg.Vocabulary
) -> None:
    item: dict[str, Any] = {"type": "string", "format": kind}
    if members:
        properties = dict.fromkeys(("e", "f")[:members], item)
        item = {"type": "object", "properties": properties, "additionalProperties": False}
    schema = {"type": "array", "uniqueItems": True, "items": item}
    grammar = lg.compile_json_schema(schema, awkward_vocabulary, max_whitespace=1)
    validator = jsonschema.Draft202012Validator(schema)
    rng = random.Random(1)
    ended = 0
    for _ in range(12):
        text = walk(grammar, rng, 120)
        if text is not None:
            validator.validate(json.loads(text))
            ended += 1
    assert ended


def test_where_few_strings_are_left_before_the_maximum_the_used_ones_are_told_apart(
    bytes_vocabulary: lg.Vocabulary,
) -> None:
    longest = 1100
    item = {"type": "string", "pattern": "^[ab]*$", "maxLength": longest}
    schema = {"type": "array", "uniqueItems": True, "items": item}
    grammar = lg.compile_json_schema(schema, bytes_vocabulary, whitespace="compact", canonical_escapes=True)
    matcher = grammar.matcher()
    prefix = "a" * (longest - 2)
    used = [prefix + end for end in ("", "a", "b", "aa", "ab", "ba", "bb")]

    def allowed(text: str) -> str:
        found = matcher.fork()
        for byte in text.encode():
            found.accept(byte)
        return "".join(chr(t) for t in mask_bits(found))

    for byte in ("[" + ",".join(map(json.dumps, used[:-1])) + ",").encode():
        matcher.accept(byte)
    assert allowed('"' + prefix[:-1]) == '"ab'
    assert allowed('"' + prefix) == "b"
    assert allowed('"' + prefix + "b") == "b"
    assert allowed('"' + prefix + "bb") == '"'
    for byte in ('"' + used[-1] + '",').encode():
        matcher.accept(byte)
    assert allowed('"' + prefix[:-1]) == '"b'
    assert allowed('"' + prefix[:-2]) == '"ab'
