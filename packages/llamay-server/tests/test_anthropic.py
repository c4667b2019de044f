"""Anthropic's Messages API."""

from __future__ import annotations

import json

import pytest
from fake_engine import FakeModel

from .test_openai import call_text

USER = [{"role": "user", "content": "hi"}]
TOOL = {"name": "weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
NOW = {"name": "now", "input_schema": {"type": "object"}}


def ask(server, **body):
    return server.client.post(
        "/v1/messages", json={"model": "fake", "max_tokens": 200, "messages": USER} | body
    )


def stream(server, **body):
    with server.client.stream(
        "POST",
        "/v1/messages",
        json={"model": "fake", "max_tokens": 200, "messages": USER, "stream": True} | body,
    ) as r:
        text = r.read().decode()
    assert r.status_code == 200, text
    out = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        event, data = frame.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert event == f"event: {value['type']}"
        out.append(value)
    return out


def rebuild(events):
    """What a client makes of the events; checks their order on the way."""
    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "message_stop"
    assert events[-2]["type"] == "message_delta"
    message, open_index = events[0]["message"], None
    assert message["content"] == []
    assert message["stop_reason"] is None
    parts: dict[int, str] = {}
    for e in events[1:-2]:
        match e["type"]:
            case "content_block_start":
                assert open_index is None
                open_index = e["index"]
                assert open_index == len(message["content"])
                message["content"].append(e["content_block"])
                parts[open_index] = ""
            case "content_block_delta":
                assert e["index"] == open_index
                block, delta = message["content"][open_index], e["delta"]
                if delta["type"] == "text_delta":
                    block["text"] += delta["text"]
                elif delta["type"] == "thinking_delta":
                    block["thinking"] += delta["thinking"]
                elif delta["type"] == "signature_delta":
                    block["signature"] = delta["signature"]
                else:
                    parts[open_index] += delta["partial_json"]
            case "content_block_stop":
                assert e["index"] == open_index
                if message["content"][open_index]["type"] == "tool_use" and parts[open_index]:
                    message["content"][open_index]["input"] = json.loads(parts[open_index])
                open_index = None
    assert open_index is None
    return message["content"], events[-2]


def test_an01_an02_the_message_and_its_reasons(start):
    server = start(FakeModel(script=lambda p: "one two three"))
    out = ask(server).json()
    assert out["id"].startswith("msg_")
    assert (out["type"], out["role"], out["model"]) == ("message", "assistant", "fake")
    assert out["content"] == [{"type": "text", "text": "one two three"}]
    assert (out["stop_reason"], out["stop_sequence"]) == ("end_turn", None)
    out = ask(server, stop_sequences=["two"]).json()
    assert (out["stop_reason"], out["stop_sequence"]) == ("stop_sequence", "two")
    assert ask(server, max_tokens=3).json()["stop_reason"] == "max_tokens"
    small = start(FakeModel(context_length=60))
    assert (
        ask(small, max_tokens=32_000, ignore_eos=True).json()["stop_reason"]
        == "model_context_window_exceeded"
    )


def test_an01_an19_usage_adds_up_and_reads_are_true(start):
    server = start()
    first, second = ask(server).json()["usage"], ask(server).json()["usage"]
    total = first["input_tokens"] + first["cache_creation_input_tokens"] + first["cache_read_input_tokens"]
    assert first["cache_read_input_tokens"] == 0
    assert second["cache_read_input_tokens"] > 0
    assert total == sum(
        second[k] for k in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    )


def test_an03_to_an07_events_open_and_close_each_block_in_turn(start):
    text = "<think>hm</think>\n\nLooking. " + call_text("weather", city="Oslo") + call_text("now")
    server = start(FakeModel(thinks=True, script=lambda p: text))
    whole = ask(server, tools=[TOOL, NOW], max_tokens=400).json()
    content, delta = rebuild(stream(server, tools=[TOOL, NOW], max_tokens=400))
    assert [b["type"] for b in content] == ["thinking", "text", "tool_use", "tool_use"]
    assert content[2]["input"] == {"city": "Oslo"}
    assert content[3]["input"] == {}
    assert all(b["id"].startswith("toolu_") for b in content[2:])
    strip = lambda blocks: [{k: v for k, v in b.items() if k != "id"} for b in blocks]  # noqa: E731
    assert strip(content) == strip(whole["content"])
    assert delta["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == whole["usage"]["output_tokens"]
    assert "timings" not in whole


def test_an04_the_start_has_the_input_count(shared):
    assert stream(shared)[0]["message"]["usage"]["input_tokens"] > 0


def test_an09_errors_have_their_shape_and_type(start):
    server = start(api_keys=("k",))
    r = ask(server)
    assert (r.status_code, r.json()["error"]["type"]) == (401, "authentication_error")
    assert r.json()["type"] == "error"
    assert r.json()["request_id"] == r.headers["request-id"]
    server = start(max_queue=1)
    assert ask(server, model="none").json()["error"]["type"] == "not_found_error"
    server.model.blocked.set()
    import threading

    t = threading.Thread(target=ask, args=(server,))
    t.start()
    server.wait(lambda: server.app.services.admission.waiting == 1)
    r = ask(server)
    assert (r.status_code, r.json()["error"]["type"]) == (529, "overloaded_error")
    assert "retry-after" in r.headers
    server.model.blocked.clear()
    t.join()
    server.model.fail_after = 3
    last = stream(server, ignore_eos=True)[-1]
    assert (last["type"], last["error"]["type"]) == ("error", "invalid_request_error")


def test_an11_an12_an13_messages_in_all_their_forms(start):
    server = start(FakeModel(script=lambda p: "ok"))
    use = {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "noon"}]}
    good = [
        [
            {
                "role": "user",
                "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
            }
        ],
        [*USER, *USER, {"role": "system", "content": "mid"}, *USER],
        [
            *USER,
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, use]},
            {"role": "user", "content": [result, {"type": "text", "text": "so?"}]},
        ],
        [
            {
                "role": "user",
                "content": [
                    {
                        "type": "document",
                        "source": {"type": "text", "media_type": "text/plain", "data": "doc"},
                    }
                ],
            }
        ],
    ]
    for messages in good:
        r = ask(server, messages=messages, system=[{"type": "text", "text": "s"}])
        assert r.status_code == 200, r.text
    r = ask(
        server,
        messages=[
            *USER,
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [{**result, "tool_use_id": "toolu_9"}]},
        ],
    )
    assert r.status_code == 400
    assert "toolu_9" in r.json()["error"]["message"]
    bad = [
        [],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}],
        [{"role": "user", "content": [{"type": "hologram"}]}],
        [{"role": "robot", "content": "x"}],
        [{"role": "user", "content": [use]}],
    ]
    for messages in bad:
        assert ask(server, messages=messages).status_code == 400, messages


def test_ag07_an19_replays_render_alike(shared):
    def count(messages, **more):
        r = shared.client.post("/v1/messages/count_tokens", json={"messages": messages} | more)
        assert r.status_code == 200, r.text
        assert r.json().keys() == {"input_tokens"}
        return r.json()["input_tokens"]

    plain = count(USER, system="be kind")
    blocks = [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
    ]
    assert count(blocks, system=[{"type": "text", "text": "be kind"}]) == plain
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=abc12;"}
    assert count(USER, system=[billing, {"type": "text", "text": "be kind"}]) == plain


def test_an14_a_choice_is_kept(start):
    server = start()
    for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
        out = ask(server, tools=[TOOL], tool_choice=choice).json()
        assert out["stop_reason"] == "tool_use"
        assert out["content"][0]["input"] == {"city": "text"}
    for choice in ({"type": "tool", "name": "none"}, {"type": "tool"}, {"type": "maybe"}):
        assert ask(server, tools=[TOOL], tool_choice=choice).status_code == 400
    assert ask(server, tool_choice={"type": "any"}).status_code == 400
    server.model.script = lambda p: call_text("now")
    assert ask(server, tools=[NOW], tool_choice={"type": "none"}).json()["stop_reason"] == "end_turn"
    server.model.script = lambda p: call_text("now") + call_text("now")
    out = ask(server, tools=[NOW], tool_choice={"type": "auto", "disable_parallel_tool_use": True}).json()
    assert sum(b["type"] == "tool_use" for b in out["content"]) == 1


def test_an15_hosted_tools_are_left_out_and_named(shared):
    r = ask(shared, tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert r.status_code == 200
    assert "web_search_20250305" in r.headers["warning"]


def test_an16_thinking_ends_at_its_budget_and_can_be_hidden(start):
    server = start(
        FakeModel(
            thinks=True, script=lambda p: "fine" if "</think>" in p else "<think>" + "long thought " * 50
        )
    )
    out = ask(server, thinking={"type": "enabled", "budget_tokens": 30}, max_tokens=300).json()
    assert out["content"][-1] == {"type": "text", "text": "fine"}
    assert out["content"][0]["type"] == "thinking"
    assert out["usage"]["output_tokens"] < 60
    server.model.script = lambda p: "<think>hm</think>yes"
    out = ask(server, thinking={"type": "adaptive", "display": "omitted"}).json()
    assert out["content"][0]["thinking"] == ""
    assert out["content"][0]["signature"]
    content, _ = rebuild(stream(server, thinking={"type": "adaptive", "display": "omitted"}))
    assert content == out["content"]


def test_an17_a_trailing_assistant_message_is_a_prefill(start):
    server = start()
    out = ask(server, messages=[*USER, {"role": "assistant", "content": "alp"}], temperature=0, max_tokens=3)
    assert out.status_code == 200
    assert not out.json()["content"][0]["text"].startswith("alp")


def test_an18_counting_equals_the_input_of_the_message(shared):
    body = {"messages": USER, "system": "s", "tools": [TOOL]}
    n = shared.client.post("/v1/messages/count_tokens", json=body).json()["input_tokens"]
    used = ask(shared, **body).json()["usage"]
    assert n == used["input_tokens"] + used["cache_read_input_tokens"] + used["cache_creation_input_tokens"]


def test_an20_zero_tokens_read_the_prompt_only(shared):
    out = ask(shared, max_tokens=0).json()
    assert (out["content"], out["stop_reason"], out["usage"]["output_tokens"]) == ([], "max_tokens", 0)


def test_an24_an26_unknown_routes_and_overflows(start):
    server = start(FakeModel(context_length=50))
    r = server.client.post("/v1/messages/batches", json={})
    assert (r.status_code, r.json()["error"]["type"]) == (404, "not_found_error")
    r = ask(server, messages=[{"role": "user", "content": "x" * 100}])
    assert r.status_code == 400
    message = r.json()["error"]["message"]
    assert message.startswith("prompt is too long: ")
    assert message.endswith(" tokens > 50 maximum")


def test_schema_output(start):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    out = ask(start(), output_config={"format": {"type": "json_schema", "schema": schema}}).json()
    assert json.loads(out["content"][0]["text"]) == {"n": 7}


def test_an23_the_official_client_streams_and_loops_over_tools(start):
    anthropic = pytest.importorskip("anthropic")
    server = start(
        FakeModel(script=lambda p: "It is noon." if "noon" in p else call_text("clock", zone="UTC"))
    )
    client = anthropic.Anthropic(base_url=server.url, api_key="x", max_retries=0)
    with client.messages.stream(model="fake", max_tokens=200, messages=USER, tools=[TOOL]) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    assert final.content[0].text == text

    @anthropic.beta_tool
    def clock(zone: str) -> str:
        """The time.

        Args:
            zone: of the world
        """
        return f"noon {zone}"

    runner = client.beta.messages.tool_runner(model="fake", max_tokens=200, messages=USER, tools=[clock])
    last = list(runner)[-1]
    assert last.content[0].text == "It is noon."
    client.close()


def test_a_thread_goes_on_from_its_reply_without_reading_it_again(start):
    server = start(FakeModel(script=lambda p: "It is noon." if "noon" in p else "Hello. " + call_text("now")))
    one = ask(server, tools=[NOW], thread={"type": "create"}).json()
    result = {"type": "tool_result", "tool_use_id": one["content"][1]["id"], "content": "noon"}
    go_on = {
        "messages": [{"role": "user", "content": [result]}],
        "thread": {"type": "continue", "previous_message_id": one["id"]},
    }
    for _ in range(2):  # a reply can be gone on from more than once: contexts are values
        two = ask(server, **go_on).json()
        assert two["content"][0]["text"] == "It is noon."
        assert two["usage"]["cache_read_input_tokens"] > one["usage"]["input_tokens"] - 5
    content, _ = rebuild(stream(server, **go_on))
    assert content[0]["text"] == "It is noon."
    r = ask(server, thread={"type": "continue", "previous_message_id": "msg_none"})
    assert r.status_code == 404
    assert r.json()["error"]["details"] == {"error_code": "thread_not_found"}


def test_an08_a_long_prefill_is_kept_alive_by_pings(start):
    server = start(ping_interval=0.05)
    server.model.prefill_delay = 0.3
    events = stream(server)
    pings = [e for e in events if e["type"] == "ping"]
    assert pings[0] == {"type": "ping"}
    rebuild([e for e in events if e["type"] != "ping"])


def test_an10_keys_versions_and_betas_in_all_their_forms(start):
    server = start(api_keys=("k",))
    body = {"model": "fake", "max_tokens": 2, "messages": USER}
    for headers in (
        {"x-api-key": "k"},
        {"authorization": "Bearer k"},
        {"x-api-key": "k", "anthropic-version": "2023-06-01", "anthropic-beta": "a-1,b-2,unheard-of"},
    ):
        for path in ("/v1/messages", "/v1/messages?beta=true"):
            assert server.client.post(path, json=body, headers=headers).status_code == 200
    assert server.client.post("/v1/messages", json=body, headers={"x-api-key": "no"}).status_code == 401


def test_an27_a_body_over_the_limit_has_the_originals_type(start):
    server = start(max_body=1000)
    r = ask(server, messages=[{"role": "user", "content": "x" * 2000}])
    assert (r.status_code, r.json()["error"]["type"]) == (413, "request_too_large")
    assert r.json()["type"] == "error"
