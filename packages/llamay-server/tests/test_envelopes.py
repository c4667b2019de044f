"""Tool calls are read back from every format that models write, however the text comes in parts."""

# ruff: noqa: RUF001 - DeepSeek's marks have full-width bars

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay_grammar import tool_formats
from llamay_server._chat import ChatRequest, Framing, Rendered
from llamay_server._envelopes import Envelope, envelope, format_of
from llamay_server._options import Bound
from llamay_server._output import Finished, OutputParser, Reasoning, Text, ToolCall
from llamay_server._protocol import Prompt
from llamay_server._tools import Tool, Toolbox, system_text

FORMATS = sorted(tool_formats())
TAGGED = [f for f in FORMATS if any("parameters" in piece for piece in tool_formats()[f]["call"])]
OBJECTS = [f for f in FORMATS if f not in TAGGED]
Call = tuple[str, dict[str, Any]]


def box(**more: Any) -> Toolbox:
    return Toolbox((Tool("get", "", {}), Tool("put_it", "", {})), "auto", **more)


def flat(pieces: Sequence[Any], way: int) -> list[Any]:
    """One of the ways to write pieces of which some are optional or have alternatives."""
    out: list[Any] = []
    for piece in pieces:
        if "optional" in piece:
            out += flat(piece["optional"], way) if way % 2 else []
        elif "any" in piece:
            out += flat(piece["any"][way % len(piece["any"])], way)
        else:
            out.append(piece)
    return out


def cut(text: str, sizes: Sequence[int]) -> list[str]:
    """The text in parts of these sizes, and the rest."""
    ends = [0, *itertools.accumulate(sizes)]
    return [*(text[a:b] for a, b in itertools.pairwise(ends)), text[ends[-1] :]]


def argument(tags: Any, key: str, value: Any) -> str:
    """One argument between its tags: a string as it is, anything else as JSON."""
    out = ""
    for piece in tags["open"]:
        if "typed" in piece:
            out += piece["typed"][0 if isinstance(value, str) else 1]
        else:
            out += key if piece.get("key") else piece.get("text", piece.get("special", ""))
    out += value if isinstance(value, str) else json.dumps(value)
    return out + "".join(piece.get("text", piece.get("special", "")) for piece in tags["close"])


def written(form: str, calls: Sequence[Call], indent: int | None = None, way: int = 0) -> str:
    """The calls as the format's own data says they are written."""
    about = tool_formats()[form]
    ids = iter(f"abcDEF{n:03}" for n in range(100))

    def text(pieces: Sequence[Any], name: str = "", arguments: Any = None) -> str:
        out = ""
        for piece in flat(pieces, way):
            if piece.get("name"):
                out += name
            elif piece.get("arguments"):
                out += json.dumps(arguments, indent=indent)
            elif piece.get("id"):
                out += next(ids)
            elif piece.get("count"):
                out += str(way)
            elif "parameters" in piece:
                out += "".join(argument(piece["parameters"], *item) for item in (arguments or {}).items())
            else:
                out += piece.get("text", piece.get("special", ""))
        return out

    body = text(about.get("between", ())).join(text(about["call"], *call) for call in calls)
    return text(about.get("before", ())) + body + text(about.get("after", ()))


def around(form: str, part: str, way: int = 0) -> str:
    """What the format writes before text ("say"), or between it and calls ("then")."""
    pieces = flat(tool_formats()[form].get(part, ()), way)
    return "".join(piece.get("text", piece.get("special", "")) for piece in pieces)


def read(form: str, parts: Sequence[str], **more: Any) -> tuple[str, list[Call], str]:
    parser = OutputParser(0, box(**more), form=form, prompted="prompted" in tool_formats()[form])
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
    assert envelope("mistral").specials == ("[TOOL_CALLS]",)
    assert format_of("{{ tools }}<function=x><parameter=y>") == "hermes"
    assert format_of("{{ tools }}<|channel|>{{ 'functions.' + name }}") == "gpt-oss"


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


def test_a_format_that_marks_text_is_read_without_tools_as_well() -> None:
    def said(form: str, text: str, **more: Any) -> tuple[str, str]:
        parser = OutputParser(0, Toolbox(), form=form, **more)
        events = [e for c in text for e in parser.feed(c)] + list(parser.finish("stop", None))
        texts = ["".join(e.text for e in events if isinstance(e, kind)) for kind in (Reasoning, Text)]
        return texts[0], texts[1]

    channels = ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
    thought = f"{channels[0]}Hm.{channels[1]}"
    marked = {"thinks": True, "reasoning": channels}
    assert said("gpt-oss", f"{thought}<|channel|>final<|message|>Hello", **marked) == ("Hm.", "Hello")
    assert said("functionary-v3.2", "all\nHello", prompted=True) == ("", "Hello")
    assert said("functionary-v3.2", "Hello", prompted=True) == ("", "Hello")


def test_a_model_whose_template_describes_no_tools_is_told_its_own_way_to_call_them() -> None:
    box = Toolbox((Tool("get", "", {}),), "auto")
    assert '<tool_call>{"name": "the function", "arguments": {...}}</tool_call>' in system_text(box, "hermes")
    assert "<｜tool▁call▁begin｜>the function<｜tool▁sep｜>{...}" in system_text(box, "deepseek-v3.1")
    assert "<function=the function>{...}</function>" in system_text(box, "functionary")


def test_an_id_that_the_model_makes_up_is_the_calls_unless_the_conversation_has_it() -> None:
    text = '[TOOL_CALLS][{"name": "get", "arguments": {}, "id": "abcDEF123"}]'
    for known, same in (((), True), (("abcDEF123",), False)):
        parser = OutputParser(0, box(), form="mistral", known_ids=known)
        call = next(e for e in [*parser.feed(text), *parser.finish("stop", None)] if isinstance(e, ToolCall))
        assert (call.id == "abcDEF123") == same
