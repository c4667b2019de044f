"""Conversations with calls from anywhere fit the model's template."""

from __future__ import annotations

from typing import Any

import llamay_grammar
from llamay_models import answers


def for_template(messages: list[Any], template: str) -> list[Any]:
    return answers.for_template(messages, template, llamay_grammar)


USER = {"role": "user", "content": "hi"}
PLAIN = "{{ tools }}{{ m.tool_calls }}<tool_call>"
NINE = "{{ tools }}[TOOL_CALLS]{% if c.id|length != 9 %}{{ raise_exception('no') }}{% endif %}"
ONE = "{{ tools }}<|start_header_id|>{{ '\"parameters\": ' }}{% if m.tool_calls|length == 1 %}{% endif %}"
SILENT = PLAIN + "{% if m['content'] is none %}{% endif %}"


def calls(*ids: str, content: str | None = "") -> dict[str, Any]:
    made = [
        {"id": i, "type": "function", "function": {"name": f"f{n}", "arguments": {}}}
        for n, i in enumerate(ids)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": text}


def test_a_conversation_without_calls_is_left_as_it_is() -> None:
    messages = [USER, {"role": "assistant", "content": ""}]
    assert all(a is b for a, b in zip(for_template(messages, NINE), messages, strict=True))


def test_ids_are_nine_characters_where_the_template_wants_that_and_pair_calls_with_results() -> None:
    messages = [USER, calls("call_1", "abcDEF123"), result("abcDEF123", "b"), result("call_1", "a")]
    _, turn, first, second = for_template(messages, NINE)
    ids = [c["id"] for c in turn["tool_calls"]]
    assert [len(i) for i in ids] == [9, 9]
    assert ids[1] == "abcDEF123"
    assert (first["tool_call_id"], second["tool_call_id"]) == (ids[0], ids[1])
    assert for_template(messages[:2], NINE)[1]["tool_calls"] == turn["tool_calls"]
    assert messages[1]["tool_calls"][0]["id"] == "call_1"


def test_calls_without_ids_get_them_in_order() -> None:
    messages = [USER, calls("", ""), result("", "a"), result("", "b"), calls(""), result("", "c")]
    _, turn, a, b, more, c = for_template(messages, NINE)
    ids = [call["id"] for call in (*turn["tool_calls"], *more["tool_calls"])]
    assert len(set(ids)) == 3
    assert [m["tool_call_id"] for m in (a, b, c)] == ids


def test_several_calls_are_turns_of_their_own_where_the_template_takes_one() -> None:
    messages = [USER, calls("x", "y", content="both"), result("y", "2"), result("x", "1"), USER]
    turns = for_template(messages, ONE)
    assert [m["role"] for m in turns] == ["user", "assistant", "tool", "assistant", "tool", "user"]
    assert [c["id"] for m in turns for c in m.get("tool_calls", ())] == ["x", "y"]
    assert [m["content"] for m in turns] == ["hi", "both", "1", "", "2", "hi"]
    unnamed = for_template([calls("", ""), result("", "1"), result("", "2")], ONE)
    assert [m["content"] for m in unnamed] == ["", "1", "", "2"]


def test_a_turn_that_only_calls_says_nothing_in_the_way_the_template_asks_for() -> None:
    for content in (None, ""):
        assert for_template([calls("x", content=content)], PLAIN)[0]["content"] == ""
        assert for_template([calls("x", content=content)], SILENT)[0]["content"] is None
    assert for_template([calls("x", content="so")], SILENT)[0]["content"] == "so"


def test_results_come_in_the_order_of_their_calls() -> None:
    messages = [
        USER,
        calls("x", "y"),
        result("y", "2"),
        result("?", "3"),
        result("x", "1"),
        USER,
        result("z", "4"),
    ]
    assert [m["content"] for m in for_template(messages, PLAIN)] == ["hi", "", "1", "2", "3", "hi", "4"]


def test_kimis_calls_are_counted_through_the_conversation() -> None:
    template = "{{ tools }}<|tool_calls_section_begin|>"
    messages = [USER, calls("a", "b"), result("b", "2"), result("a", "1"), calls("c"), result("c", "3")]
    out = for_template(messages, template)
    assert [c["id"] for m in out for c in m.get("tool_calls", ())] == [
        "functions.f0:0",
        "functions.f1:1",
        "functions.f0:2",
    ]
    ids = [m["tool_call_id"] for m in out if m["role"] == "tool"]
    assert ids == ["functions.f0:0", "functions.f1:1", "functions.f0:2"]
