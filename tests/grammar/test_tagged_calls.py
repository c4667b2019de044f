"""Calls whose arguments stand between tags: read as the functions' schemas say, however the text comes in parts."""

# ruff: noqa: E501, RUF001 - what models write is on one line; DeepSeek's marks have full-width bars
from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamay_grammar
from llamay_models.answers import Finished, Reader, Text, ToolCall, envelope, format_of

from .call_texts import TAGGED, Call, cut, events_and_reads, written

SCHEMA = {
    "type": "object",
    "properties": {
        "code": {"type": "string"},
        "n": {"type": "integer"},
        "x": {"type": "number"},
        "ok": {"type": "boolean"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "l": {"type": "array"},
        "o": {"type": "object"},
    },
}
TOOLS: dict[str, Any] = {"put": SCHEMA, "now": {"type": "object", "properties": {}}}
QWEN = "qwen3-coder"


def reader(form: str) -> Reader:
    return Reader(TOOLS, formats=llamay_grammar, form=form)


def read(form: str, parts: Sequence[str], reason: str = "stop") -> tuple[str, list[Call], str]:
    parser = reader(form)
    events = [event for part in parts for event in parser.feed(part)]
    events += parser.finish(reason, None)
    said = "".join(event.text for event in events if isinstance(event, Text))
    calls = [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, ToolCall)]
    assert isinstance(events[-1], Finished)
    return said, calls, events[-1].reason


def closing(form: str) -> str:
    tags = envelope(form, llamay_grammar).tags
    assert tags is not None
    return tags.stop


WORDS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from('\n <>/"{}5'), max_size=10)
TEXTS = WORDS | st.tuples(
    WORDS, st.sampled_from(["</function>", "<tool_call>", "</invoke>", "</tool_call>", "null"])
).map("".join)
PUT = st.fixed_dictionaries(
    {"code": TEXTS},
    optional={
        "n": st.integers(),
        "x": st.floats(allow_nan=False, allow_infinity=False),
        "ok": st.booleans(),
        "maybe": st.none() | st.sampled_from(["", "a null", "5", "[1]"]),
        "l": st.lists(st.integers() | TEXTS, max_size=2),
        "o": st.dictionaries(TEXTS, st.booleans(), max_size=2),
    },
)
CALLS = st.lists(st.tuples(st.just("put"), PUT) | st.just(("now", {})), min_size=1, max_size=3)


@pytest.mark.parametrize("form", TAGGED)
@settings(max_examples=60, deadline=None)
@given(CALLS, st.lists(st.integers(1, 40), max_size=30))
def test_calls_are_read_however_they_are_cut(form: str, calls: list[Call], sizes: list[int]) -> None:
    if any(closing(form) in json.dumps(arguments) for _, arguments in calls):
        return  # the format has no way to write it
    whole = "Let me see.\n" + written(form, calls)
    said, found, reason = read(form, cut(whole, sizes))
    assert (said.rstrip(), found, reason) == ("Let me see.", calls, "tool_calls")


@pytest.mark.parametrize("form", TAGGED)
def test_a_call_that_is_cut_off_among_its_arguments_is_none(form: str) -> None:
    whole = written(form, [("put", {"code": "print()\n", "n": 5})])
    end = whole.rindex(closing(form)) + len(closing(form))
    for size in range(len(whole[:end]) + 1):
        said, calls, reason = read(form, [whole[:size]], reason="length")
        assert not calls
        assert (said.split(), reason) == (whole[:size].split(), "length")


@pytest.mark.parametrize(
    "text",
    [
        "<function=put>\n<parameter=code>\nx\n</parameter>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
        "<function=put>\n<parameter=code>\nx\n</parameter>\n<parameter=n>\n5\n</parameter>\n</function>",
        "<tool_call><function=put><parameter=code>x</parameter><parameter=n>5</parameter></function></tool_call>",
        "<tool_call>\n\n<function=put>\n  <parameter=code>\nx\n</parameter>\n  <parameter=n>\n 5\n</parameter>\n</function>\n\n</tool_call>",
        "<tool_call>\n<function=put>\n<parameter=code>\ny\n</parameter>\n<parameter=n>5</parameter>\n<parameter=code>\nx\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_what_models_make_of_the_format_is_read_too(text: str) -> None:
    for parts in ([text], list(text)):
        assert read(QWEN, parts) == ("", [("put", {"code": "x", "n": 5})], "tool_calls")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("glm-4.5", "<tool_call>put<arg_key>n</arg_key><arg_value>5</arg_value></tool_call>"),
        ("glm-4.7", "<tool_call>put\n<arg_key>n</arg_key>\n<arg_value>5</arg_value>\n</tool_call>"),
        (
            "glm-4.5",
            "<tool_call>put\n<arg_key>n</arg_key>\n<arg_value>5</arg_value><arg_key>n</arg_key>\n<arg_value>5</arg_value>\n</tool_call>",
        ),
        (
            "minimax-m2",
            '<minimax:tool_call><invoke name="put"><parameter name="n">5</parameter></invoke></minimax:tool_call>',
        ),
        ("seed-oss", "<seed:tool_call><function=put><parameter=n>5</parameter></function></seed:tool_call>"),
    ],
)
def test_lines_between_the_marks_do_not_matter(form: str, text: str) -> None:
    for parts in ([text], list(text)):
        assert read(form, parts) == ("", [("put", {"n": 5})], "tool_calls")


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\n<function=put>\nwords\n</function>\n</tool_call>",
        "<tool_call>\n<function=other>\n<parameter=n>\n5\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=put>\n<parameter=\n>5\n</parameter>\n</function>\n</tool_call>",
        "The tag <tool_call> begins a call, <function=NAME> names it.",
        "<tool_call>\n<function=put>\n<parameter=n>\n5\n</parameter>\n",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    for parts in ([text], list(text)):
        said, calls, reason = read(QWEN, parts)
        assert (said.split(), calls, reason) == (text.split(), [], "stop")


def test_text_is_not_held_back_behind_a_mark_that_begins_no_call() -> None:
    parser = reader(QWEN)
    events = [e for c in "The tag <tool_call> is a mark, and more. " for e in parser.feed(c)]
    assert "is a mark" in "".join(e.text for e in events if isinstance(e, Text))


def test_a_long_argument_is_read_once_not_with_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "if (a < b) { c('</function>') }\n" * 500
    text = written(QWEN, [("put", {"code": code})])
    events, reads = events_and_reads(monkeypatch, reader(QWEN), text)
    assert [type(event) for event in events] == [ToolCall, Finished]
    assert isinstance(events[0], ToolCall)
    assert json.loads(events[0].arguments) == {"code": code}
    assert reads < 40


def test_the_tags_that_are_control_tokens_are_asked_for() -> None:
    assert {"<tool_call>", "<arg_key>", "</arg_value>"} <= set(envelope("glm-4.5", llamay_grammar).specials)
    assert envelope("deepseek-v3.2", llamay_grammar).specials == ("｜DSML｜",)
    assert envelope("deepseek-v3.2", llamay_grammar).openings == ("<｜DSML｜function_calls>",)


@pytest.mark.parametrize(
    ("marks", "form"),
    [
        ("<tool_call>\n<function=x>\n<parameter=y>", "qwen3-coder"),
        ("<seed:tool_call>\n<function=x>\n<parameter=y>", "seed-oss"),
        ("<tool_call>x\n<arg_key>y</arg_key>\n<arg_value>", "glm-4.5"),
        ("<tool_call>x' ~ '<arg_key>y</arg_key>\\n<arg_value>", "glm-4.5"),
        ("<tool_call>x<arg_key>y</arg_key><arg_value>", "glm-4.7"),
        ('<minimax:tool_call>\n<invoke name="x">', "minimax-m2"),
        ("<｜DSML｜function_calls>", "deepseek-v3.2"),
        ("<｜DSML｜tool_calls>", "deepseek-v4"),
        ("<|tool_calls_section_begin|>", "kimi-k2"),
        ("<|START_ACTION|>[", "command-r7b"),
        ("<TOOLCALL>[", "nemotron-v2"),
        ("'\\n<tool_calls>['", "apriel"),
        ("'<tool_calls>\\n'", "minimax-m1"),
        ("<|tool|>x<|/tool|>", "phi-4-mini"),
        ("respond only with <|tool_call|>", "granite-3.3"),
        ("'<|function_call|>'", "gigachat-3.1"),
        ("<|tool_call:begin|>", "solar-open"),
        ("'<|tools_prefix|>'", "apertus"),
        ("<tool_call>\n{", "hermes"),
    ],
)
def test_a_template_tells_the_format(marks: str, form: str) -> None:
    assert format_of("{{ tools }}" + marks) == form
