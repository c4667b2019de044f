"""Calls that models write in ways of their own, names and literals, are read however the text comes in parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llamay_grammar
from llamay_models.answers import Event, Finished, Reader, Reasoning, Text, ToolCall, envelope
from llamay_models.answers.literal_arguments import Bracketed, Literals

from .call_texts import Call, cut, written

TOOLS: dict[str, Any] = {"get": {}, "a.put-it": {}}
LFM2 = ("<|tool_call_start|>", "<|tool_call_end|>")
QUOTE = '<|"|>'


def events_of(form: str, parts: list[str], **more: Any) -> list[Event]:
    reader = Reader(TOOLS, formats=llamay_grammar, form=form, **more)
    events = [event for part in parts for event in reader.feed(part)]
    return [*events, *reader.finish("stop", None)]


def told(events: list[Event]) -> tuple[str, list[Call]]:
    said = "".join(e.text for e in events if isinstance(e, Text))
    return said, [(e.name, json.loads(e.arguments)) for e in events if isinstance(e, ToolCall)]


def python(value: Any) -> str:
    return repr(value) if not isinstance(value, dict) else json.dumps(value)


def gemma(value: Any) -> str:
    match value:
        case str():
            return f"{QUOTE}{value}{QUOTE}"
        case bool() | None:
            return json.dumps(value)
        case dict():
            return "{" + ",".join(f"{key}:{gemma(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ",".join(map(gemma, value)) + "]"
    return str(value)


def spelled(form: str, calls: list[Call]) -> str:
    if form == "lfm2":
        each = (f"{name}({', '.join(f'{k}={python(v)}' for k, v in given.items())})" for name, given in calls)
        return f"{LFM2[0]}[{', '.join(each)}]{LFM2[1]}"
    return "".join(f"<|tool_call>call:{name}{gemma(given)}<tool_call|>" for name, given in calls)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
TEXTS = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=12) | st.just("é ) ] } ,")
SIMPLE = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = SIMPLE | st.lists(SIMPLE, max_size=3) | st.dictionaries(NAMES, SIMPLE, max_size=2)
CALLS = st.lists(
    st.tuples(st.sampled_from([*TOOLS]), st.dictionaries(NAMES, VALUES, max_size=3)), min_size=1, max_size=3
)


@pytest.mark.parametrize("form", ["lfm2", "gemma-4"])
@settings(deadline=None, max_examples=60)
@given(CALLS, st.lists(st.integers(1, 20), max_size=40))
def test_calls_of_names_and_literals_are_read_however_they_are_cut(
    form: str, calls: list[Call], sizes: list[int]
) -> None:
    said, found = told(events_of(form, cut(f"Let me see. {spelled(form, calls)}", sizes)))

    assert (said.rstrip(), found) == ("Let me see.", calls)


@pytest.mark.parametrize(
    ("form", "text", "arguments"),
    [
        (
            "lfm2",
            "get(a='it''s \"so\" (here)', b=\"x\\n\\u00e9\\d\")",
            {"a": "it''s \"so\" (here)", "b": "x\né\\d"},
        ),
        ("lfm2", "get( a = true , b=[ ], c={} , )", {"a": True, "b": [], "c": {}}),
        ("lfm2", "get(a={'b': None, \"c\": null})", {"a": {"b": None, "c": None}}),
        (
            "gemma-4",
            f'get{{a:{QUOTE}\\n "x" }}{QUOTE},b:{{c:-1.5e3,{QUOTE}d e{QUOTE}:[]}}}}',
            {"a": '\\n "x" }', "b": {"c": -1500.0, "d e": []}},
        ),
    ],
)
def test_literals_mean_what_their_models_mean_by_them(form: str, text: str, arguments: Any) -> None:
    whole = f"{LFM2[0]}[{text}]{LFM2[1]}" if form == "lfm2" else f"<|tool_call>call:{text}<tool_call|>"
    for parts in ([whole], list(whole)):
        assert told(events_of(form, parts)) == ("", [("get", arguments)])


@pytest.mark.parametrize("form", ["lfm2", "gemma-4"])
def test_what_is_no_call_stays_text(form: str) -> None:
    deep = "[" * 200 + "]" * 200
    bodies = ["unknown", "get"]
    texts = [spelled(form, [("unknown", {"a": 1})]), spelled(form, [("get", {"a": "b"})])[:-22]]
    for broken in ('"Oslo"', "a", "a=", "a=b", f"a={deep}", "a=1 b=2", "a=1e999", f"a={'9' * 5000}"):
        mine = broken.replace("=", ":") if form == "gemma-4" else broken
        whole = spelled(form, [(bodies[1], {})])
        at = whole.index("get") + 4
        texts.append(f"{whole[:at]}{mine}{whole[at:]} and on")
    for text in texts:
        for parts in ([text], list(text)):
            events = events_of(form, parts)
            assert told(events) == (text, []), text
            assert events[-1] == Finished(0, "stop")


@pytest.mark.parametrize("form", ["lfm2", "gemma-4"])
def test_a_call_that_a_grammar_bound_is_read_as_well(form: str) -> None:
    call: list[Call] = [("get", {"a": 1})]

    assert written(form, call) == written("hermes", call)
    for bound in (False, True):
        assert told(events_of(form, list(written(form, call)), bound=bound)) == ("", call)


def test_a_long_call_of_literals_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = looked = 0
    read, find = Literals.read, Literals.string_end

    def count_reads(self: Literals, text: str, at: int) -> Any:
        nonlocal reads
        reads += 1
        return read(self, text, at)

    def count_characters(self: Literals, text: str, at: int, quote: str) -> tuple[bool, int]:
        nonlocal looked
        looked += len(text) - at
        return find(self, text, at, quote)

    monkeypatch.setattr(Literals, "read", count_reads)
    monkeypatch.setattr(Literals, "string_end", count_characters)
    for form in ("lfm2", "gemma-4"):
        reads = looked = 0
        code = "if (a) { b('}'); } " * 300
        text = spelled(form, [("get", {"code": code})])
        assert told(events_of(form, list(text)))[1] == [("get", {"code": code})]
        assert reads < 30
        assert looked < 30 * len(text)


def test_brackets_in_strings_and_in_front_of_a_call_do_not_count() -> None:
    literals = Literals("=", "(", ("'", '"'), escapes=True)
    open_after = []
    for end in range(len(text := "[f(a='(', b=[')'])")):
        seen = Bracketed(literals)
        for char in text[: end + 1]:
            seen.feed(char)
        open_after.append(seen.open)

    assert open_after == [False] * 2 + [True] * (len(text) - 3) + [False]


def test_gemma_thinks_in_a_channel_of_its_own() -> None:
    known = envelope("gemma-4", llamay_grammar)
    assert known.reasoning is not None
    events = events_of(
        "gemma-4", list("<|channel>thought\nhm\n<channel|>Hi"), thinks=True, reasoning=known.reasoning
    )

    assert "".join(e.text for e in events if isinstance(e, Reasoning)).strip() == "hm"
    assert told(events) == ("Hi", [])
    assert {"<|channel>", "<channel|>", QUOTE, "<|tool_call>"} <= {
        *known.visible(known.reasoning, calls=True)
    }
