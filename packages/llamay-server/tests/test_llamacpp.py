"""Llama.cpp's own routes."""

from __future__ import annotations

import json
import threading

import pytest
from fake_engine import FakeModel

USER = [{"role": "user", "content": "hi"}]


def complete(server, **body):
    r = server.client.post("/completion", json={"prompt": "once upon", "n_predict": 8, "seed": 2} | body)
    assert r.status_code == 200, r.text
    return r.json()


def test_lc01_health_says_that_the_model_loads_and_is_open(start, tmp_path):
    ready, loading = threading.Event(), threading.Event()

    def loader(path, *, progress=None):
        loading.set()
        assert ready.wait(10)
        return FakeModel("slow")

    server = start(f"slow={tmp_path / 'slow.gguf'}", loader=loader, api_keys=("k",))
    r = server.client.get("/health")
    assert r.status_code == 503
    assert r.json()["error"] == {"code": 503, "message": "Loading model", "type": "unavailable_error"}
    assert loading.wait(5)
    assert server.client.get("/v1/health").status_code == 503
    ready.set()
    server.wait(lambda: server.client.get("/health").status_code == 200)
    assert server.client.get("/health").json() == {"status": "ok"}


def test_lc02_props_describe_the_model_and_cannot_be_set(start, tmp_path):
    def loader(path, *, progress=None):
        import dataclasses

        model = FakeModel("disk")
        model.info = dataclasses.replace(model.info, path=path)
        return model

    file = tmp_path / "disk.gguf"
    server = start(f"disk={file}", loader=loader)
    props = server.client.get("/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 4096
    assert props["model_path"] == "disk.gguf"  # the name of the file, not where it lies
    assert props["chat_template"]
    assert props["modalities"] == {"vision": False, "audio": False}
    assert props["total_slots"] >= 1
    assert props["build_info"].startswith("llamay ")
    shown = start(f"disk={file}", loader=loader, expose_paths=True)
    assert shown.client.get("/props").json()["model_path"] == str(file)
    r = server.client.post("/props", json={})
    assert (r.status_code, r.headers["x-should-retry"]) == (501, "false")


def test_lc03_slots_show_who_is_busy_and_no_prompt(start):
    server = start(max_streams=1)
    server.model.decode_delay = 0.01
    body = {"messages": [{"role": "user", "content": "secret words"}], "max_tokens": 300, "ignore_eos": True}
    t = threading.Thread(target=server.client.post, args=("/v1/chat/completions",), kwargs={"json": body})
    t.start()
    server.wait(lambda: server.app.services.admission.running == 1)
    r = server.client.get("/slots")
    assert [s["is_processing"] for s in r.json()] == [True]
    assert r.json()[0]["n_ctx"] == 4096
    assert "secret" not in r.text
    assert server.client.get("/slots?fail_on_no_slot=1").status_code == 503
    t.join()
    server.wait(lambda: server.client.get("/slots").json()[0]["is_processing"] is False)
    assert server.client.get("/slots?fail_on_no_slot=1").status_code == 200
    assert start(slots=False).client.get("/slots").status_code == 501


def test_lc04_every_metric_says_what_it_is_and_the_route_can_be_off(start):
    text = start().client.get("/metrics").text
    names = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and line[0] != "#"}
    helped = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    typed = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert helped == typed
    for name in names:
        stems = {name, name.removesuffix("_total"), name.removesuffix("_created")}
        stems |= {name.removesuffix(end) for end in ("_bucket", "_sum", "_count")}
        assert stems & typed, name
    r = start(metrics=False).client.get("/metrics")
    assert r.status_code == 501


def test_lc05_lc06_numbers_of_the_prompt_add_up_and_its_cache_changes_no_text(start):
    server = start()
    prompt = "once upon a time " * 20
    one, two = (complete(server, prompt=prompt) for _ in range(2))
    off = complete(server, prompt=prompt, cache_prompt=False)
    for out in (one, two, off):
        assert out["timings"]["prompt_n"] + out["timings"]["cache_n"] == out["tokens_evaluated"]
        assert out["content"] == one["content"]
    assert one["timings"]["cache_n"] == off["timings"]["cache_n"] == 0
    assert two["timings"]["cache_n"] > 0
    assert off["stop_type"] == one["stop_type"]


def test_lc05_the_object_has_all_its_keys(shared):
    out = complete(
        shared, stop=["zzz"], ignore_eos=True, return_tokens=True, logit_bias=[[97, False], [98, 2]]
    )
    keys = {
        *("content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated"),
        *("generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word"),
        *("tokens_cached", "timings"),
    }
    assert keys <= out.keys()
    assert (out["stop"], out["stop_type"], out["truncated"]) == (True, "limit", False)
    assert len(out["tokens"]) == out["tokens_predicted"] == 8
    biases = out["generation_settings"]["logit_bias"]
    assert {"token": 97, "bias": None} in biases
    assert {"token": 98, "bias": 2.0} in biases
    assert len(biases) == 3, "ignore_eos bans the end token"
    assert complete(shared)["generation_settings"]["logit_bias"] == []


def test_lc05_a_text_that_the_context_ends_is_truncated(start):
    server = start(FakeModel(context_length=40))
    out = complete(server, n_predict=-1, ignore_eos=True)
    assert (out["truncated"], out["stop_type"]) == (True, "limit")
    assert complete(server, n_predict=3, ignore_eos=True)["truncated"] is False


@pytest.mark.parametrize("text", ["plain", "日本語 ☀ e\u0301", "", "<|im_start|>"])
def test_lc07_tokens_and_their_pieces_give_the_text_back(shared, text):
    c = shared.client
    ids = c.post("/tokenize", json={"content": text}).json()["tokens"]
    assert c.post("/detokenize", json={"tokens": ids}).json()["content"] == text
    pieces = c.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
    assert [p["id"] for p in pieces] == ids
    raw = b"".join(bytes(p["piece"]) if isinstance(p["piece"], list) else p["piece"].encode() for p in pieces)
    assert raw.decode() == text
    special = c.post("/tokenize", json={"content": text, "add_special": True}).json()["tokens"]
    assert len(special) == len(ids) + 1
    plain = c.post("/tokenize", json={"content": text, "parse_special": False}).json()["tokens"]
    assert len(plain) == len(text.encode())


def test_lc08_the_template_is_what_chat_reads(shared):
    body = {"messages": USER, "tools": [{"type": "function", "function": {"name": "f"}}]}
    prompt = shared.client.post("/apply-template", json=body).json()["prompt"]
    counted = shared.client.post("/chat/completions/input_tokens", json=body).json()["input_tokens"]
    ids = shared.client.post("/tokenize", json={"content": prompt}).json()["tokens"]
    used = shared.client.post("/v1/chat/completions", json=body | {"max_tokens": 1}).json()["usage"]
    assert len(ids) == counted == used["prompt_tokens"]


def test_lc08_oa29_the_assistants_turn_is_begun_unless_the_request_says_not_to(shared):
    body = {"messages": USER, "add_generation_prompt": False}
    prompt = shared.client.post("/apply-template", json=body).json()["prompt"]
    assert prompt.endswith("hi<|im_end|>\n")
    counted = shared.client.post("/chat/completions/input_tokens", json=body).json()["input_tokens"]
    used = shared.client.post("/v1/chat/completions", json=body | {"max_tokens": 1}).json()["usage"]
    ids = shared.client.post("/tokenize", json={"content": prompt}).json()["tokens"]
    assert used["prompt_tokens"] == counted == len(ids)


def test_lc10_adapters_are_none_and_scales_of_none_are_refused(shared):
    assert shared.client.get("/lora-adapters").json() == []
    assert shared.client.post("/lora-adapters", json=[]).json() == []
    r = shared.client.post("/lora-adapters", json=[{"id": 0, "scale": 0.5}])
    assert r.status_code == 400
    assert "adapter 0" in r.json()["error"]["message"]
    r = shared.client.post("/completion", json={"prompt": "x", "lora": [{"id": 0, "scale": 1}]})
    assert r.status_code == 400


@pytest.mark.parametrize("name", ["a.bin", "../x", "/etc/passwd", "a\x00b"])
def test_lc11_j09_slots_are_not_saved_by_file_names(shared, name):
    for action in ("save", "restore", "erase"):
        r = shared.client.post(f"/slots/0?action={action}", json={"filename": name})
        assert r.status_code == 501
        assert "/v1/contexts" in r.json()["error"]["message"]


def test_lc13_texts_are_scored_against_each_other_in_their_order(shared):
    c = shared.client
    many = c.post("/score", json={"text_1": "abc", "text_2": ["abc", "xyz"]}).json()
    assert [d["index"] for d in many["data"]] == [0, 1]
    assert many["data"][0]["score"] == pytest.approx(1)
    assert many["data"][1]["score"] < 0.9
    assert many["usage"]["prompt_tokens"] == many["usage"]["total_tokens"] > 0
    pairs = c.post("/v1/score", json={"text_1": ["abc", "xyz"], "text_2": ["abc", "xyz"]}).json()
    assert [d["score"] for d in pairs["data"]] == pytest.approx([1, 1])
    for bad in (
        {"text_1": [], "text_2": "x"},
        {"text_1": "x", "text_2": ""},
        {"text_1": ["a", "b"], "text_2": ["a", "b", "c"]},
        {"text_1": 5, "text_2": "x"},
        {"text_1": "x", "text_2": ["x"] * 2049},
    ):
        assert c.post("/score", json=bad).status_code == 400, bad
    assert (
        c.post("/v2/rerank", json={"query": "abc", "documents": ["xyz", "abc"]}).json()["results"][0]["index"]
        == 1
    )


@pytest.mark.parametrize(
    "prompt", [[{}, -36], [1, {"prompt_string": "x"}], [[1, None]], [], [[]], {"x": 1}, [True, "x", 2.5]]
)
def test_lc05_prompts_that_are_none_are_400(shared, prompt):
    assert shared.client.post("/completion", json={"prompt": prompt, "n_predict": 1}).status_code == 400


def test_lc16_j13_after_a_broken_grammar_the_next_request_works(shared):
    r = shared.client.post("/completion", json={"prompt": "x", "grammar": "no rules here"})
    assert r.status_code == 400
    assert complete(shared, grammar='root ::= "yes"')["content"] == "yes"


def test_lc17_probabilities_of_each_token(shared):
    out = complete(shared, n_probs=3)
    entries = out["completion_probabilities"]
    assert len(entries) == out["tokens_predicted"]
    for entry in entries:
        assert {"id", "token", "bytes", "logprob", "top_logprobs"} <= entry.keys()
        assert len(entry["top_logprobs"]) == 3
        assert entry["logprob"] <= 0
    assert "completion_probabilities" not in complete(shared)


def test_lc18_only_the_fields_that_were_asked_for(shared):
    out = complete(
        shared, response_fields=["content", "generation_settings/n_predict", "nothing", "prompt/x"]
    )
    assert out == {"content": out["content"], "generation_settings/n_predict": 8}


def test_lc19_j14_a_negative_discard_is_refused_and_harmless_values_are_not(shared):
    for bad in (
        {"n_discard": -1},
        {"n_keep": 5},
        {"n_indent": 2},
        {"t_max_predict_ms": -2},
        {"n_predict": 2**40},
    ):
        assert shared.client.post("/completion", json={"prompt": "x"} | bad).status_code == 400, bad
    for good in ({"n_discard": 0}, {"n_keep": 0}, {"n_keep": -1}, {"n_indent": 0}, {"t_max_predict_ms": 0}):
        complete(shared, **good)
    assert complete(shared, ignore_eos=True, n_predict=50)["tokens_predicted"] == 50


def test_t02_completion_streams_in_llama_cpps_shape(shared):
    with shared.client.stream(
        "POST", "/completion", json={"prompt": "x", "n_predict": 5, "stream": True}
    ) as r:
        frames = [f for f in r.read().decode().split("\n\n") if f]
    parts = [json.loads(f.removeprefix("data: ")) for f in frames]
    assert [p["stop"] for p in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1]["content"] == ""
