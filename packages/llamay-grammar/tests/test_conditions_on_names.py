"""Conditions on the names of members, against jsonschema on every small document."""

from __future__ import annotations

import itertools
import json
import random
from fractions import Fraction
from typing import Any

import pytest
from helpers import accepts, walk

import llamay_grammar as lg

jsonschema = pytest.importorskip("jsonschema")

NAMES = ["1", "2", "3", "4"]
DOCUMENTS: list[dict[str, Any]] = [
    dict(zip(names, values, strict=True))
    for size in range(4)
    for names in itertools.combinations(NAMES, size)
    for values in itertools.product([0, "x"], repeat=size)
]


def exact(text: str) -> float:
    """A number of which jsonschema sees whether it is an integer: as a float, many fractions would be one."""
    value = Fraction(text)
    return int(value) if value.denominator == 1 else 0.5


def demand(rng: random.Random, depth: int = 1) -> dict[str, Any]:
    """A condition that some member's name or value has to meet, or one of two such conditions."""
    some = rng.sample(NAMES, rng.randint(1, 3))
    value = rng.choice([False, {"type": "integer"}, {"type": "string"}])
    kinds = [
        {"not": {"propertyNames": {"not": {"enum": some}}}},
        {"not": {"propertyNames": {"enum": some}}},
        {"not": {"additionalProperties": value, "properties": dict.fromkeys(some, True)}},
        {"not": {"patternProperties": {"^[" + "".join(some) + "]$": value}}},
        {"not": {"patternProperties": {some[0]: value}}},
        {"not": {"properties": {some[0]: value}}},
        {"required": [some[0]]},
    ]
    if depth and rng.random() < 0.3:
        return {"anyOf": [demand(rng, 0), demand(rng, 0)]}
    return rng.choice(kinds)


def schema_of(rng: random.Random) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "allOf": [demand(rng) for _ in range(rng.randint(1, 4))]}
    if rng.random() < 0.7:
        schema["maxProperties"] = rng.randint(1, 3)
    if rng.random() < 0.2:
        schema["minProperties"] = rng.randint(1, 3)
    if rng.random() < 0.2:
        schema["properties"] = {rng.choice(NAMES): {"type": "integer"}}
    if rng.random() < 0.2:
        schema["propertyNames"] = rng.choice([{"enum": NAMES[:3]}, {"pattern": "^[1-3]$"}, {"maxLength": 2}])
    return schema


def test_one_member_may_meet_several_conditions(bytes_vocabulary: lg.Vocabulary) -> None:
    schema = {
        "type": "object",
        "maxProperties": 1,
        "allOf": [{"not": {"propertyNames": {"not": {"enum": names}}}} for names in (["1", "3"], ["2", "3"])],
    }
    grammar = lg.compile_json_schema(schema, bytes_vocabulary)
    assert [d for d in DOCUMENTS if accepts(grammar, json.dumps(d).encode())] == [{"3": 0}, {"3": "x"}]


def test_an_alternative_in_which_one_member_meets_several_conditions_is_kept(
    bytes_vocabulary: lg.Vocabulary,
) -> None:
    both = {
        "allOf": [{"not": {"propertyNames": {"not": {"enum": names}}}} for names in (["1", "3"], ["2", "3"])]
    }
    schema = {"type": "object", "maxProperties": 1, "anyOf": [both, {"required": ["4"]}]}
    grammar = lg.compile_json_schema(schema, bytes_vocabulary)
    assert accepts(grammar, b'{"3": 0}')
    assert accepts(grammar, b'{"4": 0}')
    assert not accepts(grammar, b'{"1": 0}')


def test_one_member_whose_name_has_two_patterns_is_not_overlooked(bytes_vocabulary: lg.Vocabulary) -> None:
    # The names are endless here, so that the refusal may stay; but never with the words that no document exists.
    schema = {
        "type": "object",
        "maxProperties": 1,
        "allOf": [{"not": {"patternProperties": {pattern: False}}} for pattern in ("^a", "b$")],
    }
    with pytest.raises(lg.CompileError, match="together with maxProperties"):
        lg.compile_json_schema(schema, bytes_vocabulary)


@pytest.mark.parametrize("seed", range(8))
def test_small_documents_are_accepted_as_jsonschema_accepts_them(
    seed: int, bytes_vocabulary: lg.Vocabulary
) -> None:
    rng = random.Random(seed)
    compiled = 0
    for _ in range(40):
        schema = schema_of(rng)
        validator = jsonschema.Draft202012Validator(schema)
        valid = [d for d in DOCUMENTS if validator.is_valid(d)]
        refusal = None
        try:
            grammar = lg.compile_json_schema(schema, bytes_vocabulary, whitespace="compact")
        except lg.CompileError as error:
            refusal = error
        if refusal is not None:
            nothing = "no document" in str(refusal)
            assert valid == [] if nothing else refusal.keyword in {"not", "budget"}, schema
            continue
        compiled += 1
        text = {json.dumps(d): json.dumps(d, separators=(",", ":")).encode() for d in DOCUMENTS}
        assert [d for d in DOCUMENTS if accepts(grammar, text[json.dumps(d)])] == valid, schema
        for _ in range(3):  # a walk fails at a dead end
            found = walk(grammar, rng, 60)
            if found is not None:
                validator.validate(json.loads(found, parse_float=exact))
    assert compiled >= 20


@pytest.mark.parametrize("seed", range(4))
def test_declared_names_that_can_no_longer_come_meet_no_condition(
    seed: int, bytes_vocabulary: lg.Vocabulary
) -> None:
    rng = random.Random(seed)
    compiled = 0
    for _ in range(60):
        schema = schema_of(rng)
        schema["properties"] = {name: {} for name in rng.sample(NAMES, 2)}
        try:
            grammar = lg.compile_json_schema(
                schema, bytes_vocabulary, whitespace="compact", property_order="schema"
            )
        except lg.CompileError:
            continue
        compiled += 1
        for _ in range(4):  # a walk fails at a dead end
            found = walk(grammar, rng, 60)
            if found is not None:
                document = json.loads(found, parse_float=exact)
                jsonschema.validate(document, schema)
                declared = [name for name in document if name in schema["properties"]]
                assert declared == [name for name in schema["properties"] if name in document]
    assert compiled >= 20
