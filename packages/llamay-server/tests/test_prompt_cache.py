"""What OpenAI's and Anthropic's routes tell of the prompt cache, from one notion."""

from __future__ import annotations

import pytest

USER = [{"role": "user", "content": "hi"}]
LONG = "word " * 100
MARK = {"cache_control": {"type": "ephemeral"}}
TOOL = {"name": "now", "input_schema": {"type": "object"}}


def message(server, **body):
    r = server.client.post("/v1/messages", json={"model": "fake", "max_tokens": 4, "messages": USER} | body)
    assert r.status_code == 200, r.text
    return r.json()


def respond(server, **body):
    r = server.client.post("/v1/responses", json={"input": LONG, "max_output_tokens": 4} | body)
    assert r.status_code == 200, r.text
    return r.json()


def test_an19_what_is_marked_counts_as_written_and_is_read_the_second_time(start):
    server = start()
    body = {
        "system": [{"type": "text", "text": LONG, **MARK}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "new"}]}],
    }
    one, two = message(server, **body)["usage"], message(server, **body)["usage"]
    assert one["cache_creation_input_tokens"] >= len(LONG)
    assert one["cache_creation"]["ephemeral_5m_input_tokens"] == one["cache_creation_input_tokens"]
    assert one["input_tokens"] > 0
    assert two["cache_creation_input_tokens"] == 0
    assert two["cache_read_input_tokens"] >= one["cache_creation_input_tokens"]
    total = [sum(u[k] for k in u if k.endswith("input_tokens")) for u in (one, two)]
    assert total[0] == total[1]


@pytest.mark.parametrize(
    ("body", "least"),
    [
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": LONG, **MARK}]}]}, len(LONG)),
        ({"messages": [{"role": "user", "content": LONG}], **MARK}, len(LONG)),
        ({"tools": [{**TOOL, "description": LONG, **MARK}]}, len(LONG)),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": LONG, **MARK}]},
                    {"role": "assistant", "content": "ok"},
                    *USER,
                ]
            },
            len(LONG),
        ),
    ],
)
def test_an19_a_mark_may_stand_anywhere(start, body, least):
    usage = message(start(), **body)["usage"]
    assert usage["cache_creation_input_tokens"] >= least
    assert usage["input_tokens"] > 0


def test_an19_an_hour_is_told_apart_and_no_mark_is_nothing_written(start):
    server = start()
    text = {"type": "text", "text": LONG, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    hour = message(server, system=[text])["usage"]
    assert hour["cache_creation"]["ephemeral_1h_input_tokens"] == hour["cache_creation_input_tokens"] > 0
    assert message(server, system="other")["usage"]["cache_creation_input_tokens"] == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"messages": [*USER, {"role": "assistant", "content": "x"}, *USER]}, None),
        ({"system": "other"}, "system_changed"),
        ({"tools": [TOOL, {"name": "then", "input_schema": {}}]}, "tools_changed"),
        ({"messages": [{"role": "user", "content": "ho"}]}, "messages_changed"),
        ({"model": "second"}, "model_changed"),
        ({"tool_choice": {"type": "none"}}, "unavailable"),
    ],
)
def test_an21_m05_a_miss_is_explained(start, change, reason):
    from fake_engine import FakeModel

    server = start(FakeModel(), FakeModel("second"))
    base = {"system": "s", "tools": [TOOL], "diagnostics": {"previous_message_id": None}}
    one = message(server, **base)
    assert one["diagnostics"] == {"cache_miss_reason": None}
    two = message(server, **base | {"diagnostics": {"previous_message_id": one["id"]}} | change)
    found = two["diagnostics"]["cache_miss_reason"]
    assert (found and found["type"]) == reason
    if reason in ("system_changed", "messages_changed"):
        assert found["cache_missed_input_tokens"] > 0
        assert found["first_different_token"] > 0


def test_an21_unknown_messages_and_those_of_others_are_not_found(start):
    server = start(api_keys=("ann:a", "bob:b"))

    def ask(key, previous):
        body = {
            "model": "fake",
            "max_tokens": 2,
            "messages": USER,
            "diagnostics": {"previous_message_id": previous},
        }
        return server.client.post("/v1/messages", json=body, headers={"x-api-key": key}).json()

    mine = ask("a", None)["id"]
    for key, previous in (("a", "msg_none"), ("b", mine)):
        assert ask(key, previous)["diagnostics"]["cache_miss_reason"] == {
            "type": "previous_message_not_found"
        }
    assert "diagnostics" not in message(start())


def test_m04_usage_tells_what_was_written_and_what_was_found(start):
    server = start()
    one, two = (respond(server)["usage"]["input_tokens_details"] for _ in range(2))
    assert one["cached_tokens"] == 0
    assert one["cache_write_tokens"] > len(LONG)
    assert two["cached_tokens"] > len(LONG)
    assert two["cache_write_tokens"] < 20
    body = {"messages": [{"role": "user", "content": "other " + LONG}], "max_tokens": 2}
    chat = server.client.post("/v1/chat/completions", json=body).json()["usage"]["prompt_tokens_details"]
    assert chat["cache_write_tokens"] > len(LONG)


def test_m04_explicit_mode_without_a_breakpoint_keeps_nothing(start):
    server = start()
    off = {"prompt_cache_options": {"mode": "explicit"}}
    part = {"type": "input_text", "text": LONG, "prompt_cache_breakpoint": {"mode": "explicit"}}
    for _ in range(2):
        usage = respond(server, **off)["usage"]["input_tokens_details"]
        assert usage == {"cached_tokens": 0, "cache_write_tokens": 0}
        body = {"messages": USER, "max_tokens": 2} | off
        chat = server.client.post("/v1/chat/completions", json=body).json()["usage"]["prompt_tokens_details"]
        assert chat == {"cached_tokens": 0, "cache_write_tokens": 0}
    marked = respond(server, input=[{"role": "user", "content": [part]}], **off)
    assert marked["usage"]["input_tokens_details"]["cache_write_tokens"] > 0


def test_m04_prewarming_reads_the_prompt_and_writes_nothing(start):
    server = start()
    warm = respond(server, prompt_cache_options={"prewarm": True})
    assert (warm["status"], warm["output"], warm["usage"]["output_tokens"]) == ("completed", [], 0)
    assert respond(server)["usage"]["input_tokens_details"]["cached_tokens"] > len(LONG)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, {"type": "cache_hit"}),
        ({"prompt_cache_key": "k"}, {"type": "cache_miss", "reason": "prompt_cache_key_changed"}),
        ({"input": "x"}, {"type": "cache_miss", "reason": "input_changed"}),
        ({"instructions": "x"}, {"type": "cache_miss", "reason": "input_changed"}),
        ({"tools": [{"type": "function", "name": "f"}]}, {"type": "cache_miss", "reason": "tools_changed"}),
        (
            {"text": {"format": {"type": "json_object"}}},
            {"type": "cache_miss", "reason": "text_format_changed"},
        ),
        ({"reasoning": {"effort": "low"}}, {"type": "cache_miss", "reason": "reasoning_effort_changed"}),
    ],
)
def test_m04_m06_a_miss_is_explained(start, change, told):
    server = start()
    one = respond(server)
    assert "prompt_cache_diagnostics" not in one
    options = {"prompt_cache_options": {"comparison_response_id": one["id"]}}
    found = respond(server, **change | options)["prompt_cache_diagnostics"]
    assert {k: found[k] for k in told} == told
    if told["type"] == "cache_miss":
        assert found["cache_missed_tokens"] >= 0
        assert found["comparison_reusable_tokens"] >= 0
    unknown = {"prompt_cache_options": {"comparison_response_id": "resp_none"}}
    assert respond(server, **unknown)["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}
