"""What is no model, context, conversation or tool is told as such, with what to give instead."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import llamay
from llamay_models.chat import ChatTemplateError

MODEL: Any = SimpleNamespace(chat_template=None, tokenizer=None)
CONTEXT: Any = SimpleNamespace(
    model=SimpleNamespace(chat_template=None, encode=lambda *_, **__: [1, 2]), tokens=[]
)
ASKED: Any = [{"role": "user", "content": "Hello"}]
CALLED = {"role": "assistant", "content": ""}


@pytest.mark.parametrize("tools", [None, {"name": "get"}, 3])
def test_tools_that_are_no_list_are_refused_by_name(tools: Any) -> None:
    for use in (lambda: llamay.prompt(MODEL, ASKED, tools), lambda: llamay.reader(CONTEXT, tools)):
        kind = "None" if tools is None else type(tools).__name__
        with pytest.raises(ValueError, match=rf"^tools must be a list .*empty.*, not {kind}$"):
            use()


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        (None, "tool 1 is a NoneType, not an object with a name"),
        ({}, "tool 1 has no name"),
        ({"name": "b", "parameters": "x"}, "the parameters of tool 1 are a str, not a JSON schema"),
    ],
)
def test_what_is_no_tool_is_refused_by_its_number(tool: Any, message: str) -> None:
    for use in (
        lambda: llamay.prompt(MODEL, ASKED, [{"name": "a"}, tool]),
        lambda: llamay.reader(CONTEXT, [{"name": "a"}, tool]),
    ):
        with pytest.raises(ValueError, match=message):
            use()


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (None, r"messages must be a list of items like \{'role'.*, not None"),
        ("Hello", r"messages\[0\] is a str, not an object with 'role' and 'content'"),
        (ASKED[0], "messages must be a list .*, not dict"),
        ([*ASKED, "Hello"], r"messages\[1\] is a str, not an object with 'role' and 'content'"),
        ([{"content": "Hello"}], r"messages\[0\].role must be a string such as 'user'"),
        ([{**CALLED, "tool_calls": "get"}], r"messages\[0\].tool_calls is a str, not a list of calls"),
        (
            [{**CALLED, "tool_calls": [{}]}],
            r"messages\[0\].tool_calls\[0\] has no function with a name; give",
        ),
        ([{"role": "tool"}], r"messages\[0\].content is missing"),
    ],
)
def test_what_is_no_conversation_is_refused_where_it_is_none(messages: Any, message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        llamay.prompt(MODEL, messages, [{"name": "get"}])


def test_what_is_no_model_and_no_context_is_told_with_where_they_come_from() -> None:
    for wrong in (None, "model.gguf"):
        kind = "None" if wrong is None else "a str"
        with pytest.raises(TypeError, match=rf"model is {kind}; give a model, as llamay.load"):
            llamay.prompt(wrong, ASKED)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=rf"model is {kind}; give a model, as llamay.load"):
            llamay.vocabulary(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=rf"context is {kind}; give a context, as model.context"):
            llamay.reader(wrong)  # type: ignore[arg-type]
