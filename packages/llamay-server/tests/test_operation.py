"""What an operator relies on: logs without prompts, metrics for each model, profiles that refuse."""

from __future__ import annotations

import json
import logging
import threading

import pytest
from fake_engine import FakeModel

from llamay_server import Config, ConfigError
from llamay_server._logs import configure

CANARY = "Xyzzy-canary-4711"
SAID = [{"role": "user", "content": CANARY}]
TOOL = {
    "type": "function",
    "function": {"name": CANARY, "description": CANARY, "parameters": {"type": "object"}},
}
ROUTES = [
    ("/v1/chat/completions", {"messages": SAID, "user": CANARY}),
    ("/v1/chat/completions", {"messages": SAID, "tools": [TOOL], "tool_choice": "required"}),
    ("/v1/chat/completions", {"messages": SAID, "response_format": {"type": CANARY}}),
    ("/v1/chat/completions", {"messages": [{"role": CANARY, "content": CANARY}]}),
    ("/v1/chat/completions", {"messages": SAID, "model": CANARY}),
    ("/v1/completions", {"prompt": CANARY, "suffix": CANARY, "stop": [CANARY]}),
    ("/v1/completions", {"prompt": [CANARY, {"x": CANARY}]}),
    ("/v1/responses", {"input": CANARY, "instructions": CANARY}),
    ("/v1/responses", {"input": SAID, "previous_response_id": CANARY}),
    ("/v1/messages", {"messages": SAID, "system": CANARY, "max_tokens": 4}),
    ("/v1/messages/count_tokens", {"messages": SAID}),
    ("/v1/embeddings", {"input": CANARY}),
    ("/v1/rerank", {"query": CANARY, "documents": [CANARY]}),
    ("/api/chat", {"model": "fake", "messages": SAID, "format": CANARY}),
    ("/api/chat", {"model": "fake", "messages": SAID, "stream": False}),
    ("/api/generate", {"model": "fake", "prompt": CANARY, "system": CANARY}),
    ("/api/generate", {"model": CANARY, "prompt": CANARY}),
    ("/api/embed", {"model": "fake", "input": CANARY}),
    ("/api/show", {"model": CANARY}),
    ("/api/create", {"model": CANARY, "from": CANARY, "system": CANARY}),
    ("/completion", {"prompt": CANARY, "grammar": f'root ::= "{CANARY}" |||'}),
    ("/infill", {"input_prefix": CANARY, "input_suffix": CANARY}),
    ("/tokenize", {"content": CANARY}),
    ("/apply-template", {"messages": SAID}),
    ("/v1/contexts", {"prompt": CANARY, "label": CANARY, "marking": CANARY}),
    ("/v1/contexts", {"messages": SAID}),
    (f"/v1/contexts/{CANARY}/generate", {"prompt": CANARY}),
    (f"/{CANARY}", {"prompt": CANARY}),
]


def ask_everything(server) -> None:
    for path, body in ROUTES:
        for more in ({}, {"stream": True}, {"max_tokens": CANARY}, {"temperature": -5}):
            server.client.post(path, json=body | more)
        server.client.post(path, content=json.dumps(body)[:-3])
        server.client.get(
            f"{path}?q={CANARY}", headers={"user-agent": CANARY, "authorization": f"Bearer {CANARY}"}
        )


@pytest.mark.parametrize("log_json", [False, True])
def test_j20_no_log_line_ever_holds_what_a_client_said(start, capsys, log_json, monkeypatch):
    names = ("llamay", "uvicorn")
    before = {n: (logging.getLogger(n).handlers, logging.getLogger(n).propagate) for n in names}
    server = start(FakeModel(script=lambda p: f"echo {CANARY}"), log_level="debug", log_json=log_json)
    configure(server.app.services.config)
    try:
        ask_everything(server)
        server.model.fail_after = 1
        ask_everything(server)
        server.model.fail_after = None
        server.model.fail = "the engine stumbled"
        ask_everything(server)

        def broken(*args, **kwargs):
            raise RuntimeError("a defect")

        monkeypatch.setattr(server.model, "encode", broken)
        monkeypatch.setattr(server.model, "render", broken)
        ask_everything(server)
    finally:
        for name, (handlers, propagate) in before.items():
            logging.getLogger(name).handlers, logging.getLogger(name).propagate = handlers, propagate
    said = capsys.readouterr().err
    assert "a defect" in said  # the defect itself is told, so the logs were looked at
    assert CANARY not in said
    if log_json:
        assert all(isinstance(json.loads(line), dict) for line in said.splitlines())
    assert CANARY not in server.client.get("/metrics").text


def test_metrics_tell_the_models_apart(start):
    server = start(FakeModel("one"), FakeModel("two"))
    for model in ("one", "two", "two"):
        server.client.post(
            "/v1/chat/completions",
            json={"model": model, "messages": SAID, "max_tokens": 3, "ignore_eos": True},
        )
        made = server.client.post("/v1/contexts", json={"model": model, "prompt": "x"}).json()
        server.client.post(f"/v1/contexts/{made['id']}/fork?n=2")
    for name, labels in (
        ("llamay_generations_total", {"reason": "length"}),
        ("llamay_prompt_tokens_total", {}),
        ("llamay_generated_tokens_total", {}),
        ("llamay_time_to_first_token_seconds_count", {}),
        ("llamay_request_duration_seconds_count", {}),
        ("llamay_context_operations_total", {"operation": "fork"}),
        ("llamay_context_operations_total", {"operation": "create"}),
    ):
        one, two = (server.metric(name, model=model, **labels) for model in ("one", "two"))
        assert 0 < one < two, name


def test_the_enterprise_profile_keeps_nothing_on_the_disk_in_the_clear(tmp_path):
    with pytest.raises(ConfigError, match="ctx_key"):
        Config(profile="enterprise", prefix_cache_dir=str(tmp_path))
    Config(profile="enterprise", prefix_cache_dir=str(tmp_path), ctx_key=str(tmp_path / "key"))
    Config(prefix_cache_dir=str(tmp_path))
    assert not Config(profile="enterprise").manages_models


def test_keep_alive_of_a_request_holds_until_the_model_is_unloaded(start, tmp_path):
    server = start(
        FakeModel(), f"disk={tmp_path / 'x.gguf'}", loader=lambda path, progress=None: FakeModel("disk")
    )
    held = lambda: {m["name"] for m in server.client.get("/api/ps").json()["models"]}  # noqa: E731

    def load(**more):
        assert server.client.post("/api/generate", json={"model": "disk", **more}).status_code == 200

    load(keep_alive=0)
    assert held() == {"fake"}
    load()
    assert held() == {"fake", "disk"}
    load(keep_alive="100ms")
    server.wait(lambda: held() == {"fake"})
    load()
    expires = [m["expires_at"] for m in server.client.get("/api/ps").json()["models"] if m["name"] == "disk"]
    assert expires[0].startswith("2318")
    load(keep_alive=300)
    expires = [m["expires_at"] for m in server.client.get("/api/ps").json()["models"] if m["name"] == "disk"]
    assert not expires[0].startswith("2318")


def test_a_stream_limit_and_a_queue_limit_are_told_apart(start):
    server = start(max_streams=1, max_queue=5)
    server.model.blocked.set()
    body = {"messages": SAID, "max_tokens": 2}
    thread = threading.Thread(
        target=server.client.post, args=("/v1/chat/completions",), kwargs={"json": body}
    )
    thread.start()
    server.wait(lambda: server.app.services.admission.waiting == 1)
    refused = server.client.post("/v1/chat/completions", json=body)
    server.model.blocked.clear()
    thread.join()
    assert refused.status_code == 429
    assert server.metric("llamay_refused_total", reason="streams") == 1
