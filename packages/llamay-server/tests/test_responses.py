"""OpenAI's Responses API."""

from __future__ import annotations

import json

import pytest
from fake_engine import FakeModel

from .test_openai import call_text

TOOL = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
REQUIRED = {
    "id", "object", "created_at", "status", "model", "output", "parallel_tool_calls", "tool_choice", "tools", "error",
    "incomplete_details", "instructions", "metadata", "temperature", "top_p", "text", "reasoning", "truncation",
    "usage", "previous_response_id", "max_output_tokens",
}  # fmt: skip


def ask(server, **body):
    return server.client.post(
        "/v1/responses", json={"model": "fake", "input": "hi", "max_output_tokens": 200, "seed": 1} | body
    )


def stream(server, **body):
    body = {"model": "fake", "input": "hi", "max_output_tokens": 200, "seed": 1, "stream": True} | body
    with server.client.stream("POST", "/v1/responses", json=body) as r:
        text = r.read().decode()
    assert r.status_code == 200, text
    out = []
    for frame in text.removesuffix("\n\n").split("\n\n"):
        kind, data = frame.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert kind == f"event: {value['type']}"
        out.append(value)
    assert [e["sequence_number"] for e in out] == list(range(len(out)))
    return out


def test_rs01_rs02_rs03_the_object_is_whole_and_true(start):
    server = start(FakeModel(script=lambda p: "one two three"))
    out = ask(server, tools=[TOOL], metadata={"a": "b"}, instructions="be kind").json()
    assert out.keys() >= REQUIRED
    assert out["id"].startswith("resp_")
    assert (out["object"], out["status"], out["error"]) == ("response", "completed", None)
    assert out["tools"][0]["name"] == "weather"
    assert (out["metadata"], out["instructions"]) == ({"a": "b"}, "be kind")
    used = out["usage"]
    assert used["total_tokens"] == used["input_tokens"] + used["output_tokens"]
    assert "cached_tokens" in used["input_tokens_details"]
    assert "reasoning_tokens" in used["output_tokens_details"]
    cut = ask(server, max_output_tokens=3).json()
    assert (cut["status"], cut["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_rs04_to_rs09_events_are_complete_and_agree_with_the_object(start):
    text = (
        "<think>hm</think>\n\nLooking. "
        + call_text("weather", city="Oslo")
        + call_text("weather", city="Rome")
    )
    server = start(FakeModel(thinks=True, script=lambda p: text))
    out = stream(server, tools=[TOOL], max_output_tokens=400)
    kinds = [e["type"] for e in out]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    final = out[-1]["response"]
    assert [item["type"] for item in final["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    seen: dict[int, dict] = {}
    for e in out[2:-1]:
        index = e["output_index"]
        item = seen.setdefault(index, {"text": "", "ids": set()})
        item["ids"].add(e.get("item_id") or e["item"]["id"])
        if e["type"].endswith(".delta"):
            item["text"] += e["delta"]
        if e["type"] in ("response.output_text.done", "response.reasoning_text.done"):
            assert e["text"] == item["text"]
            assert e["content_index"] == 0
        if e["type"] == "response.function_call_arguments.done":
            assert e["arguments"] == item["text"]
        if e["type"] == "response.output_item.done":
            assert e["item"] == final["output"][index]
    for index, item in seen.items():
        assert item["ids"] == {final["output"][index]["id"]}
    assert final["output"][1]["content"][0]["text"] == "Looking."
    assert [json.loads(i["arguments"])["city"] for i in final["output"][2:]] == ["Oslo", "Rome"]
    adds = [e for e in out if e["type"] == "response.output_item.added"]
    assert all(e["item"]["status"] == "in_progress" for e in adds)
    assert adds[1]["item"]["content"] == []


def test_rs10_rs11_input_in_all_its_forms(shared):
    def tokens(value, **more):
        r = shared.client.post("/v1/responses/input_tokens", json={"input": value} | more)
        assert r.status_code == 200, r.text
        return r.json()["input_tokens"]

    plain = tokens("hi")
    assert tokens([{"role": "user", "content": "hi"}]) == plain
    assert (
        tokens([{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}])
        == plain
    )
    assert tokens("hi", instructions="be kind") == tokens(
        [{"role": "developer", "content": "be kind"}, {"role": "user", "content": "hi"}]
    )
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c1",
        "name": "weather",
        "arguments": '{"city":"Oslo"}',
        "status": "completed",
    }
    done = {"type": "function_call_output", "call_id": "c1", "output": "cold"}
    assert tokens([{"role": "user", "content": "hi"}, call, done]) > plain
    assert tokens(
        [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "summary": []},
            call,
            {**done, "output": [{"type": "input_text", "text": "cold"}]},
        ]
    )
    for bad in (
        [{"type": "hologram"}],
        [{"role": "robot", "content": "x"}],
        [{"role": "user"}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}],
        [{"type": "function_call", "name": "x"}],
        [{"type": "function_call_output", "output": "x"}],
    ):
        assert ask(shared, input=bad).status_code == 400, bad
    assert ask(shared, input=[{"type": "item_reference", "id": "none"}]).status_code == 404


def test_rs12_cx13_a_previous_response_is_gone_on_from_without_reading_it_again(start):
    server = start()
    one = ask(server, input="word " * 100, max_output_tokens=10).json()
    held = one["usage"]["total_tokens"]
    two = ask(server, input="more", previous_response_id=one["id"], max_output_tokens=10).json()
    assert two["usage"]["input_tokens_details"]["cached_tokens"] >= held - 1
    assert two["usage"]["input_tokens"] > held
    # The same answer as from the whole conversation.
    history = [
        {"role": "user", "content": "word " * 100},
        {"role": "assistant", "content": one["output"][0]["content"][0]["text"]},
        {"role": "user", "content": "more"},
    ]
    whole = ask(server, input=history, max_output_tokens=10).json()
    assert whole["output"][0]["content"][0]["text"] == two["output"][0]["content"][0]["text"]
    # Going on twice from the same one is no conflict.
    again = ask(server, input="more", previous_response_id=one["id"], max_output_tokens=10).json()
    assert again["output"][0]["content"] == two["output"][0]["content"]
    r = ask(server, previous_response_id="resp_none")
    assert (r.status_code, r.json()["error"]["code"]) == (404, "previous_response_not_found")
    instructed = ask(server, instructions="x", max_output_tokens=2).json()
    after = ask(server, input="y", previous_response_id=instructed["id"], max_output_tokens=2).json()
    assert after["instructions"] is None


def test_rs12_store_false_is_not_kept(start):
    server = start()
    out = ask(server, store=False).json()
    assert server.client.get(f"/v1/responses/{out['id']}").status_code == 404
    server.wait(lambda: server.model.contexts == 0)


def test_rs13_hosted_tools_are_left_out_and_named(shared):
    r = ask(shared, tools=[{"type": "web_search"}, {"type": "namespace", "name": "x"}, TOOL])
    assert r.status_code == 200
    assert "web_search, namespace" in r.headers["warning"]


def test_rs14_a_choice_is_kept(start):
    server = start()
    for choice in (
        "required",
        {"type": "function", "name": "weather"},
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]},
    ):
        (item,) = ask(server, tools=[TOOL], tool_choice=choice).json()["output"]
        assert (item["type"], json.loads(item["arguments"])) == ("function_call", {"city": "text"})
    assert ask(server, tools=[TOOL], tool_choice={"type": "function", "name": "none"}).status_code == 400


def test_rs15_text_format(start):
    server = start()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    out = ask(server, text={"format": {"type": "json_schema", "name": "x", "schema": schema}}).json()
    assert json.loads(out["output"][0]["content"][0]["text"]) == {"n": 7}
    for wrong in ({}, {"schema": "{}"}):
        refused = ask(server, text={"format": {"type": "json_schema", "name": "x"} | wrong})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "text.format.schema")


def test_rs16_sealed_reasoning_round_trips(start):
    server = start(FakeModel(thinks=True, script=lambda p: "<think>because</think>yes"))
    out = ask(server, include=["reasoning.encrypted_content"], store=False).json()
    sealed = out["output"][0]["encrypted_content"]
    replay = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "encrypted_content": sealed},
        out["output"][1],
    ]

    def n(items):
        return server.client.post("/v1/responses/input_tokens", json={"input": items}).json()["input_tokens"]

    assert n(replay) - n([replay[0], replay[2]]) == len("<think>because</think>")
    assert n([replay[0], {"type": "reasoning", "summary": [], "encrypted_content": "not ours"}, replay[2]])


def test_rs17_limits_logprobs_and_background(start):
    server = start(FakeModel(context_length=100))
    assert ask(server, input="x" * 200).json()["error"]["code"] == "context_length_exceeded"
    out = ask(server, include=["message.output_text.logprobs"], top_logprobs=2, max_output_tokens=4).json()
    assert len(out["output"][0]["content"][0]["logprobs"][0]["top_logprobs"]) == 2
    for field in ("conversation", "prompt"):
        assert ask(server, **{field: "x"}).status_code == 400
    out = ask(server, background=True, max_output_tokens=5).json()
    assert out["status"] in ("queued", "in_progress")
    url = f"/v1/responses/{out['id']}"
    server.wait(lambda: server.client.get(url).json()["status"] in ("completed", "incomplete"))
    server.model.decode_delay = 0.05
    out = ask(server, background=True, ignore_eos=True, max_output_tokens=60).json()
    assert server.client.post(f"/v1/responses/{out['id']}/cancel").json()["status"] == "cancelled"
    server.wait(lambda: server.model.live == 0)
    assert ask(server, background=True, store=False).status_code == 400


def test_rs18_kept_responses_can_be_read_listed_and_forgotten_by_their_owner(start):
    server = start(api_keys=("ann:a", "bob:b"))
    c, ann, bob = server.client, {"x-api-key": "a"}, {"x-api-key": "b"}
    out = c.post("/v1/responses", json={"input": "hi", "max_output_tokens": 3}, headers=ann).json()
    url = f"/v1/responses/{out['id']}"
    assert c.get(url, headers=ann).json() == out
    items = c.get(f"{url}/input_items", headers=ann).json()
    assert (items["object"], items["data"][0]["content"]) == ("list", [{"type": "input_text", "text": "hi"}])
    for verb, path in (
        ("GET", url),
        ("DELETE", url),
        ("POST", f"{url}/cancel"),
        ("GET", f"{url}/input_items"),
    ):
        assert c.request(verb, path, headers=bob).status_code == 404
    assert c.post(f"{url}/cancel", headers=ann).status_code == 400
    assert c.delete(url, headers=ann).json() == {
        "id": out["id"],
        "object": "response.deleted",
        "deleted": True,
    }
    assert c.get(url, headers=ann).status_code == 404
    server.wait(lambda: server.model.contexts == 0)


def test_rs20_rs21_a_stream_that_cannot_go_on_ends_with_failed(start):
    server = start()
    server.model.fail_after = 3
    out = stream(server, ignore_eos=True)
    assert out[-1]["type"] == "response.failed"
    assert out[-1]["response"]["status"] == "failed"
    assert out[-1]["response"]["error"]["message"] == "the engine stumbled"
    slow = start(request_timeout=0.3)
    slow.model.decode_delay = 0.02
    assert stream(slow, ignore_eos=True)[-1]["type"] == "response.failed"


def test_rs22_leaving_after_the_last_event_is_no_cancel(start):
    import socket

    server = start()
    body = json.dumps({"input": "hi", "stream": True, "max_output_tokens": 5}).encode()
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    with socket.create_connection((host, int(port))) as s:
        s.sendall(
            f"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        out = b""
        while b"event: response.incomplete" not in out and b"event: response.completed" not in out:
            out += s.recv(65536)
    server.wait(lambda: server.app.services.admission.running == 0)
    assert sum(server.metric("llamay_cancelled_total", phase=p) for p in ("queue", "prefill", "decode")) == 0
    assert len(server.app.services.responses._kept) == 1


def test_the_official_client_streams_parses_and_goes_on(start):
    openai = pytest.importorskip("openai")
    pydantic = pytest.importorskip("pydantic")
    server = start()

    class Person(pydantic.BaseModel):
        name: str
        age: int

    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as client:
        parsed = client.responses.parse(model="fake", input="hi", text_format=Person)
        assert parsed.output_parsed == Person(name="text", age=7)
        with client.responses.stream(model="fake", input="hi") as events:
            text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
            final = events.get_final_response()
        assert final.output_text == text
        after = client.responses.create(
            model="fake", input="more", previous_response_id=final.id, max_output_tokens=5
        )
        assert after.usage.input_tokens_details.cached_tokens > 0


def test_rs19_a_stream_is_not_resumed_and_that_is_said(shared):
    out = ask(shared, max_output_tokens=2).json()
    r = shared.client.get(f"/v1/responses/{out['id']}?stream=true&starting_after=3")
    assert r.status_code == 400
    assert r.json()["error"]["param"] == "stream"


def test_rs23_ag02_a_replayed_turn_begins_as_the_first_one_ended(start):
    server = start(
        FakeModel(script=lambda p: "It is cold." if "freezing" in p else call_text("weather", city="Oslo"))
    )
    fixed = {
        "instructions": "Be brief. " * 30,
        "tools": [{**TOOL, "strict": False}, {"type": "web_search"}],
        "prompt_cache_key": "session-1",
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 200,
    }
    first = [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather? " * 20}]}
    ]
    one = ask(server, input=first, **fixed).json()
    (call,) = one["output"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "freezing"}
    two = ask(server, input=[*first, call, result], **fixed).json()
    assert two["output"][0]["content"][0]["text"] == "It is cold."
    assert two["usage"]["input_tokens_details"]["cached_tokens"] >= 0.95 * one["usage"]["input_tokens"]
