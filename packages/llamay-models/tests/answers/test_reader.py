"""An answer is taken apart into reasoning, text and calls, the same however it comes in parts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_models.answers import Finished, Reader, Reasoning, ReasoningSplitter, Text, ToolCall, format_of

from .made_formats import FORMATS, MADE

TOOLS: dict[str, Any] = {
    "get": {"type": "object", "properties": {"n": {"type": "integer"}, "code": {"type": "string"}}},
    "now": {"type": "object", "properties": {}},
}
GET, NOW = {"n": 5, "code": 'a "}" </call> ]\n'}, {}
# A format: what a model writes of these two calls, or of the first where there is one to a turn.
WRITTEN = {
    "hermes": f'<call>{{"name": "get", "arguments": {json.dumps(GET)}}}</call>\n'
    '<call>{"name": "now", "arguments": {}}</call>',
    "listed": f'[CALLS][{{"name": "get", "arguments": {json.dumps(GET)}, "id": "abcDEF123"}}, '
    '{"name": "now", "arguments": {}}]',
    "tags": f"<do>get\n<arg n>5</arg>\n<arg code>{GET['code']}</arg>\n</do>\n<do>now\n</do>",
    "functionary-v3.2": f">>get\n{json.dumps(GET)}>>now\n{{}}",
    "channels": f"<ch>to=get<msg>{json.dumps(GET)}<end>",
}
SAY = {"channels": "<ch>final<msg>", "functionary-v3.2": "all\n"}


def taken_apart(
    reader: Reader, parts: Sequence[str], reason: str = "stop"
) -> tuple[str, str, list[Any], str]:
    """Text, reasoning, calls, and the reason for the end."""
    events = [event for part in parts for event in reader.feed(part)]
    events += reader.finish(reason, None)
    said = "".join(e.text for e in events if isinstance(e, Text))
    thought = "".join(e.text for e in events if isinstance(e, Reasoning))
    calls = [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, ToolCall)]
    assert isinstance(events[-1], Finished)
    return said, thought, calls, events[-1].reason


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    ends = [0, *itertools.accumulate(sizes)]
    return [*(text[a:b] for a, b in itertools.pairwise(ends)), text[ends[-1] :]]


@pytest.mark.parametrize("form", FORMATS)
@settings(deadline=None)
@given(st.lists(st.integers(1, 30), max_size=40))
def test_calls_are_read_however_they_are_cut(form: str, sizes: list[int]) -> None:
    calls = [("get", GET), ("now", NOW)][: 1 if FORMATS[form].get("single") else 2]
    text = f"{SAY.get(form, '')}Let me see.\n{WRITTEN[form]}"
    reader = Reader(TOOLS, formats=MADE, form=form, prompted=form == "functionary-v3.2")

    said, thought, found, reason = taken_apart(reader, cut(text, sizes))

    assert (said.rstrip(), thought, found, reason) == ("Let me see.", "", calls, "tool_calls")


@pytest.mark.parametrize("form", FORMATS)
def test_without_tools_calls_are_text_and_marks_around_text_are_not(form: str) -> None:
    reader = Reader(formats=MADE, form=form, prompted=form == "functionary-v3.2")

    said, _, calls, reason = taken_apart(reader, list(SAY.get(form, "") + "Hello <there>"))

    assert (said, calls, reason) == ("Hello <there>", [], "stop")


@pytest.mark.parametrize(
    "text",
    [
        "<call>no JSON</call> and on",
        '<call>{"name": "other", "arguments": {}}</call> and on',
        '<call>{"name": "get", "arguments": {"n": NaN}}</call>',
        '<call>{"name": "get", "arguments": {"n": 5',
        "<cal",
    ],
)
def test_what_is_no_call_stays_text(text: str) -> None:
    for parts in ([text], list(text)):
        said, _, calls, reason = taken_apart(Reader(TOOLS, formats=MADE), parts)
        assert (said, calls, reason) == (text, [], "stop")


def test_only_the_first_call_counts_where_there_may_be_one() -> None:
    _, _, calls, _ = taken_apart(Reader(TOOLS, formats=MADE, parallel=False), [WRITTEN["hermes"]])

    assert calls == [("get", GET)]


@pytest.mark.parametrize("begun", [True, False])
def test_reasoning_is_no_part_of_the_answer_and_a_call_in_it_is_none(begun: bool) -> None:
    thought = f"Shall I? {WRITTEN['hermes']}"
    text = ("" if begun else "<think>") + f"{thought}</think>\n\nYes. {WRITTEN['hermes']}"
    for parts in ([text], list(text)):
        reader = Reader(TOOLS, formats=MADE, thinks=True, in_reasoning=begun)
        said, reasoning, calls, reason = taken_apart(reader, parts)
        assert (said.rstrip(), reasoning, len(calls), reason) == ("Yes.", thought, 2, "tool_calls")


def test_what_may_become_a_mark_is_held_back_and_nothing_else_is() -> None:
    reader = Reader(TOOLS, formats=MADE)

    assert [e.text for e in reader.feed("one <ca") if isinstance(e, Text)] == ["one"]
    assert [e.text for e in reader.feed("t two") if isinstance(e, Text)] == [" <cat two"]


def test_a_call_has_the_id_that_the_model_gave_unless_the_conversation_has_it() -> None:
    for known, same in (((), True), (("abcDEF123",), False)):
        reader = Reader(TOOLS, formats=MADE, form="listed", known_ids=known)
        call = next(e for e in reader.feed(WRITTEN["listed"]) if isinstance(e, ToolCall))
        assert (call.id == "abcDEF123") == same


def test_tokens_and_reasoning_are_counted_where_they_belong() -> None:
    reader = Reader(formats=MADE, thinks=True)
    events = [e for n, c in enumerate("<think>ab</think>cd") for e in reader.feed(c, (), (n,))]
    events += reader.finish("length", None)

    assert [t for e in events if isinstance(e, Text) for t in e.tokens] == [17, 18]
    assert reader.reasoning_tokens == 17
    assert events[-1] == Finished(0, "length")


def test_a_format_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="nobody's"):
        Reader(formats=MADE, form="nobody's")


def test_reasoning_alone_is_split_from_text() -> None:
    splitter = ReasoningSplitter.of("{{ x }}<think>", "...<think>\n", MADE)
    assert splitter is not None

    found = [*splitter.feed("hm, hm</thi"), *splitter.feed("nk>\n\nYes"), *splitter.finish()]

    assert found == [(True, "hm, hm"), (False, "Yes")]
    assert splitter.special == ("<think>", "</think>")
    assert ReasoningSplitter.of("{{ x }}", "", MADE) is None
    assert ReasoningSplitter.of(None, "", MADE) is None


def test_a_template_tells_the_format() -> None:
    assert format_of(None) == format_of("chatml without them") == "hermes"
    assert format_of("{% if tools %}[TOOL_CALLS][{{ tools }}]{% endif %}") == "mistral"
    assert format_of("{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]") == "mistral-v11"
    assert format_of("{{ tools }}<function=x>") == "functionary"
    assert format_of("{{ tools }}<function=x><parameter=y>") == "hermes"
