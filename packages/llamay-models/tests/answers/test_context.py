"""What a context's model writes next is read as its chat template tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from llamay_models.answers import (
    Answer,
    ArgumentsPart,
    CallBegun,
    ContextReader,
    Finished,
    Text,
    ToolCall,
    schemas_of,
)

from .made_formats import MADE

TOOL = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}
CALL = '<call>{"name": "get", "arguments": {"a": 1}}</call>'


class Model:
    """One token for each character; those of `names` are tokens of their own."""

    def __init__(self, template: str | None, names: Sequence[str] = ()) -> None:
        self.chat_template = None if template is None else SimpleNamespace(source=template)
        self.names = list(names)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(map(chr, tokens))

    def encode(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        assert (add_special, parse_special) == (False, True)
        return [1000 + self.names.index(text)] if text in self.names else [ord(c) for c in text]


class Generation:
    finish_reason, stop_sequence = "stop", None

    def __init__(self, text: str) -> None:
        self.text = text

    def __iter__(self) -> Iterator[Any]:
        return (SimpleNamespace(text=character) for character in self.text)


def reader(template: str | None, prompt: str, tools: Any = (), names: Sequence[str] = ()) -> ContextReader:
    context: Any = SimpleNamespace(model=Model(template, names), tokens=[ord(c) for c in prompt])
    return ContextReader(context, tools, formats=MADE)


def read(reader: ContextReader, text: str) -> Answer:
    generation: Any = Generation(text)
    return reader.answer(generation)


def test_the_prompt_says_whether_reasoning_has_begun() -> None:
    for prompt, text in (("hi<think>\n", "hm</think>Yes."), ("hi", "<think>hm</think>Yes.")):
        made = reader("<think>", prompt)
        assert made.in_reasoning == prompt.endswith("\n")
        assert read(made, text) == Answer("Yes.", "hm", (), "stop")


def test_a_model_without_a_template_just_writes() -> None:
    made = reader(None, "hi<think>")

    assert (made.form, made.reasoning, made.special) == ("hermes", None, [])
    assert read(made, "<think>hm</think>Yes.").text == "<think>hm</think>Yes."


def test_calls_are_read_and_events_come_as_the_text_does() -> None:
    made = reader("{{ tools }}", "hi", [TOOL])
    generation: Any = Generation(f"Well. {CALL}")
    events = list(made.events(generation))

    assert "".join(e.text for e in events if isinstance(e, Text)).rstrip() == "Well."
    assert [(e.name, e.arguments) for e in events if isinstance(e, ToolCall)] == [("get", '{"a":1}')]
    assert isinstance(events[-1], Finished)
    answer = read(reader("{{ tools }}", "hi", [TOOL]), CALL)
    assert (answer.text, len(answer.calls), answer.finish_reason) == ("", 1, "tool_calls")


def test_calls_come_in_parts_where_a_grammar_binds_them() -> None:
    context: Any = SimpleNamespace(model=Model("{{ tools }}", ()), tokens=[])
    generation: Any = Generation(CALL)
    events = list(ContextReader(context, [TOOL], formats=MADE, bound=True).events(generation))

    assert [type(e) for e in events] == [CallBegun, *[ArgumentsPart] * 5, ToolCall, Finished]
    assert "".join(e.text for e in events if isinstance(e, ArgumentsPart)) == '{"a":1}'


def test_the_control_tokens_of_calls_are_visible_where_there_are_tools() -> None:
    names = ["<call>", "<think>"]

    assert reader("{{ tools }}<think>", "", [TOOL], names).special == [1000, 1001]
    assert reader("{{ tools }}<think>", "", (), names).special == [1001]


def test_tools_come_in_the_forms_that_the_grammar_takes() -> None:
    plain = {"name": "b", "input_schema": {"properties": {}}}

    assert schemas_of([TOOL, plain, {"name": "c"}]) == {
        "get": {"type": "object"},
        "b": {"properties": {}},
        "c": {"type": "object"},
    }
    with pytest.raises(ValueError, match="tool 1 has no name"):
        schemas_of([TOOL, {"type": "function", "function": {}}])
    with pytest.raises(ValueError, match="tool 0 is a str, not an object with a name"):
        schemas_of("get")  # type: ignore[arg-type]


def test_what_the_prompt_has_already_written_of_the_answer_is_no_part_of_it() -> None:
    template = "{{ tools }}>>>all"

    for prompt in ("hi>>", "hi"):
        assert read(reader(template, prompt, [TOOL]), "all\nHello").text == (
            "Hello" if ">" in prompt else "all\nHello"
        )
    (call,) = read(reader(template, "hi>>", [TOOL]), 'get\n{"a": 1}').calls
    assert (call.name, call.arguments) == ("get", '{"a":1}')
