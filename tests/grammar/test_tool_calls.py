"""Tool calls are read back from every format that models write, however the text comes in parts."""

# ruff: noqa: RUF001 - DeepSeek's marks have full-width bars

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamay_grammar
from llamay_grammar import tool_formats
from llamay_models.answers import (
    Finished,
    Reader,
    Reasoning,
    Text,
    ToolCall,
    envelope,
    format_of,
    system_text,
)

from .call_texts import FORMATS, OBJECTS, Call, around, cut, events_and_reads, written

TOOLS: dict[str, Any] = {"get": {}, "put_it": {}}


def reader(form: str = "hermes", **more: Any) -> Reader:
    return Reader(TOOLS, formats=llamay_grammar, form=form, **more)


def read(form: str, parts: Sequence[str], **more: Any) -> tuple[str, list[Call], str]:
    parser = reader(form, prompted="prompted" in tool_formats()[form], **more)
    events = [event for part in parts for event in parser.feed(part)]
    events += parser.finish("stop", None)
    said = "".join(event.text for event in events if isinstance(event, Text))
    calls = [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, ToolCall)]
    assert isinstance(events[-1], Finished)
    return said, calls, events[-1].reason


ARGUMENTS = st.dictionaries(
    st.text(max_size=5),
    st.one_of(st.integers(), st.text(max_size=8), st.none(), st.lists(st.booleans(), max_size=3)),
    max_size=3,
)
CALLS = st.lists(st.tuples(st.sampled_from(["get", "put_it"]), ARGUMENTS), min_size=1, max_size=3)


@pytest.mark.parametrize("form", OBJECTS)
@settings(deadline=None)
@given(CALLS, st.lists(st.integers(1, 40), max_size=30), st.sampled_from([None, 2]), st.integers(0, 3))
def test_calls_are_read_however_they_are_cut(
    form: str, calls: list[Call], sizes: list[int], indent: int | None, way: int
) -> None:
    if tool_formats()[form].get("single"):
        calls = calls[:1]
    body = written(form, calls, indent, way)
    whole = f"{around(form, 'say', way)}Let me see.\n{around(form, 'then', way)}{body}"
    said, found, reason = read(form, cut(whole, sizes))
    assert (said.rstrip(), found, reason) == ("Let me see.", calls, "tool_calls")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_no_call_stays_text(form: str) -> None:
    say = around(form, "say")
    for text in (
        "no call at all",
        written(form, [("unknown", {"a": 1})]),
        written(form, [("get", {"a": 1})])[:-12],
        tool_formats()[form]["stop"][0],
        tool_formats()[form]["stop"][0] + " and more words",
    ):
        said, calls, reason = read(form, list(say + text))
        if calls:  # cut off inside what follows the arguments: the call itself is whole
            assert calls == [("get", {"a": 1})]
            continue
        assert (said.split(), reason) == (text.split(), "stop"), text


@pytest.mark.parametrize("form", FORMATS)
def test_only_the_first_call_where_there_may_be_one(form: str) -> None:
    calls: list[Call] = [("get", {}), ("put_it", {"b": 2})]
    assert read(form, [written(form, calls)], parallel=False)[1] == calls[:1]


def test_a_call_after_what_was_none_is_found() -> None:
    said, calls, _ = read("hermes", ["<tool_call>oops</tool_call> ", written("hermes", [("get", {})])])
    assert (said, calls) == ("<tool_call>oops</tool_call>", [("get", {})])


def test_a_template_tells_the_format() -> None:
    assert format_of(None) == format_of("chatml without them") == "hermes"
    assert format_of("{% if tools %}<tool_call>{% endif %}") == "hermes"
    assert format_of("{% if tools %}[TOOL_CALLS][{{ tools }}]{% endif %}") == "mistral"
    assert format_of("{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]") == "mistral-v11"
    assert format_of('<|start_header_id|>{{ tools }}{"name": x, "parameters": y}') == "llama3"
    assert format_of("{{ tools }}<function=x>") == "functionary"
    assert envelope("mistral", llamay_grammar).specials == ("[TOOL_CALLS]",)
    assert format_of("{{ tools }}<function=x><parameter=y>") == "hermes"
    assert format_of("{{ tools }}<|channel|>{{ 'functions.' + name }}") == "gpt-oss"


def test_a_long_call_is_parsed_once_not_with_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written("hermes", [("put_it", {"code": 'if (a) { b("}"); }' * 500})])
    events, reads = events_and_reads(monkeypatch, reader(), text)
    assert [type(event) for event in events] == [ToolCall, Finished]
    assert reads < 20


def test_a_format_that_marks_text_is_read_without_tools_as_well() -> None:
    def said(form: str, text: str, **more: Any) -> tuple[str, str]:
        parser = Reader(formats=llamay_grammar, form=form, **more)
        events = [e for c in text for e in parser.feed(c)] + list(parser.finish("stop", None))
        texts = ["".join(e.text for e in events if isinstance(e, kind)) for kind in (Reasoning, Text)]
        return texts[0], texts[1]

    channels = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
    thought = f"{channels[0]}Hm.{channels[1]}"
    marked = {"thinks": True, "reasoning": channels}
    assert said("gpt-oss", f"{thought}<|channel|>final<|message|>Hello", **marked) == ("Hm.", "Hello")
    assert said("functionary-v3.2", "all\nHello", prompted=True) == ("", "Hello")
    assert said("functionary-v3.2", "Hello", prompted=True) == ("", "Hello")


def test_an_id_that_the_model_makes_up_is_the_calls_unless_the_conversation_has_it() -> None:
    text = '[TOOL_CALLS][{"name": "get", "arguments": {}, "id": "abcDEF123"}]'
    for known, same in (((), True), (("abcDEF123",), False)):
        parser = reader("mistral", known_ids=known)
        call = next(e for e in [*parser.feed(text), *parser.finish("stop", None)] if isinstance(e, ToolCall))
        assert (call.id == "abcDEF123") == same


@pytest.mark.parametrize("form", OBJECTS)
def test_what_ends_a_call_may_stand_in_a_string_of_its_arguments(form: str) -> None:
    calls: list[Call] = [
        ("get", {"code": "".join(f"a {end} {{" for end in envelope(form, llamay_grammar).tails)})
    ]
    text = around(form, "say") + around(form, "then") + written(form, calls)
    for parts in ([text], list(text)):
        assert read(form, parts)[1] == calls


def test_a_call_of_broken_json_ends_where_its_mark_does_while_the_text_is_coming() -> None:
    for broken in ('{"name": "get", "arguments": {oops', '{"name": "get", "arguments": {"a": "\n'):
        parser = reader()
        events = [event for c in f"<tool_call>{broken}</tool_call> and on" for event in parser.feed(c)]
        assert (
            "".join(e.text for e in events if isinstance(e, Text))
            == f"<tool_call>{broken}</tool_call> and on"
        )


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
    assert example in system_text([{"name": "get"}], form, llamay_grammar)
