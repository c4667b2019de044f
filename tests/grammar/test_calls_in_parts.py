"""Arguments are told while they are written: the parts together are what a call that is read at once has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamay_grammar
from llamay_grammar import tool_formats
from llamay_models.answers import (
    ArgumentsPart,
    CallBegun,
    Event,
    Finished,
    Reader,
    Reasoning,
    Text,
    ToolCall,
    envelope,
)

from .call_texts import FORMATS, TAGGED, Call, around, cut, written

TOOLS: dict[str, Any] = {"get": {"type": "object"}, "put_it": {"type": "object"}}
LATE_ID = ("apriel", "mistral")
IN_PARTS = [f for f in FORMATS if f not in TAGGED and f not in LATE_ID]

VALUES = st.recursive(
    st.one_of(
        st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=8), st.none()
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
CALLS = st.lists(
    st.tuples(st.sampled_from(["get", "put_it"]), st.dictionaries(st.text(max_size=5), VALUES, max_size=3)),
    min_size=1,
    max_size=3,
)


def events_of(form: str, parts: Iterable[str], reason: str = "stop", **more: Any) -> list[Event]:
    reader = Reader(
        TOOLS, formats=llamay_grammar, form=form, prompted="prompted" in tool_formats()[form], **more
    )
    events = [event for part in parts for event in reader.feed(part)]
    return [*events, *reader.finish(reason, None)]


def told(events: Sequence[Event]) -> tuple[str, list[tuple[str, str, bool]], str]:
    """Words, calls with what their parts make together, and the end; and that parts come where they belong."""
    said, calls, end = "", [], ""
    begun: CallBegun | None = None
    arguments = ""
    for event in events:
        match event:
            case Text():
                assert begun is None
                said += event.text
            case CallBegun():
                assert begun is None
                assert event.number == len(calls)
                begun, arguments = event, ""
            case ArgumentsPart():
                assert begun is not None
                assert event.number == begun.number
                assert event.text
                arguments += event.text
            case ToolCall():
                assert event.in_parts == (begun is not None)
                if begun is not None:
                    assert (event.id, event.name, event.number) == (begun.id, begun.name, begun.number)
                    assert event.arguments == arguments
                calls.append((event.name, event.arguments, event.complete))
                begun = None
            case Finished():
                assert begun is None
                end = event.reason
            case Reasoning():
                raise AssertionError("nobody thinks here")
    return said, calls, end


@pytest.mark.parametrize("form", FORMATS)
def test_formats_tell_arguments_in_parts_unless_they_are_converted_or_an_id_follows_them(form: str) -> None:
    assert envelope(form, llamay_grammar).in_parts == (form in IN_PARTS)


@pytest.mark.parametrize("form", FORMATS)
@settings(deadline=None, max_examples=30)
@given(
    CALLS,
    st.lists(st.integers(1, 12), max_size=60),
    st.sampled_from([None, 2]),
    st.integers(0, 3),
    st.booleans(),
)
def test_the_parts_of_a_call_are_the_arguments_that_it_has_when_read_at_once(
    form: str, calls: list[Call], sizes: list[int], indent: int | None, way: int, said: bool
) -> None:
    if form in TAGGED:
        calls = [(name, {"a": "text"}) for name, _ in calls]
    if tool_formats()[form].get("single"):
        calls = calls[:1]
    body = written(form, calls, indent, way)
    if said or around(form, "say"):
        body = f"{around(form, 'say', way)}Let me see.\n{around(form, 'then', way)}{body}"

    whole = told(events_of(form, [body]))
    in_parts = told(events_of(form, cut(body, sizes), bound=True))

    assert in_parts == whole
    assert [(name, json.loads(arguments)) for name, arguments, _ in whole[1]] == calls


@pytest.mark.parametrize("form", IN_PARTS)
def test_arguments_come_while_they_are_written(form: str) -> None:
    value = "Oslo, and a long way to go"
    text = around(form, "say") + around(form, "then") + written(form, [("get", {"city": value, "n": [1, 2]})])
    came = {0: ""}
    reader = Reader(
        TOOLS, formats=llamay_grammar, form=form, prompted="prompted" in tool_formats()[form], bound=True
    )
    for n, char in enumerate(text, 1):
        parts = "".join(e.text for e in reader.feed(char) if isinstance(e, ArgumentsPart))
        came[n] = came[n - 1] + parts

    inside = text.index(value)
    assert all(came[inside + n].endswith(value[:n]) for n in range(1, len(value)))


@pytest.mark.parametrize("form", FORMATS)
def test_wherever_the_text_ends_it_is_told_the_same_however_it_came_and_nothing_is_lost(form: str) -> None:
    calls: list[Call] = [("get", {"a": 'x\u00e9"y', "b": 12.5}), ("put_it", {})]
    if tool_formats()[form].get("single"):
        del calls[1]
    text = f"{around(form, 'say')}Well. {around(form, 'then')}{written(form, calls)}"
    _, full, _ = told(events_of(form, [text]))
    for end in range(len(text)):
        said, found, reason = told(events_of(form, [text[:end]], "length", bound=True))
        assert (said, found, reason) == told(events_of(form, text[:end], "length", bound=True))
        assert reason == "length"
        assert all(complete for *_, complete in found[:-1])
        for (name, arguments, complete), (wanted, whole, _) in zip(found, full, strict=False):
            assert name == wanted
            held = arguments.rfind("\\")  # what is cut inside an escape stays as it came
            assert (
                arguments == whole if complete else whole.startswith(arguments[: held if held > 0 else None])
            )
        if found and not found[-1][2]:
            assert said.rstrip() == "Well."


EDITS = st.lists(st.tuples(st.floats(0, 1), st.integers(0, 3), st.sampled_from('{}[]":,\\ a1')), max_size=3)
BYTES = llamay_grammar.Vocabulary([bytes([b]) for b in range(256)] + [b"</s>"], special=[256], end=[256])


@pytest.mark.parametrize("form", IN_PARTS)
@pytest.mark.parametrize("choice", ["auto", "required"])
@settings(deadline=None, max_examples=25)
@given(CALLS, st.integers(0, 3), st.booleans(), EDITS)
def test_what_a_grammar_lets_begin_as_a_call_is_one(
    form: str, choice: str, calls: list[Call], way: int, said: bool, edits: list[tuple[float, int, str]]
) -> None:
    tools = [{"name": name, "parameters": schema} for name, schema in TOOLS.items()]
    grammar = llamay_grammar.compile_tools(tools, BYTES, format=form, choice=choice)
    calls = calls[: 1 if tool_formats()[form].get("single") else 3]
    text = written(form, calls, None, way)
    if said and choice == "auto":
        text = f"{around(form, 'say', way)}Let me see. {around(form, 'then', way)}{text}"
    for place, gone, more in edits:
        at = int(place * len(text))
        text = text[:at] + more + text[at + gone :]
    matcher, accepted, whole = grammar.matcher(), bytearray(), b""
    for byte in text.encode():
        if not matcher.allows(byte):
            break
        matcher.accept(byte)
        accepted.append(byte)
        if matcher.is_complete:
            whole = bytes(accepted)
    # All that it has accepted can still become a document, so that only its end may be missing.
    came = told(events_of(form, accepted.decode(errors="ignore"), "length", bound=True))
    assert all(complete for *_, complete in came[1][:-1])
    if whole:
        found = told(events_of(form, whole.decode(errors="ignore"), bound=True))
        assert found == told(events_of(form, [whole.decode(errors="ignore")]))


def test_what_free_text_may_hold_is_not_taken_for_a_call_that_is_certain() -> None:
    text = '{ "name": "get", "parameters": {oops'
    tools = [{"name": name, "parameters": schema} for name, schema in TOOLS.items()]
    matcher = llamay_grammar.compile_tools(tools, BYTES, format="llama3").matcher()
    for byte in text.encode():
        matcher.accept(byte)

    for parts in ([text], list(text)):
        assert told(events_of("llama3", parts, bound=True)) == (text, [], "stop")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_no_call_stays_text_where_a_grammar_binds_as_well(form: str) -> None:
    say = around(form, "say")
    for text in (
        "no call at all",
        written(form, [("unknown", {"a": 1})]),
        tool_formats()[form]["stop"][0],
        tool_formats()[form]["stop"][0] + " and more words",
    ):
        for parts in ([say + text], list(say + text)):
            said, calls, reason = told(events_of(form, parts, bound=True))
            assert (said.split(), calls, reason) == (text.split(), [], "stop"), text


def test_a_long_call_in_parts_costs_no_more_for_each_character_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay_models.answers.compact_json import Compact

    seen = 0
    feed = Compact.feed

    def count(self: Compact, text: str) -> tuple[str, int]:
        nonlocal seen
        seen += len(text)
        return feed(self, text)

    monkeypatch.setattr(Compact, "feed", count)
    for value in ('if (a) { b("}"); }' * 500, " " * 9000, "\n\t" * 4500, 10**4000):
        seen = 0
        text = written("hermes", [("put_it", {"code": value})])
        events = events_of("hermes", cut(text, [3] * (len(text) // 3)), bound=True)
        assert told(events)[1] == [("put_it", json.dumps({"code": value}, separators=(",", ":")), True)]
        assert seen < len(text) + 10
