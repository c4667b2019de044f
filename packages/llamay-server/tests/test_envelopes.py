"""Tool calls are read back from every format that models write, however the text comes in parts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay_grammar import tool_formats
from llamay_server._envelopes import Envelope, envelope, format_of
from llamay_server._output import Finished, OutputParser, Text, ToolCall
from llamay_server._tools import Tool, Toolbox

FORMATS = sorted(tool_formats())
Call = tuple[str, dict[str, Any]]


def box(**more: Any) -> Toolbox:
    return Toolbox((Tool("get", "", {}), Tool("put_it", "", {})), "auto", **more)


def written(form: str, calls: Sequence[Call], indent: int | None = None) -> str:
    """The calls as the format's own data says they are written."""
    about = tool_formats()[form]

    def text(pieces: Sequence[Any], name: str = "", arguments: Any = None) -> str:
        out = ""
        for piece in pieces:
            if piece.get("name"):
                out += name
            elif piece.get("arguments"):
                out += json.dumps(arguments, indent=indent)
            else:
                out += piece.get("text", piece.get("special", ""))
        return out

    body = text(about.get("between", ())).join(text(about["call"], *call) for call in calls)
    return text(about.get("before", ())) + body + text(about.get("after", ()))


def read(form: str, parts: Sequence[str], **more: Any) -> tuple[str, list[Call], str]:
    parser = OutputParser(0, box(**more), form=form)
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


@pytest.mark.parametrize("form", FORMATS)
@given(CALLS, st.lists(st.integers(1, 40), max_size=30), st.sampled_from([None, 2]))
def test_calls_are_read_however_they_are_cut(
    form: str, calls: list[Call], sizes: list[int], indent: int | None
) -> None:
    if tool_formats()[form].get("single"):
        calls = calls[:1]
    whole = f"Let me see.\n{written(form, calls, indent)}"
    parts, at = [], 0
    for size in sizes:
        parts.append(whole[at : at + size])
        at += size
    parts.append(whole[at:])

    assert read(form, parts) == ("Let me see.", calls, "tool_calls")


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_no_call_stays_text(form: str) -> None:
    for text in (
        "no call at all",
        written(form, [("unknown", {"a": 1})]),
        written(form, [("get", {"a": 1})])[:-12],
        tool_formats()[form]["stop"][0],
        tool_formats()[form]["stop"][0] + " and more words",
    ):
        said, calls, reason = read(form, list(text))
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
    assert envelope("mistral").specials == ("[TOOL_CALLS]",)


def test_a_long_call_is_parsed_once_not_with_every_token(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written("hermes", [("put_it", {"code": 'if (a) { b("}"); }' * 500})])
    parser, reads = OutputParser(0, box()), 0
    read_call = Envelope.read

    def counted(self: Envelope, *args: Any, **more: Any) -> Any:
        nonlocal reads
        reads += 1
        return read_call(self, *args, **more)

    monkeypatch.setattr(Envelope, "read", counted)
    events = [event for i in range(0, len(text), 3) for event in parser.feed(text[i : i + 3])]
    events += parser.finish("stop", None)
    assert [type(event) for event in events] == [ToolCall, Finished]
    assert reads < 20
