"""What coding agents do to a server beside asking it (the agents themselves run in tests/server)."""

from __future__ import annotations

import threading
import time

import pytest
from byte_model import byte_model, writes
from fake_engine import FakeModel

from llamay_server.chat.tools import Tool, Toolbox
from llamay_server.engine.constraint import UnsupportedConstraintError
from llamay_server.engine.grammar import compile_output

from .test_openai import call_text
from .test_transport import leave

# The words that the schemas of Codex, OpenCode and Claude Code hold.
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "path": {"type": "string", "pattern": "^/[a-z]+$", "maxLength": 20},
        "url": {"type": "string", "format": "uri"},
        "lines": {"type": "array", "items": {"type": "integer", "exclusiveMinimum": 0}, "maxItems": 3},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


def tools_constraint(tools, mode="required"):
    constraint = Toolbox(tuple(tools), mode).constraint("hermes", None)
    assert constraint is not None
    return constraint


def test_ag03_the_schemas_of_agents_compile_and_what_is_loosened_is_told():
    model = byte_model()
    made = compile_output(model, tools_constraint([Tool("edit", "", SCHEMA)]))
    assert writes(made, '<tool_call>\n{"name": "edit", "arguments": {"path": "/ab"')
    odd = {"type": "object", "properties": {"x": {"type": "string", "pattern": r"^(a)\1$"}}}
    loose = compile_output(model, tools_constraint([Tool("f", "", odd)]))
    assert loose.warnings, "a word that is not enforced is told"
    with pytest.raises(UnsupportedConstraintError):
        compile_output(model, tools_constraint([Tool("f", "", odd, strict=True)]))


def test_ag05_two_hundred_tools_compile_in_seconds_and_are_kept():
    model = byte_model()
    constraint = tools_constraint([Tool(f"tool_{i}", "does", SCHEMA) for i in range(200)])
    began = time.process_time()
    compile_output(model, constraint)
    first = time.process_time() - began
    began = time.process_time()
    compile_output(model, constraint)
    assert first < 10
    assert time.process_time() - began < max(first / 2, 0.05)


def test_ag04_a_limit_above_the_context_is_clamped_on_every_route(start):
    server = start(FakeModel(context_length=200, script=lambda p: "done"))
    user = [{"role": "user", "content": "hi"}]
    for path, body in (
        ("/v1/chat/completions", {"messages": user, "max_tokens": 32_000}),
        ("/v1/messages", {"messages": user, "max_tokens": 32_000}),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 32_000}),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 32_000}),
        ("/completion", {"prompt": "hi", "n_predict": 32_000}),
        (
            "/api/generate",
            {"model": "fake", "prompt": "hi", "stream": False, "options": {"num_predict": 32_000}},
        ),
    ):
        r = server.client.post(path, json=body)
        assert r.status_code == 200, (path, r.text)
        assert "done" in r.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hi", "max_output_tokens": 4000}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000}),
    ],
)
def test_ag06_an_agent_that_is_killed_in_its_stream_frees_its_place(start, path, body):
    server = start()
    server.model.decode_delay = 0.01
    admission = server.app.services.admission
    body = body | {"stream": True, "ignore_eos": True}
    leave(server, path, body, when=lambda: admission.running == 1)
    assert server.wait(lambda: server.model.live == 0) < 0.25
    server.wait(lambda: server.model.contexts == 0 and server.app.services.admission.running == 0)
    assert not server.app.services.responses._kept


def test_ag07_a_turn_is_found_however_its_call_is_spelled_on_the_way_back(start):
    server = start(FakeModel(script=lambda p: "ok" if "cold" in p else call_text("weather", city="Oslo")))
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    user = [{"role": "user", "content": "weather? " * 20}]
    c = server.client
    one = c.post("/v1/chat/completions", json={"messages": user, "tools": tools, "max_tokens": 200}).json()
    call = one["choices"][0]["message"]["tool_calls"][0]
    spelled = ['{"city":"Oslo"}', '{ "city" : "Oslo" }', call["function"]["arguments"]]
    counts = set()
    for arguments in spelled:
        for content in ("", None):
            function = {"name": "weather", "arguments": arguments}
            said = {"role": "assistant", "content": content, "tool_calls": [{**call, "function": function}]}
            messages = [*user, said, {"role": "tool", "tool_call_id": call["id"], "content": "cold"}]
            two = c.post(
                "/v1/chat/completions", json={"messages": messages, "tools": tools, "max_tokens": 20}
            ).json()
            counts.add(two["usage"]["prompt_tokens"])
            assert (
                two["usage"]["prompt_tokens_details"]["cached_tokens"] >= 0.95 * one["usage"]["prompt_tokens"]
            )
    assert len(counts) == 1


def test_ag08_a_title_request_beside_the_main_one_evicts_nothing(start):
    server = start()
    main = [{"role": "system", "content": "You edit code. " * 30}, {"role": "user", "content": "fix it"}]
    title = [{"role": "system", "content": "You name things."}, {"role": "user", "content": "fix it"}]
    ask = lambda messages: server.client.post(  # noqa: E731
        "/v1/chat/completions", json={"messages": messages, "max_tokens": 5}
    ).json()["usage"]
    ask(main)
    threads = [threading.Thread(target=ask, args=(m,)) for m in (title, main, title)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    again = ask([*main, {"role": "assistant", "content": "done"}, {"role": "user", "content": "more"}])
    assert again["prompt_tokens_details"]["cached_tokens"] >= 0.95 * len("You edit code. " * 30)
