"""Ollama's API."""

from __future__ import annotations

import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_engine import FakeModel

from llamay_server.store import StoredModel, StoreError

from .test_openai import call_text

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def post(server, path, **body):
    return server.client.post(
        path, json={"model": "fake", "stream": False, "options": {"num_predict": 20, "seed": 4}} | body
    )


def lines(server, path, **body):
    body = {"model": "fake", "options": {"num_predict": 20, "seed": 4}} | body
    with server.client.stream("POST", path, json=body) as r:
        text = r.read().decode()
    assert r.headers["content-type"] == "application/x-ndjson"
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def test_ol01_greeting_and_version(shared):
    for verb in ("GET", "HEAD"):
        r = shared.client.request(verb, "/")
        assert r.status_code == 200
    assert shared.client.get("/").text == "Ollama is running"
    told = shared.client.get("/api/version").json()
    assert re.fullmatch(r"\d+\.\d+\.\d+", told["version"])
    assert tuple(map(int, told["version"].split("."))) >= (0, 6, 4), "older ones are refused by editors"
    assert told["server"].startswith("llamay ")
    assert shared.client.head("/api/tags").status_code == 200


def test_ol02_ol03_streams_by_default_with_numbers_at_the_end(shared):
    for path, body in (("/api/generate", {"prompt": "hi"}), ("/api/chat", {"messages": USER})):
        out = lines(shared, path, **body)
        for line in out[:-1]:
            assert line["done"] is False
            assert line["model"] == "fake"
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", line["created_at"])
            assert "done_reason" not in line
        last = out[-1]
        assert last["done"] is True
        assert last["done_reason"] in ("stop", "length")
        parts = [last.get(k, 0) for k in ("load_duration", "prompt_eval_duration", "eval_duration")]
        assert all(isinstance(n, int) for n in parts)
        assert last["total_duration"] >= sum(parts)
        assert last["prompt_eval_count"] > 0
        assert "load_duration" not in last


def test_ol03_the_parts_equal_the_whole(shared):
    get = lambda line, path: line["response"] if path == "/api/generate" else line["message"]["content"]  # noqa: E731
    for path, body in (("/api/generate", {"prompt": "hi"}), ("/api/chat", {"messages": USER})):
        whole = post(shared, path, **body).json()
        assert "".join(get(line, path) for line in lines(shared, path, **body)) == get(whole, path)


def test_ol04_ol05_ol06_reasons_loading_and_keeping(start, tmp_path):
    def loader(path, *, progress=None):
        return FakeModel("disk")

    server = start(FakeModel(), f"disk={tmp_path / 'x.gguf'}", loader=loader)
    assert (
        post(server, "/api/chat", messages=USER, options={"num_predict": 2, "ignore_eos": True}).json()[
            "done_reason"
        ]
        == "length"
    )
    out = post(server, "/api/generate", model="disk").json()
    assert (out["done"], out["done_reason"], out["response"]) == (True, "load", "")
    assert len(server.client.get("/api/ps").json()["models"]) == 2
    out = post(server, "/api/chat", model="disk", keep_alive=0).json()
    assert out["done_reason"] == "unload"
    assert len(server.client.get("/api/ps").json()["models"]) == 1
    out = post(server, "/api/chat", model="disk", messages=USER, keep_alive="300ms").json()
    assert out["load_duration"] > 0
    server.wait(lambda: len(server.client.get("/api/ps").json()["models"]) == 1)
    for bad in ("soon", "5 parsecs", ""):
        assert post(server, "/api/chat", messages=USER, keep_alive=bad).status_code == 400
    for good in (-1, "-1", "24h", 300, "1h30m"):
        assert post(server, "/api/chat", messages=USER, keep_alive=good).status_code == 200


def test_models_make_room_for_each_other_within_a_budget_of_bytes(start, tmp_path):
    for name, size in (("a", 400), ("b", 500), ("c", 300), ("huge", 5000)):
        (tmp_path / f"{name}.gguf").write_bytes(bytes(size))
    server = start(
        *(f"{name}={tmp_path / name}.gguf" for name in ("a", "b", "c", "huge")),
        loader=lambda path, *, progress=None: FakeModel(path.stem),
        model_mem_budget=1000,
    )

    def loaded():
        return {m["name"].removesuffix(":latest") for m in server.client.get("/api/ps").json()["models"]}

    for name in ("a", "b"):
        assert post(server, "/api/generate", model=name).status_code == 200
    assert loaded() == {"a", "b"}
    assert post(server, "/api/generate", model="c").status_code == 200
    assert loaded() == {"b", "c"}  # the one unused for longest went
    refused = post(server, "/api/generate", model="huge")
    assert refused.status_code == 507
    assert "huge takes 5000 bytes, but all models together may take 1000" in refused.text
    assert loaded() == {"b", "c"}


def test_a_model_that_several_ask_for_at_once_is_loaded_once(start, tmp_path):
    loads = []

    def loader(path, *, progress=None):
        loads.append(path.stem)
        time.sleep(0.1)
        return FakeModel(path.stem)

    server = start(
        *(f"{name}={tmp_path / name}.gguf" for name in ("a", "b")), loader=loader, max_loaded_models=1
    )
    assert post(server, "/api/generate", model="a").status_code == 200
    closing = server.app.services.models.entries["a"].model
    close = closing.close
    closing.close = lambda: (time.sleep(0.1), close())  # making room takes a while
    with ThreadPoolExecutor(4) as pool:
        asked = list(pool.map(lambda _: post(server, "/api/generate", model="b").status_code, range(4)))
    assert asked == [200] * 4
    assert loads == ["a", "b"]


def test_a_draft_model_is_loaded_for_the_model_that_it_was_named_for(start, tmp_path):
    drafts = {}

    def loader(path, *, progress=None, draft=None):
        drafts[path.name] = draft
        return FakeModel(path.stem)

    files = [f"{name}={tmp_path / name}.gguf" for name in ("first", "other", "third")]
    server = start(*files, loader=loader, drafts=(f"{tmp_path}/small.gguf", f"other={tmp_path}/tiny.gguf"))
    for name in ("first", "other", "third"):
        assert post(server, "/api/generate", model=name).status_code == 200
    assert drafts == {
        "first.gguf": tmp_path / "small.gguf",
        "other.gguf": tmp_path / "tiny.gguf",
        "third.gguf": None,
    }


def test_ol07_names_are_found_with_and_without_their_tag_and_echoed_as_asked(shared):
    for name in ("fake", "fake:latest"):
        assert post(shared, "/api/chat", model=name, messages=USER).json()["model"] == name
        assert post(shared, "/api/show", model=name).status_code == 200
    for name in ("fake:q4", "FAKE", "other/fake", "../fake", "x" * 5000):
        assert post(shared, "/api/chat", model=name, messages=USER).status_code == 404, name[:20]


def test_ol22_openais_routes_have_openais_defaults_and_this_one_ollamas(start, monkeypatch):
    server = start()
    seen = []
    submit = server.model.submit
    monkeypatch.setattr(
        server.model, "submit", lambda request: seen.append(request.sampling) or submit(request)
    )
    server.client.post("/v1/chat/completions", json={"messages": USER, "max_tokens": 2})
    server.client.post("/api/chat", json={"model": "fake", "messages": USER, "stream": False})
    openai, ollama = seen
    assert (openai.temperature, openai.top_p, openai.top_k) == (1.0, 1.0, 0)
    assert (ollama.temperature, ollama.top_p, ollama.top_k) == (0.8, 0.9, 40)


def test_ol23_what_ollama_lacks_is_here_without_breaking_its_shapes(start):
    server = start()
    forced = post(
        server, "/api/chat", messages=USER, tools=[TOOL], tool_choice="required", options={"num_predict": 99}
    )
    assert forced.json()["message"]["tool_calls"][0]["function"]["name"] == "weather"
    c = server.client
    chat = {"model": "fake", "messages": USER, "max_tokens": 2}
    assert (
        len(c.post("/v1/chat/completions", json=chat | {"n": 2, "logit_bias": {"97": 5}}).json()["choices"])
        == 2
    )
    assert c.post("/v1/rerank", json={"query": "a", "documents": ["a"]}).status_code == 200
    assert c.post("/v1/messages/count_tokens", json={"messages": USER}).json()["input_tokens"] > 0
    assert c.get("/metrics").status_code == 200
    keyed = start(api_keys=("k",))
    assert keyed.client.get("/api/tags").json() == {"error": keyed.client.get("/api/tags").json()["error"]}


def test_ol08_generate_goes_on_from_its_context_and_refuses_what_it_cannot(shared):
    one = post(shared, "/api/generate", prompt="hi").json()
    two = post(shared, "/api/generate", prompt="more", context=one["context"]).json()
    assert two["context"][: len(one["context"])] == one["context"]
    assert two["prompt_eval_count"] > one["prompt_eval_count"]
    assert "context" not in post(shared, "/api/generate", prompt="hi", raw=True).json()
    for bad in (
        {"raw": True, "system": "s"},
        {"raw": True, "template": "t"},
        {"template": "t"},
        {"context": [999]},
        {"images": ["aGk="]},
    ):
        assert post(shared, "/api/generate", prompt="x", **bad).status_code == 400, bad
    r = post(shared, "/api/generate", prompt="x", suffix="y")
    assert r.status_code == 400
    assert "does not support insert" in r.json()["error"]


def test_ol09_tool_calls_are_objects_in_one_line(start):
    server = start(FakeModel(script=lambda p: "Well. " + call_text("weather", city="Oslo")))
    out = lines(server, "/api/chat", messages=USER, tools=[TOOL], options={"num_predict": 200})
    calls = [line["message"]["tool_calls"] for line in out if "tool_calls" in line["message"]]
    assert len(calls) == 1
    assert calls[0][0]["function"]["arguments"] == {"city": "Oslo"}
    assert out[-1]["done_reason"] == "stop"
    whole = post(server, "/api/chat", messages=USER, tools=[TOOL], options={"num_predict": 200}).json()
    assert whole["message"]["content"] == "Well."
    assert whole["message"]["tool_calls"][0]["function"]["name"] == "weather"
    server.model.script = lambda p: "done"
    replay = [*USER, whole["message"], {"role": "tool", "tool_name": "weather", "content": "cold"}]
    assert post(server, "/api/chat", messages=replay, tools=[TOOL]).json()["message"]["content"] == "done"


def test_ol10_thinking(start):
    server = start(FakeModel(thinks=True, script=lambda p: "<think>hm</think>yes"), FakeModel("plain"))
    out = post(server, "/api/chat", messages=USER, think=True, options={"num_predict": 50}).json()
    assert out["message"] == {"role": "assistant", "content": "yes", "thinking": "hm"}
    r = post(server, "/api/chat", model="plain", messages=USER, think="high")
    assert r.status_code == 400
    assert r.json()["error"] == '"plain" does not support thinking'
    assert post(server, "/api/chat", messages=USER, think="enormous").status_code == 400


def test_ol11_format(start):
    server = start()
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    for form in ("json", schema):
        out = post(server, "/api/chat", messages=USER, format=form, options={"num_predict": 100}).json()
        assert isinstance(json.loads(out["message"]["content"]), dict)
    for bad in ("xml", 5, ["json"]):
        assert post(server, "/api/chat", messages=USER, format=bad).status_code == 400


def test_ol12_options(shared):
    for bad in (
        {"temperature": "hot"},
        {"num_predict": 1.5},
        {"stop": "x"},
        {"top_k": True},
        {"seed": 2**64},
        {"mirostat": 1},
    ):
        assert post(shared, "/api/chat", messages=USER, options=bad).status_code == 400, bad
    for good in (
        {"num_ctx": 8192, "num_gpu": 1, "whatever": 1},
        {"seed": -1},
        {"num_predict": -1, "stop": ["a"]},
        {"mirostat": 0},
    ):
        assert post(shared, "/api/chat", messages=USER, options=good).status_code == 200, good
    r = post(shared, "/api/chat", messages=USER, options={"num_ctx": 999_999, "num_predict": 1})
    assert "num_ctx" in r.headers["warning"]


def test_ol13_logprobs(shared):
    out = post(shared, "/api/chat", messages=USER, logprobs=True, top_logprobs=2).json()
    assert len(out["logprobs"][0]["top_logprobs"]) == 2
    assert post(shared, "/api/chat", messages=USER, logprobs=True, top_logprobs=21).status_code == 400


def test_ol14_errors(start):
    server = start()
    r = post(server, "/api/chat", model="x", messages=USER)
    assert (r.status_code, r.json()["error"].split(";")[0]) == (404, "model 'x' not found")
    r = server.client.post("/api/chat", content=b"")
    assert (r.status_code, r.json()["error"]) == (400, "missing request body")
    assert server.client.post("/api/chat", json={"messages": USER}).status_code == 400
    server.model.fail_after = 3
    out = lines(server, "/api/chat", messages=USER, options={"ignore_eos": True})
    assert out[-1] == {"error": "the engine stumbled"}


def test_t19_a_full_queue_is_503(start):
    server = start(max_queue=1)
    server.model.blocked.set()
    t = threading.Thread(target=post, args=(server, "/api/chat"), kwargs={"messages": USER})
    t.start()
    server.wait(lambda: server.app.services.admission.waiting == 1)
    assert post(server, "/api/chat", messages=USER).status_code == 503
    server.model.blocked.clear()
    t.join()


def test_ol16_ol17_ol18_what_models_are(shared):
    (tag,) = shared.client.get("/api/tags").json()["models"]
    assert {"name", "model", "modified_at", "size", "digest", "details"} <= tag.keys()
    assert re.fullmatch("[0-9a-f]{64}", tag["digest"])
    assert {"parent_model", "format", "family", "families", "parameter_size", "quantization_level"} <= tag[
        "details"
    ].keys()
    (loaded,) = shared.client.get("/api/ps").json()["models"]
    assert {"expires_at", "size_vram", "context_length"} <= loaded.keys()
    for key in ("model", "name"):
        out = shared.client.post("/api/show", json={key: "fake"}).json()
        assert out["model_info"]["fake.context_length"] == 4096
        assert "completion" in out["capabilities"]
        assert "tools" in out["capabilities"]
    assert shared.client.post("/api/show", json={"model": "none"}).status_code == 404


class Shelf:
    """A store in memory."""

    def __init__(self) -> None:
        self.models = {"stored": 1.0}
        self.pulls = 0

    def find(self, name):
        return Path(f"/nowhere/{name}") if name in self.models else None

    def list(self):
        return [StoredModel(n, Path("/x"), 10, "a" * 64, t) for n, t in self.models.items()]

    def profile(self, name):
        return None

    def copy(self, source, destination):
        if source not in self.models:
            raise StoreError(f"model '{source}' not found", missing=True)
        self.models[destination] = 2.0

    def delete(self, name):
        if self.models.pop(name, None) is None:
            raise StoreError(f"model '{name}' not found", missing=True)

    def pull(self, name, *, insecure, status):
        self.pulls += 1
        if name == "none":
            raise StoreError("pull model manifest: file does not exist", missing=True)
        for i in range(20):
            status({"status": "pulling", "completed": i, "total": 20})
            time.sleep(0.01)
        self.models[name] = 3.0
        status({"status": "success"})


def test_pl03_pl08_ol19_ol21_ol28_a_store_is_listed_copied_deleted_and_pulled_into(monkeypatch):
    from . import conftest

    shelf = Shelf()
    real = conftest.create_app
    monkeypatch.setattr(conftest, "create_app", lambda *a, **k: real(*a, **k, store=shelf))
    with conftest.running() as server:
        c = server.client
        assert {m["name"] for m in c.get("/api/tags").json()["models"]} == {"fake", "stored"}
        assert c.post("/api/copy", json={"source": "stored", "destination": "again"}).status_code == 200
        assert c.post("/api/copy", json={"source": "none", "destination": "x"}).status_code == 404
        assert c.request("DELETE", "/api/delete", json={"name": "again"}).status_code == 200
        assert c.request("DELETE", "/api/delete", json={"model": "again"}).status_code == 404
        outs: list[list[dict]] = []
        threads = [
            threading.Thread(target=lambda: outs.append(lines(server, "/api/pull", model="new")))
            for _ in range(2)
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert shelf.pulls == 1
        assert all(out[-1] == {"status": "success"} for out in outs)
        assert post(server, "/api/pull", model="new").json() == {"status": "success"}
        assert c.post("/api/pull", json={"model": "none"}).status_code == 404


def test_without_a_store_its_routes_say_so(shared):
    for path in ("/api/pull", "/api/push", "/api/create", "/api/copy", "/api/blobs/sha256:" + "a" * 64):
        r = shared.client.post(path, json={"model": "x", "source": "a", "destination": "b"})
        assert r.status_code == 501
        assert r.json()["error"]


def test_ol24_a_conversation_that_does_not_fit_is_shortened_and_that_is_said(start):
    server = start(FakeModel(context_length=120))
    long = [{"role": "user", "content": "x" * 90}, {"role": "assistant", "content": "y"}, *USER]
    r = post(server, "/api/chat", messages=long, options={"num_predict": 2})
    assert r.status_code == 200
    assert r.json()["truncated"] is True
    assert r.headers["x-llamay-truncated"]
    assert server.metric("llamay_truncated_total", model="fake") == 1
    r = post(server, "/api/chat", messages=long, truncate=False)
    assert r.status_code == 400
    assert "maximum context length" in r.json()["error"]


def test_ol26_the_official_client(start):
    ollama = pytest.importorskip("ollama")
    server = start(FakeModel(script=lambda p: "hello"))
    client = ollama.Client(host=server.url)
    assert client.chat("fake", messages=USER).message.content == "hello"
    assert "".join(p.response for p in client.generate("fake", "hi", stream=True)) == "hello"
    assert client.list().models[0].model == "fake"
    assert client.show("fake").capabilities
    with pytest.raises(ollama.ResponseError) as e:
        client.chat("none", messages=USER)
    assert e.value.status_code == 404
    client._client.close()
