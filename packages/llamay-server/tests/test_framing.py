"""What a request binds of an answer, and what models are told of tools that their templates do not describe."""

# ruff: noqa: RUF001 - DeepSeek's marks have full-width bars

from __future__ import annotations

from typing import Any

import pytest

from llamay_models.answers import Finished, Reasoning, Text
from llamay_server._chat import ChatRequest, Framing, Rendered
from llamay_server._options import Bound
from llamay_server._protocol import Prompt
from llamay_server._tools import Tool, Toolbox, system_text

MARKS = ("<think>", "</think>")


def framing(bound: Bound | None, *, begun: bool = True, think: bool | None = None, **more: Any) -> Framing:
    request = ChatRequest([], {}, bound=bound, think=think, **more)
    return Framing.of(request, Rendered(Prompt("", []), in_thought=begun), "hermes", MARKS)


def test_what_a_model_thinks_is_free_and_what_it_answers_then_is_bound() -> None:
    schema = Bound("json_schema", {"type": "integer"}, "format")
    for begun in (True, False):
        bound = framing(schema, begun=begun).bound
        assert bound is not None
        assert bound.kind == "after_thoughts"
        assert bound.value["thoughts"] == (*MARKS, begun)
    parser = framing(schema).parser(0)
    events = [*parser.feed("why not</think>\n\n7"), *parser.finish("stop", None)]
    assert [type(e) for e in events] == [Reasoning, Text, Finished]
    assert framing(schema, begun=False, think=False).bound == schema

    demanded = framing(None, box=Toolbox((Tool("get", "", {}),), "required")).bound
    assert demanded is not None
    assert demanded.value["thoughts"] == (*MARKS, True)


def test_an_expression_binds_from_the_first_character_so_nothing_of_it_is_a_thought() -> None:
    parser = framing(Bound("regex", "[ab]+", "regex")).parser(0)
    events = [*parser.feed("ab"), *parser.finish("stop", None)]
    assert [type(e) for e in events] == [Text, Finished]


@pytest.mark.parametrize(
    ("form", "example"),
    [
        ("hermes", '<tool_call>{"name": "the function", "arguments": {...}}</tool_call>'),
        ("deepseek-v3.1", "<｜tool▁call▁begin｜>the function<｜tool▁sep｜>{...}"),
        ("functionary", "<function=the function>{...}</function>"),
        ("qwen3-coder", "<parameter=its name>\nits value\n</parameter>"),
        ("minimax-m2", '<parameter name="its name">its value</parameter>'),
    ],
)
def test_a_model_whose_template_describes_no_tools_is_told_its_own_way_to_call_them(
    form: str, example: str
) -> None:
    assert example in system_text(Toolbox((Tool("get", "", {}),), "auto"), form)
