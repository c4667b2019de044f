"""What a request asks for is compiled as everywhere else: the very grammar that `llamay_models.constraints` gives."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from byte_model import byte_model, writes

import llamay_grammar
from llamay_models.constraints import compile_constraint
from llamay_server.engine.constraint import Kind, OutputConstraint, UnsupportedConstraintError
from llamay_server.engine.grammar import compile_output

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
TOOLS = [{"type": "function", "function": {"name": "get", "parameters": SCHEMA}}]
MARKS = ("<think>", "</think>", True)
CALLS = {"tools": TOOLS, "format": "llama3", "choice": "get", "parallel": False, "answer": None}


@pytest.mark.parametrize(
    ("wanted", "arguments"),
    [
        (OutputConstraint("json_schema", SCHEMA, "f"), {"schema": SCHEMA}),
        (OutputConstraint("json_schema", True, "f"), {"schema": True}),
        (
            OutputConstraint("json_schema", SCHEMA, "f", free_form=True, reasoning=MARKS),
            {"schema": SCHEMA, "free_form": True, "reasoning": MARKS},
        ),
        (OutputConstraint("json_object", None, "f"), {"schema": {"type": "object"}}),
        (OutputConstraint("regex", "a+b", "f"), {"regex": "a+b"}),
        (OutputConstraint("grammar", 'root ::= "a"', "f"), {"grammar": 'root ::= "a"'}),
        (
            OutputConstraint("tools", {**CALLS, "strict": True}, "f", reasoning=MARKS),
            {**CALLS, "reasoning": MARKS},
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, OutputConstraint) else "",
)
def test_a_constraint_is_the_grammar_that_the_engine_makes_of_it(
    wanted: OutputConstraint, arguments: dict[str, Any]
) -> None:
    model = byte_model()
    assert compile_output(model, wanted) is compile_constraint(model, llamay_grammar, **arguments)


def test_a_json_object_is_the_one_of_the_grammar_package() -> None:
    compiled = compile_output(byte_model(), OutputConstraint("json_object", None, "f"))
    assert writes(compiled, '{"a": [1, {}]}')
    assert not writes(compiled, "[")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("json_schema", None),
        ("json_schema", {"type": "string", "pattern": r"(a)\1"}),
        ("json_schema", False),
        ("regex", "("),
        ("grammar", "root"),
    ],
)
def test_what_the_compiler_refuses_is_refused_in_its_words(kind: Kind, value: Any) -> None:
    with pytest.raises(UnsupportedConstraintError) as refused:
        compile_output(byte_model(), OutputConstraint(kind, value, "f"))
    compile_it = {
        "json_schema": llamay_grammar.compile_json_schema,
        "regex": llamay_grammar.compile_regex,
        "grammar": llamay_grammar.compile_gbnf,
    }[kind]
    vocabulary = llamay_grammar.Vocabulary([bytes([i]) for i in range(256)], end=[])
    with pytest.raises(llamay_grammar.CompileError) as error:
        compile_it(value, vocabulary)
    assert str(refused.value) == str(error.value)


def test_a_schema_that_is_nested_without_end_is_refused_and_not_an_internal_error() -> None:
    schema: Any = {}
    for _ in range(20_000):
        schema = {"items": schema}
    for wanted in (
        OutputConstraint("json_schema", schema, "f"),
        OutputConstraint("tools", {**CALLS, "strict": True, "answer": schema}, "f"),
    ):
        with pytest.raises(UnsupportedConstraintError):
            compile_output(byte_model(), wanted)


def test_what_is_left_out_of_tools_that_are_not_strict_is_told() -> None:
    odd = {"type": "object", "properties": {"x": {"type": "string", "pattern": r"(a)\1"}}}
    tools = [{"type": "function", "function": {"name": "get", "parameters": odd}}]
    wanted = OutputConstraint("tools", {**CALLS, "tools": tools, "strict": False}, "tools")
    assert "pattern" in compile_output(byte_model(), wanted).warnings[0]
    with pytest.raises(UnsupportedConstraintError, match="pattern"):
        compile_output(byte_model(), replace(wanted, value={**wanted.value, "strict": True}))


def test_a_model_without_a_tokenizer_constrains_nothing() -> None:
    bare: Any = SimpleNamespace(tokenizer=None, vocab_size=0)
    with pytest.raises(UnsupportedConstraintError, match="no tokenizer, so the output cannot be constrained"):
        compile_output(bare, OutputConstraint("regex", "a", "regex"))
