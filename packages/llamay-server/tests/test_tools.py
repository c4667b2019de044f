"""What a tool's schema means for a call that a grammar writes."""

from __future__ import annotations

from typing import Any

import pytest
from byte_model import byte_model, writes

from llamay_models.constraints import closed_schema
from llamay_server.chat.tools import Tool, Toolbox
from llamay_server.engine.constraint import OutputConstraint
from llamay_server.engine.grammar import compile_output

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
CALL_OF_CITY = '<tool_call>\n{"name": "weather", "arguments": {"city": "'
CALL_OF_ZIP = '<tool_call>\n{"name": "weather", "arguments": {"zip": '


@pytest.mark.parametrize(
    "said",
    [
        {"additionalProperties": True},
        {"additionalProperties": {"type": "string"}},
        {"patternProperties": {"^x": {}}},
        {"allOf": [{"properties": {"zip": {}}}]},
        {"$ref": "#/$defs/more"},
    ],
)
def test_an_object_that_says_more_stays_as_open_as_it_says(said: dict[str, Any]) -> None:
    assert closed_schema({**CITY, **said}) == {**CITY, **said}


def test_arguments_are_closed_at_every_depth_and_free_objects_stay_free() -> None:
    schema = {
        "type": "object",
        "properties": {
            "places": {"type": "array", "items": CITY},
            "one": {"anyOf": [CITY, {"type": "null"}]},
            "any": {"type": "object"},
        },
    }
    shut = closed_schema(schema)
    assert shut["additionalProperties"] is False
    assert shut["properties"]["places"]["items"]["additionalProperties"] is False
    assert shut["properties"]["one"]["anyOf"][0]["additionalProperties"] is False
    assert shut["properties"]["any"] == {"type": "object"}
    assert "additionalProperties" not in schema


def test_an_optional_call_is_bound_in_its_form_alone_and_only_where_nothing_else_binds_it() -> None:
    box = Toolbox((Tool("weather", "", CITY),), "auto")
    assert box.constraint("hermes", None) is None

    loose = box.constraint("hermes", None, optional=True)
    strict = Toolbox((Tool("weather", "", CITY, strict=True),), "auto").constraint(
        "hermes", None, optional=True
    )
    document = box.constraint(
        "hermes", OutputConstraint("json_schema", CITY, "response_format"), optional=True
    )

    parameters = [
        found.value["tools"][0]["function"]["parameters"]
        for found in (loose, strict, document)
        if found is not None
    ]
    assert parameters == [{"type": "object"}, CITY, CITY]
    assert [
        writes(compile_output(byte_model(), found), CALL_OF_ZIP) for found in (loose, strict, document)
    ] == [
        True,
        False,
        False,
    ]
    assert loose is not None
    assert (loose.value["choice"], loose.value["strict"]) == ("auto", False)


def test_oa26_a_grammar_knows_the_described_arguments_only_and_the_template_the_schema_itself() -> None:
    box = Toolbox((Tool("weather", "", CITY),), "required")
    found = box.constraint("hermes", None)
    assert isinstance(found, OutputConstraint)
    compiled = compile_output(byte_model(), found)
    assert writes(compiled, CALL_OF_CITY)
    assert not writes(compiled, CALL_OF_ZIP)
    assert box.tools[0].as_openai()["function"]["parameters"] == CITY
