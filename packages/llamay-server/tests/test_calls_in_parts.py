"""Arguments reach a client while they are written, in every dialect that has a way to say so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_engine import FakeModel

from . import test_anthropic as anthropic_api
from . import test_openai as openai_api
from . import test_responses as responses_api

CITIES = {
    "type": "object",
    "properties": {"city": {"const": 'Oslo ☀ "by" the\nsea'}, "days": {"const": 12}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
ARGUMENTS = {"city": 'Oslo ☀ "by" the\nsea', "days": 12}
COMPACT = json.dumps(ARGUMENTS, ensure_ascii=False, separators=(",", ":"))
CHAT = {"type": "function", "function": {"name": "weather", "parameters": CITIES}}
FLAT = {"type": "function", "name": "weather", "parameters": CITIES}
MESSAGES = {"name": "weather", "input_schema": CITIES}
CUT = 70
"""Tokens, here bytes, after which a call is inside its arguments."""


def chat_parts(server: Any, **body: Any) -> tuple[dict[str, Any], list[str], str]:
    """The first delta of the one call, the parts of its arguments, and why it ended."""
    chunks = openai_api.stream(server, tools=[CHAT], **{"max_tokens": 400, **body})
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert not any(d.get("content") for d in deltas)
    head, *rest = [part for d in deltas for part in d.get("tool_calls", ())]
    assert all(part.keys() == {"index", "function"} for part in rest)
    assert all(part["function"].keys() == {"arguments"} for part in rest)
    return (
        head,
        [part["function"]["arguments"] for part in rest],
        chunks[-1]["choices"][0]["finish_reason"],
    )


def test_oa15_a_bound_calls_arguments_come_as_they_are_written_and_add_up_to_the_whole(start):
    server = start()
    whole = openai_api.chat(server, tools=[CHAT], tool_choice="required", max_tokens=400).json()["choices"][0]

    head, parts, reason = chat_parts(server, tool_choice="required")

    assert head["id"].startswith("call_")
    assert (head["index"], head["type"]) == (0, "function")
    assert head["function"] == {"name": "weather", "arguments": ""}
    assert len(parts) > 20
    assert "".join(parts) == COMPACT == whole["message"]["tool_calls"][0]["function"]["arguments"]
    assert reason == whole["finish_reason"] == "tool_calls"


def test_oa15_choices_tell_their_calls_each_by_itself(start):
    chunks = openai_api.stream(start(), tools=[CHAT], tool_choice="required", max_tokens=400, n=2)
    for index in (0, 1):
        own = [c["choices"][0]["delta"] for c in chunks if c["choices"][0]["index"] == index]
        parts = [part for d in own for part in d.get("tool_calls", ())]
        assert "".join(p["function"]["arguments"] for p in parts) == COMPACT
        assert sum("id" in p for p in parts) == 1


def test_oa15_a_call_that_may_still_be_text_comes_when_it_is_whole(start):
    text = openai_api.call_text("weather", **ARGUMENTS)
    server = start(FakeModel(script=lambda p: text))

    _, parts, reason = chat_parts(server)

    assert (parts, reason) == ([COMPACT], "tool_calls")
    server.model.script = lambda p: text.replace("12}", "12,}")
    chunks = openai_api.stream(server, tools=[CHAT], max_tokens=400)
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == server.model.script("")


def test_an_optional_call_comes_as_it_is_written_where_the_server_binds_it(start):
    text = "Looking. " + openai_api.call_text("weather", **ARGUMENTS)
    server = start(FakeModel(script=lambda p: text), bind_calls=True)
    chunks = openai_api.stream(server, tools=[CHAT], max_tokens=400)
    deltas = [c["choices"][0]["delta"] for c in chunks]
    parts = [part["function"]["arguments"] for d in deltas for part in d.get("tool_calls", ())]

    assert "".join(d.get("content") or "" for d in deltas) == "Looking."
    assert len(parts) > 20
    assert "".join(parts) == COMPACT
    server.model.script = lambda p: "No call."
    for body in ({}, {"tools": []}, {"tools": [CHAT], "tool_choice": "none"}):
        assert openai_api.chat(server, **body).json()["choices"][0]["message"]["content"] == "No call."


def test_oa03_a_call_that_was_cut_is_told_as_far_as_it_came_and_ends_with_length(start):
    server = start()
    whole = openai_api.chat(server, tools=[CHAT], tool_choice="required", max_tokens=CUT).json()["choices"][0]

    _, parts, reason = chat_parts(server, tool_choice="required", max_tokens=CUT)

    assert COMPACT.startswith("".join(parts))
    assert "".join(parts) == whole["message"]["tool_calls"][0]["function"]["arguments"]
    assert reason == whole["finish_reason"] == "length"
    assert whole["message"]["content"] is None


def test_a_stop_string_inside_the_arguments_is_no_call_that_could_be_made(start):
    out = openai_api.chat(start(), tools=[CHAT], tool_choice="required", max_tokens=400, stop="the").json()

    assert out["choices"][0]["finish_reason"] == "stop"


def test_legacy_functions_are_called_in_parts_as_well(start):
    chunks = openai_api.stream(
        start(), functions=[CHAT["function"]], function_call={"name": "weather"}, max_tokens=400
    )
    parts = [d["function_call"] for c in chunks if "function_call" in (d := c["choices"][0]["delta"])]

    assert parts[0] == {"name": "weather", "arguments": ""}
    assert "".join(p["arguments"] for p in parts) == COMPACT
    assert len(parts) > 20
    assert chunks[-1]["choices"][0]["finish_reason"] == "function_call"


def test_rs07_the_arguments_of_a_response_come_as_they_are_written(start):
    server = start()
    out = responses_api.stream(server, tools=[FLAT], tool_choice="required", max_output_tokens=400)
    kinds = [e["type"].removeprefix("response.") for e in out]
    deltas = [e["delta"] for e in out if e["type"] == "response.function_call_arguments.delta"]
    done = next(e for e in out if e["type"] == "response.function_call_arguments.done")

    assert kinds[2] == "output_item.added"
    assert kinds[-3:] == ["function_call_arguments.done", "output_item.done", "completed"]
    assert len(deltas) > 20
    assert "".join(deltas) == done["arguments"] == COMPACT
    assert out[-1]["response"]["output"][0]["arguments"] == COMPACT
    whole = responses_api.ask(server, tools=[FLAT], tool_choice="required", max_output_tokens=400).json()
    assert whole["output"][0]["arguments"] == COMPACT


def test_rs09_a_call_of_a_response_that_was_cut_is_incomplete_and_never_done(start):
    out = responses_api.stream(start(), tools=[FLAT], tool_choice="required", max_output_tokens=CUT)
    (item,) = out[-1]["response"]["output"]

    assert out[-1]["type"] == "response.incomplete"
    assert (item["type"], item["status"]) == ("function_call", "incomplete")
    assert item["arguments"] == "".join(e["delta"] for e in out if e["type"].endswith("arguments.delta"))
    assert COMPACT.startswith(item["arguments"])
    assert not any(e["type"].endswith("arguments.done") for e in out)


def test_an06_the_input_of_a_tool_comes_as_it_is_written(start):
    server = start()
    events = anthropic_api.stream(server, tools=[MESSAGES], tool_choice={"type": "any"}, max_tokens=400)
    parts = [e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta"]
    content, end = anthropic_api.rebuild(events)

    assert len(parts) > 20
    assert "".join(parts) == COMPACT
    assert content[0]["input"] == ARGUMENTS
    assert end["delta"]["stop_reason"] == "tool_use"


def test_an06_an_optional_tool_use_comes_as_it_is_written_where_its_tool_asks_for_that(start):
    text = openai_api.call_text("weather", **ARGUMENTS)
    server = start(FakeModel(script=lambda p: text))
    for eager, least, most in ((True, 20, 400), (None, 1, 1)):
        tool = {**MESSAGES, "eager_input_streaming": eager}
        events = anthropic_api.stream(server, tools=[tool], max_tokens=400)
        assert least <= sum(e["type"] == "content_block_delta" for e in events) <= most
        assert anthropic_api.rebuild(events)[0][0]["input"] == ARGUMENTS


def test_an06_a_tool_without_arguments_has_no_parts(start):
    events = anthropic_api.stream(start(), tools=[anthropic_api.NOW], tool_choice={"type": "any"})

    assert not any(e["type"] == "content_block_delta" for e in events)
    assert anthropic_api.rebuild(events)[0][0]["input"] == {}


def test_an06_a_tool_use_that_was_cut_has_the_input_that_is_complete(start):
    server = start()
    body = {"tools": [MESSAGES], "tool_choice": {"type": "any"}}
    in_number = openai_api.call_text("weather", **ARGUMENTS).index("12") + 1
    for limit, known in ((CUT, {}), (in_number, {"city": ARGUMENTS["city"]})):
        whole = anthropic_api.ask(server, **body, max_tokens=limit).json()
        events = anthropic_api.stream(server, **body, max_tokens=limit)
        parts = [e["delta"]["partial_json"] for e in events if e["type"] == "content_block_delta"]
        assert whole["stop_reason"] == events[-2]["delta"]["stop_reason"] == "max_tokens"
        assert whole["content"][0]["input"] == known
        assert COMPACT.startswith("".join(parts))


def test_ollamas_calls_are_whole_or_text(start):
    body = {"model": "fake", "messages": openai_api.USER, "tools": [CHAT], "stream": False}
    for limit in (400, CUT):
        text = openai_api.call_text("weather", **ARGUMENTS)
        server = start(FakeModel(script=lambda p, text=text: text))
        message = server.client.post("/api/chat", json={**body, "options": {"num_predict": limit}}).json()[
            "message"
        ]
        if limit == CUT:
            assert message["content"] == text[:CUT]
        else:
            assert message["tool_calls"][0]["function"]["arguments"] == ARGUMENTS


def test_the_official_openai_client_gathers_arguments_from_their_parts(start):
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{start().url}/v1", api_key="x", max_retries=0)
    strict = {**CHAT, "function": {**CHAT["function"], "strict": True}}

    with client.chat.completions.stream(
        model="fake",
        messages=openai_api.USER,
        tools=[strict],
        tool_choice="required",
        max_tokens=400,
    ) as events:
        seen = list(events)
        (call,) = events.get_final_completion().choices[0].message.tool_calls
    deltas = [e for e in seen if e.type == "tool_calls.function.arguments.delta"]
    (done,) = [e for e in seen if e.type == "tool_calls.function.arguments.done"]
    assert len(deltas) > 20
    assert "".join(e.arguments_delta for e in deltas) == done.arguments == COMPACT
    assert deltas[-1].parsed_arguments == done.parsed_arguments == call.function.parsed_arguments == ARGUMENTS

    with client.responses.stream(
        model="fake",
        input="hi",
        tools=[{**FLAT, "strict": True}],
        tool_choice="required",
        max_output_tokens=400,
    ) as events:
        deltas = [e for e in events if e.type == "response.function_call_arguments.delta"]
        (item,) = events.get_final_response().output
    assert len(deltas) > 20
    assert deltas[-1].snapshot == item.arguments == COMPACT
    assert item.parsed_arguments == ARGUMENTS
    client.close()


def test_the_official_anthropic_client_gathers_the_input_from_its_parts(start):
    anthropic = pytest.importorskip("anthropic")
    client = anthropic.Anthropic(base_url=start().url, api_key="x", max_retries=0)

    with client.messages.stream(
        model="fake",
        max_tokens=400,
        messages=openai_api.USER,
        tools=[MESSAGES],
        tool_choice={"type": "any"},
    ) as events:
        parts = [e for e in events if e.type == "input_json"]
        final = events.get_final_message()

    assert len(parts) > 20
    assert "".join(e.partial_json for e in parts) == COMPACT
    cities = [e.snapshot["city"] for e in parts if e.snapshot.get("city")]
    assert cities[-1] == ARGUMENTS["city"]
    assert final.content[0].input == parts[-1].snapshot == ARGUMENTS
    client.close()
