"""`property_order="schema"`: members stand as the schema declares them, not as their names sort."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

import llamay_grammar as lg

WORDS = lg.Vocabulary([*(bytes([b]) for b in range(256)), b"</s>"], special=[256], end=[256])
Z_A = {"properties": {"z": {"type": "integer"}, "a": {"type": "integer"}}}
A_Z = {"properties": {"a": {"type": "integer"}, "z": {"type": "integer"}}}


def written(grammar: lg.Grammar, value: Any) -> bool:
    matcher = grammar.matcher()
    for byte in json.dumps(value, separators=(",", ":")).encode():
        if not matcher.allows(byte):
            return False
        matcher.accept(byte)
    return matcher.is_complete


def compiled(schema: Any, order: Any = "schema") -> lg.Grammar:
    return lg.compile_json_schema(schema, WORDS, property_order=order, whitespace="compact")


@pytest.mark.parametrize("value", [{}, {"type": "integer"}, {"type": ["integer", "null"]}], ids=str)
@pytest.mark.parametrize("names", list(itertools.permutations("zam")), ids="".join)
def test_members_stand_as_they_are_declared(names: Any, value: Any) -> None:
    schema = {"type": "object", "properties": dict.fromkeys(names, value)}
    ordered, free = compiled(schema), compiled(schema, "any")
    for n in range(4):
        for some in itertools.permutations(names, n):
            document = dict.fromkeys(some, 1)
            assert written(free, document)
            assert written(ordered, document) == (list(some) == [x for x in names if x in some]), some


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"type": "object", "required": ["z", "a"]}, [{"z": 1, "a": 1, "q": 1}], [{"a": 1, "z": 1}]),
        (Z_A, [{"z": 1, "q": 1}, {"a": 1, "q": 1}], [{"q": 1, "z": 1}]),
        (
            {"const": {"z": 1, "a": {"y": 1, "b": 2}}},
            [{"z": 1, "a": {"y": 1, "b": 2}}],
            [{"z": 1, "a": {"b": 2, "y": 1}}],
        ),
        ({"enum": [{"z": 1, "a": 1}, {"a": 2, "z": 2}]}, [{"a": 2, "z": 2}], [{"a": 1, "z": 1}]),
        (
            {"properties": {"x": Z_A, "y": A_Z}},
            [{"x": {"z": 1, "a": 1}, "y": {"a": 1, "z": 1}}],
            [{"x": {"a": 1, "z": 1}}, {"y": {"z": 1, "a": 1}}],
        ),
        (
            {
                "oneOf": [
                    {"properties": {"k": {"const": k}, **each["properties"]}, "required": ["k"]}
                    for k, each in ((1, Z_A), (2, A_Z))
                ]
            },
            [{"k": 1, "z": 1, "a": 1}, {"k": 2, "a": 1, "z": 1}],
            [{"k": 1, "a": 1, "z": 1}, {"k": 2, "z": 1, "a": 1}],
        ),
        (
            {"$ref": "#/$defs/z", "$defs": {"z": Z_A}, "unevaluatedProperties": False},
            [{"z": 1, "a": 1}],
            [{"a": 1, "z": 1}],
        ),
        ({**Z_A, "patternProperties": {"^z": {"maximum": 5}}}, [{"z": 1, "a": 1}], [{"a": 1, "z": 1}]),
    ],
)
def test_every_schema_keeps_its_own_order(schema: Any, fits: Any, does_not: Any) -> None:
    grammar = compiled(schema)
    for document in fits:
        assert written(grammar, document), document
    for document in does_not:
        assert not written(grammar, document), document


def test_tools_of_the_same_arguments_keep_their_own_orders() -> None:
    tools = [
        {"name": name, "parameters": {"type": "object", **each}} for name, each in (("f", Z_A), ("g", A_Z))
    ]
    grammar = lg.compile_tools(tools, WORDS, format="generic", choice="required", property_order="schema")
    for name, order in (("f", "za"), ("g", "az")):
        for names in (order, order[::-1]):
            text = json.dumps({"name": name, "arguments": dict.fromkeys(names, 1)})
            matcher = grammar.matcher()
            fits = True
            for byte in text.encode():
                if not (fits := matcher.allows(byte)):
                    break
                matcher.accept(byte)
            assert fits == (names == order), text
