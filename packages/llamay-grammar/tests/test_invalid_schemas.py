"""A keyword whose value has a type that no metaschema allows is an error with its place, never ignored."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import accepts

import llamay_grammar as lg

STRING, NUMBER, BOOLEAN, LIST, MAPPING, NOTHING = "x", 5, True, ["a"], {"a": {}}, None
EVERYTHING = (STRING, NUMBER, BOOLEAN, LIST, MAPPING, NOTHING)

# The keywords and the types that their values may have, where no draft is stated.
ALLOWED: dict[tuple[type, ...], str] = {
    (str,): "$schema $id $ref $anchor $dynamicRef $dynamicAnchor pattern format",
    (
        int,
    ): "multipleOf minimum maximum minLength maxLength minItems maxItems minContains maxContains minProperties "
    "maxProperties",
    (int, bool): "exclusiveMinimum exclusiveMaximum",
    (bool,): "uniqueItems",
    (list,): "enum required",
    (str, list): "type",
    (
        dict,
        bool,
    ): "contains additionalItems additionalProperties propertyNames unevaluatedItems unevaluatedProperties "
    "not if then else",
    (dict, bool, list): "items",
    (dict,): "$defs definitions properties patternProperties dependencies dependentSchemas dependentRequired",
    (): "allOf anyOf oneOf prefixItems",  # arrays, but not of strings
}
WRONG = [
    (keyword, value)
    for types, keywords in ALLOWED.items()
    for keyword in keywords.split()
    for value in EVERYTHING
    if type(value) not in types
]


@pytest.mark.parametrize(("keyword", "value"), WRONG, ids=[f"{k}-{v!r}" for k, v in WRONG])
def test_a_value_of_a_wrong_type_is_refused_with_its_place(
    keyword: str, value: Any, bytes_vocabulary: lg.Vocabulary
) -> None:
    schema = {"properties": {"a/b": {keyword: value}}}
    with pytest.raises(lg.CompileError) as caught:
        lg.compile_json_schema(schema, bytes_vocabulary)
    assert caught.value.keyword == keyword
    assert (caught.value.pointer or "").startswith(f"/properties/a~1b/{keyword}")
    # The mode that leaves out what it cannot enforce says so, or refuses it as well.
    for mode in ("approximate", "annotate"):
        try:
            grammar = lg.compile_json_schema(schema, bytes_vocabulary, mode=mode)  # type: ignore[arg-type]
        except lg.CompileError:
            continue
        assert [w for w in grammar.warnings if w.startswith(f"/properties/a~1b/{keyword}")]


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"type": "string", "required": True}}}, "/properties/a/required"),
        ({"properties": {"a": 5}}, "/properties/a"),
        ({"items": [{}, 5]}, "/items/1"),
        ({"anyOf": [{}, "x"]}, "/anyOf/1"),
        ({"dependentRequired": {"a": {}}}, "/dependentRequired/a"),
        ({"dependencies": {"a": "b"}}, "/dependencies/a"),
        ({"required": ["a", 5]}, "/required"),
        ({"type": ["string", 5]}, "/type"),
        ({"minLength": 1.5}, "/minLength"),
        ({"exclusiveMinimum": 5, "$schema": "http://json-schema.org/draft-04/schema#"}, "/exclusiveMinimum"),
        (
            {"exclusiveMinimum": True, "$schema": "http://json-schema.org/draft-07/schema#"},
            "/exclusiveMinimum",
        ),
        # What is not read otherwise: definitions without a reference, keywords without their companion.
        ({"$defs": {"a": {"items": {"minLength": "3"}}}}, "/$defs/a/items/minLength"),
        ({"definitions": {"a": 5}}, "/definitions/a"),
        ({"if": {"not": {"pattern": 5}}}, "/if/not/pattern"),
        ({"then": {"enum": 5}}, "/then/enum"),
        ({"additionalItems": {"format": 5}}, "/additionalItems/format"),
    ],
)
def test_a_wrong_type_is_found_wherever_it_stands(
    schema: dict[str, Any], pointer: str, bytes_vocabulary: lg.Vocabulary
) -> None:
    with pytest.raises(lg.CompileError) as caught:
        lg.compile_json_schema(schema, bytes_vocabulary)
    assert caught.value.pointer == pointer


def test_the_form_of_draft_3_is_explained(bytes_vocabulary: lg.Vocabulary) -> None:
    with pytest.raises(lg.CompileError, match=r"draft 3.*beside"):
        lg.compile_json_schema({"properties": {"a": {"required": True}}}, bytes_vocabulary)


def test_annotations_and_keywords_of_other_drafts_are_not_judged(bytes_vocabulary: lg.Vocabulary) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": 5,
        "description": [],
        "if": 5,
        "contains": "x",
        "x-anything": None,
        "properties": {"required": {"type": "boolean"}},
    }
    grammar = lg.compile_json_schema(schema, bytes_vocabulary)
    assert accepts(grammar, b'{"required": true}')
    assert not accepts(grammar, b'{"required": 1}')
