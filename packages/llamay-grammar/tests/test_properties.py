"""What a grammar promises, checked against slow and obvious references."""

# ruff: noqa: E501 - schemas are easier to compare on one line
from __future__ import annotations

import json
import random
from typing import Any

import pytest
from helpers import accepts, mask_bits, walk
from object_schemas import OBJECTS

import llamay_grammar as lg

jsonschema = pytest.importorskip("jsonschema")
jsonschema_rs = pytest.importorskip("jsonschema_rs")

SCHEMAS: dict[str, Any] = {
    "anything": {},
    "strings": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 3}, "maxItems": 3},
    "numbers": {
        "type": "array",
        "items": {"anyOf": [{"type": "integer", "minimum": -3, "maximum": 120}, {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 9}]},
        "minItems": 1,
        "maxItems": 4,
    },
    "closed object": {
        "type": "object",
        "properties": {"a": {"const": 1}, "ab": {"type": "boolean"}, "name": {"enum": ["a", "ab", "\u20ac", 'q"\\']}},
        "required": ["a"],
        "additionalProperties": False,
    },
    "open object": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "age": {"type": "null"}},
        "required": ["age"],
        "maxProperties": 3,
    },
    "pattern properties": {
        "type": "object",
        "patternProperties": {"^a": {"type": "integer"}, "b$": {"type": "number"}},
        "additionalProperties": {"type": "boolean"},
        "minProperties": 1,
        "maxProperties": 3,
    },
    "few names": OBJECTS["few names"],
    "property names": {"type": "object", "propertyNames": {"pattern": "^[a-c]{1,2}$"}, "additionalProperties": {"const": 1}, "maxProperties": 4},
    "dependent": {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
        "dependentRequired": {"a": ["b"], "b": ["c"]},
        "additionalProperties": False,
        "maxProperties": 2,
    },
    "one of": {
        "oneOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
            {"type": "string", "maxLength": 2},
            {"enum": ["a", "xyz"]},
        ]
    },
    "if then else": OBJECTS["if then else"],
    "not": {"type": ["object", "string"], "not": {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "string", "pattern": "^a"}]}},
    "contains": {
        "type": "array",
        "items": {"enum": [1, 2, 3]},
        "contains": {"const": 2},
        "minContains": 1,
        "maxContains": 2,
        "maxItems": 4,
    },
    "tuple": {"type": "array", "prefixItems": [{"const": "a"}, {"type": "integer"}], "items": {"type": "null"}, "minItems": 1, "maxItems": 4},
    "unique": {"type": "array", "items": {"enum": ["a", "ab", 1, None]}, "uniqueItems": True, "minItems": 2},
    "unique strings": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "maxItems": 4},
    "patterns": {
        "type": "array",
        "items": {"anyOf": [{"type": "string", "pattern": "[a-f0-9]{3}-[a-f]{2}"}, {"type": "string", "pattern": "^[^<> ]{2,30}@[a-c]+$"}]},
        "maxItems": 2,
    },
    "names of bounded length": {"type": "object", "patternProperties": {"^[a-c]{1,20}$": {"const": 1}}, "additionalProperties": False, "properties": {"abc": {"const": 2}}},
    "strings of bounded length": {"type": "string", "pattern": "^(ab?c?)+[^a]*$", "minLength": 3, "maxLength": 24},
    "recursive": {
        "$defs": {"node": {"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}, "b": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "additionalProperties": False}},
        "$ref": "#/$defs/node",
    },
    "formats": {"type": "array", "items": {"anyOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "ipv4"}]}, "maxItems": 2},
    "all of": {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}}, {"properties": {"a": {"minimum": 3}}, "required": ["a"]}], "unevaluatedProperties": False},
}  # fmt: skip


def without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), f"a duplicate name in {pairs!r}"
    return dict(pairs)


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_random_walk_ends_and_its_document_is_valid(name: str, awkward_vocabulary: lg.Vocabulary) -> None:
    schema = SCHEMAS[name]
    grammar = lg.compile_json_schema(schema, awkward_vocabulary, max_whitespace=2)
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    second = jsonschema_rs.Draft202012Validator(schema, validate_formats=True)
    rng = random.Random(name)
    ended = 0
    for _ in range(25):
        text = walk(grammar, rng, 120)
        if text is None:
            continue
        ended += 1
        document = json.loads(text.decode(), object_pairs_hook=without_duplicates)
        validator.validate(document)
        second.validate(document)
    assert ended >= 5


@pytest.mark.parametrize("max_whitespace", [2, 16])
@pytest.mark.parametrize("name", SCHEMAS)
def test_the_mask_is_what_trying_every_token_says(
    name: str, max_whitespace: int, awkward_vocabulary: lg.Vocabulary
) -> None:
    grammar = lg.compile_json_schema(SCHEMAS[name], awkward_vocabulary, max_whitespace=max_whitespace)
    rng = random.Random(name)

    def check(matcher: lg.Matcher, allowed: list[int]) -> None:
        assert allowed == [t for t in range(len(awkward_vocabulary)) if matcher.allows(t)]

    for _ in range(4):
        walk(grammar, rng, 40, check)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_allowed_token_can_be_finished(name: str, bytes_vocabulary: lg.Vocabulary) -> None:
    # A thread exists only while some document continues it: so each allowed byte must again allow something.
    grammar = lg.compile_json_schema(SCHEMAS[name], bytes_vocabulary, whitespace="compact")
    rng = random.Random(name)

    def check(matcher: lg.Matcher, allowed: list[int]) -> None:
        for token in allowed:
            fork = matcher.fork()
            fork.accept(token)
            assert fork.has_ended or mask_bits(fork)

    for _ in range(3):
        walk(grammar, rng, 60, check)


def test_forks_and_rollbacks_are_like_a_fresh_matcher(awkward_vocabulary: lg.Vocabulary) -> None:
    rng = random.Random(5)
    for schema in SCHEMAS.values():
        grammar = lg.compile_json_schema(schema, awkward_vocabulary, max_whitespace=2)
        matcher = grammar.matcher()
        history: list[int] = []
        for _ in range(30):
            action = rng.random()
            if action < 0.2 and history:
                n = rng.randint(1, len(history))
                matcher.rollback(n)
                del history[-n:]
            elif action < 0.4:
                parent, matcher = matcher, matcher.fork()
                allowed = [t for t in mask_bits(parent) if t not in awkward_vocabulary.end_ids]
                if allowed:
                    parent.accept(rng.choice(allowed))
            else:
                allowed = [t for t in mask_bits(matcher) if t not in awkward_vocabulary.end_ids]
                if not allowed:
                    break
                history.append(rng.choice(allowed))
                matcher.accept(history[-1])
            fresh = grammar.matcher()
            for token in history:
                fresh.accept(token)
            assert matcher.tokens == history
            assert mask_bits(matcher) == mask_bits(fresh)
            assert mask_bits(grammar.restore(matcher.serialize())) == mask_bits(fresh)


def test_forced_tokens_are_the_only_choice(awkward_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_json_schema({"const": {"kind": [1]}}, awkward_vocabulary, whitespace="compact")
    matcher = grammar.matcher()
    # Behind the quote a letter may also be written as an escape, so no more than this is forced.
    assert matcher.forced_bytes() == b'{"'
    assert matcher.forced_tokens() == []  # '{' and '{"' both begin it
    matcher.accept(next(t for t in mask_bits(matcher) if awkward_vocabulary.bytes_of(t) == b"{"))
    for token in matcher.forced_tokens():
        assert mask_bits(matcher) == [token]
        matcher.accept(token)


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (b'"a"', True),
        (b'"\\u0061"', True),
        (b'"\\ud83d\\ude00"', True),
        (b'"\xf0\x9f\x98\x80"', True),
        (b'"\\ud83d"', False),
        (b'"\xf0\x9f\x98"', False),
        (b'"\xc0\x80"', False),
        (b'"\xed\xa0\x80"', False),
        (b'"\\x"', False),
        (b'"ab"', False),
        (b'"\\ud83d\\ude00a"', False),
        (b'"\n"', False),
        (b'"\\n"', True),
    ],
)
def test_lengths_are_code_points_and_strings_are_unicode(
    text: bytes, valid: bool, bytes_vocabulary: lg.Vocabulary
) -> None:
    grammar = lg.compile_json_schema({"type": "string", "minLength": 1, "maxLength": 1}, bytes_vocabulary)
    assert accepts(grammar, text) is valid


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, ["1", "-0", "1.0", "10"], ["1.5", "01", "+1", "1."]),
        ({"type": "integer", "$schema": "http://json-schema.org/draft-04/schema#"}, ["1"], ["1.0"]),
        ({"minimum": 0.1, "type": "number"}, ["0.1", "0.10", "1", "100"], ["0.09", "0", "-1", "0.0999"]),
        ({"exclusiveMaximum": -2, "type": "number"}, ["-2.01", "-3", "-100"], ["-2", "-2.0", "-1.9", "0"]),
        ({"multipleOf": 0.01, "type": "number"}, ["0.1", "19.99", "-3", "1.230"], ["0.001", "1.234"]),
        ({"multipleOf": 7, "type": "integer", "minimum": 10**20}, ["100000000000000000005"], ["100000000000000000004", "7"]),
        ({"const": 1.0}, ["1", "1.0"], ["2", "1.5"]),
    ],
)  # fmt: skip
def test_numbers_are_exact_decimals(
    schema: Any, good: list[str], bad: list[str], bytes_vocabulary: lg.Vocabulary
) -> None:
    grammar = lg.compile_json_schema(schema, bytes_vocabulary)
    assert [t for t in good if not accepts(grammar, t.encode())] == []
    assert [t for t in bad if accepts(grammar, t.encode())] == []


def test_special_tokens_never_match_by_spelling(awkward_vocabulary: lg.Vocabulary) -> None:
    matcher = lg.compile_json_schema({"type": "string"}, awkward_vocabulary).matcher()
    quote = next(t for t in mask_bits(matcher) if awkward_vocabulary.bytes_of(t) == b'"')
    matcher.accept(quote)
    allowed = {awkward_vocabulary.bytes_of(t) for t in mask_bits(matcher)}
    assert b"<s>" in allowed  # the ordinary token with these bytes
    specials = range(len(awkward_vocabulary) - 3, len(awkward_vocabulary))
    assert not any(matcher.allows(t) for t in specials)


def test_the_local_part_of_an_address_has_its_limit(bytes_vocabulary: lg.Vocabulary) -> None:
    grammar = lg.compile_json_schema({"type": "string", "format": "email"}, bytes_vocabulary)
    assert accepts(grammar, b'"' + b"a" * 64 + b'@example.com"')
    assert not accepts(grammar, b'"' + b"a" * 65 + b'@example.com"')
