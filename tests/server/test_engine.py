"""The server over the real engine and a small trained model: what holds for the stand-in must hold here."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import httpx
import pytest

pytest.importorskip("llamay_models")
DATA = Path(os.environ["LLAMAY_TEST_DATA"])
STORIES = DATA / "models" / "stories260K.gguf"
pytestmark = pytest.mark.skipif(not STORIES.is_file(), reason=f"{STORIES} is not there")
PROMPT = "Once upon a time, there was a little girl named Lily."


@pytest.fixture(scope="module")
def server():
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    with running(f"stories={STORIES}", loader=load(Config(threads=2))) as s:
        yield s


def test_packed_weights_are_kept_in_the_configured_folder_and_read_again(tmp_path, monkeypatch):
    from llamay_models.loading import model_loader
    from llamay_server import Config
    from llamay_server.engine.loading import load

    folder = tmp_path / "packed"
    loader = load(Config(threads=1, packed_cache=str(folder)))
    loader(STORIES).close()
    assert list(folder.iterdir())
    packed = []
    monkeypatch.setattr(model_loader, "pack", lambda tensors, *_, **__: packed.extend(tensors) or [])
    loader(STORIES).close()
    assert packed == [], "nothing is packed again"


def test_oa60_a_model_is_as_old_before_it_is_loaded_as_after(tmp_path):
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    with running(f"a={STORIES}", f"b={STORIES}", loader=load(Config(threads=1))) as server:

        def created():
            return [m["created"] for m in server.client.get("/v1/models").json()["data"]]

        before = created()
        body = {"model": "b", "prompt": PROMPT, "max_tokens": 1}
        assert server.client.post("/v1/completions", json=body).status_code == 200
        assert before == created() == [int(STORIES.stat().st_mtime)] * 2


def complete(server, **body):
    r = server.client.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 32, "seed": 7} | body)
    assert r.status_code == 200, r.text
    return r.json()


def test_t22_the_same_text_streamed_whole_in_a_batch_and_on_each_api(server):
    options = {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "repeat_penalty": 1.0}
    text = complete(server, **options)["choices"][0]["text"]
    assert len(text) > 20
    body = {"prompt": PROMPT, "max_tokens": 32, "seed": 7, "stream": True} | options
    with server.client.stream("POST", "/v1/completions", json=body) as r:
        frames = [json.loads(f[6:]) for f in r.read().decode().split("\n\n")[:-2]]
    assert "".join(f["choices"][0]["text"] for f in frames) == text
    raw = {
        "model": "stories",
        "prompt": PROMPT,
        "raw": True,
        "stream": False,
        "options": options | {"num_predict": 32, "seed": 7},
    }
    assert server.client.post("/api/generate", json=raw).json()["response"] == text
    native = {"prompt": PROMPT, "n_predict": 32, "seed": 7} | options
    assert server.client.post("/completion", json=native).json()["content"] == text
    out: list[str] = []

    def one() -> None:
        with httpx.Client(base_url=server.url, timeout=60) as c:
            r = c.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 32, "seed": 7} | options)
            out.append(r.json()["choices"][0]["text"])

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert out == [text] * 8
    several = complete(server, n=3, **options)["choices"]
    assert several[0]["text"] == text
    assert several[1]["text"] == complete(server, **(options | {"seed": 8}))["choices"][0]["text"]


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HOW = {"temperature": 0.9, "top_k": 40, "top_p": 0.9, "seed": 7}
TURN = [{"role": "user", "content": PROMPT}]
CONVERSATIONS = {
    "/v1/chat/completions": {"messages": TURN, "max_tokens": 32, **HOW},
    "/v1/responses": {"input": PROMPT, "max_output_tokens": 32, **HOW},
    "/v1/messages": {"messages": TURN, "max_tokens": 32, **HOW},
    "/api/chat": {
        "model": "stories",
        "messages": TURN,
        "options": {"num_predict": 32, "repeat_penalty": 1.0, **HOW},
    },
}


def said(path: str, answer: dict) -> str:
    """The words of a whole answer."""
    match path:
        case "/v1/chat/completions":
            return answer["choices"][0]["message"]["content"]
        case "/v1/responses":
            return answer["output"][0]["content"][0]["text"]
        case "/v1/messages":
            return answer["content"][0]["text"]
        case _:
            return answer["message"]["content"]


def streamed(path: str, text: str) -> str:
    """The words of a stream, each frame of which must be valid by itself."""
    if path == "/api/chat":
        return "".join(json.loads(line)["message"]["content"] for line in text.splitlines())
    frames = [
        json.loads(f.rsplit("data: ", 1)[1])
        for f in text.split("\n\n")
        if f.rsplit("data: ", 1)[-1][:1] == "{"
    ]
    if path == "/v1/chat/completions":
        return "".join(f["choices"][0]["delta"].get("content") or "" for f in frames)
    if path == "/v1/responses":
        return "".join(f["delta"] for f in frames if f["type"] == "response.output_text.delta")
    return "".join(f["delta"].get("text", "") for f in frames if f["type"] == "content_block_delta")


def test_t21_t22_a_conversation_is_answered_alike_on_every_api_streamed_whole_and_among_eight(tmp_path):
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    file = tmp_path / "template.jinja"
    file.write_text(CHATML)
    with running(f"stories={STORIES}", loader=load(Config()), chat_template_file=str(file)) as server:

        def ask(path: str, stream: bool) -> str:
            with httpx.Client(base_url=server.url, timeout=120) as c:
                r = c.post(path, json=CONVERSATIONS[path] | {"stream": stream})
            assert r.status_code == 200, r.text
            return streamed(path, r.content.decode()) if stream else said(path, r.json())

        wanted = ask("/v1/chat/completions", False)
        assert len(wanted) > 20
        every = [(path, stream) for path in CONVERSATIONS for stream in (False, True)]
        assert {each: ask(*each) for each in every} == dict.fromkeys(every, wanted)
        answers: dict[tuple[str, bool], str] = {}
        threads = [
            threading.Thread(target=lambda each=each: answers.__setitem__(each, ask(*each))) for each in every
        ]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert answers == dict.fromkeys(every, wanted)
        usage = [
            server.client.post(path, json=CONVERSATIONS[path] | {"stream": False}).json()
            for path in CONVERSATIONS
        ]
        assert usage[0]["usage"]["prompt_tokens"] == usage[1]["usage"]["input_tokens"]
        read = [v for k, v in usage[2]["usage"].items() if k.endswith("input_tokens")]
        assert sum(read) == usage[3]["prompt_eval_count"] == usage[0]["usage"]["prompt_tokens"]
        assert (
            usage[0]["usage"]["completion_tokens"]
            == usage[1]["usage"]["output_tokens"]
            == usage[2]["usage"]["output_tokens"]
            == usage[3]["eval_count"]
        )


def test_cx03_cx05_forks_and_restored_contexts_go_on_exactly(server):
    c = server.client
    cid = c.post("/v1/contexts", json={"prompt": PROMPT}).json()["id"]
    body = {"max_tokens": 24, "temperature": 0, "logprobs": 2}
    (fork,) = c.post(f"/v1/contexts/{cid}/fork").json()["ids"]
    data = c.get(f"/v1/contexts/{cid}/snapshot").content
    restored = c.post("/v1/contexts/restore", content=data).json()["id"]
    fresh = complete(server, temperature=0, max_tokens=24)["choices"][0]["text"]
    body.pop("logprobs")
    texts = [
        c.post(f"/v1/contexts/{i}/generate", json=body).json()["choices"][0]["text"]
        for i in (fork, restored, cid)
    ]
    assert texts == [fresh] * 3


def test_cx06_damage_and_other_models_are_refused(server):
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    c = server.client
    cid = c.post("/v1/contexts", json={"prompt": PROMPT}).json()["id"]
    data = c.get(f"/v1/contexts/{cid}/snapshot").content
    for at in range(0, len(data), max(1, len(data) // 25)):
        bad = bytearray(data)
        bad[at] ^= 1
        r = c.post("/v1/contexts/restore", content=bytes(bad))
        assert r.status_code in (400, 409), (at, r.text)
        assert "/tmp" not in r.text
    assert c.post("/v1/contexts/restore", content=data[: len(data) // 2]).status_code == 400
    other = DATA / "models" / "qwen3.gguf"
    if other.is_file():
        with running(f"other={other}", loader=load(Config(threads=1))) as second:
            r = second.client.post("/v1/contexts/restore", content=data)
            assert r.status_code in (400, 409)
            assert r.headers.get("x-should-retry") == "false" or r.status_code == 400


def test_oa25_output_is_bound_by_a_schema(server):
    pytest.importorskip("llamay_grammar")
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}, "n": {"enum": [1, 2, 3]}},
        "required": ["ok", "n"],
        "additionalProperties": False,
    }
    for seed in range(3):
        out = complete(server, json_schema=schema, max_tokens=200, seed=seed)["choices"][0]
        if out["finish_reason"] == "stop":
            value = json.loads(out["text"])
            assert isinstance(value["ok"], bool)
            assert value["n"] in (1, 2, 3)
    assert complete(server, regex="(yes|no)", max_tokens=20)["choices"][0]["text"] in ("yes", "no")
    grammar = 'root ::= "yes" | "no"'
    assert complete(server, grammar=grammar, max_tokens=20)["choices"][0]["text"] in ("yes", "no")
    r = server.client.post(
        "/v1/completions", json={"prompt": "x", "json_schema": {"$ref": "http://example.com/x"}}
    )
    assert r.status_code == 400


def test_oa41_scores_are_those_of_the_text(server):
    scores = complete(server, logprobs=3, temperature=0)["choices"][0]["logprobs"]
    for token, chance, top in zip(
        scores["tokens"], scores["token_logprobs"], scores["top_logprobs"], strict=True
    ):
        assert chance <= 0
        assert top[token] == chance == max(top.values())


def test_t06_a_client_that_leaves_frees_the_engine(server):
    from llamay_server_tests.test_transport import leave

    model = server.app.services.models.entries["stories"].model
    assert model is not None
    for stream in (False, True):
        leave(
            server,
            "/v1/completions",
            {"prompt": PROMPT, "max_tokens": 400, "ignore_eos": True, "n": 4, "stream": stream},
            0.1,
        )
        server.wait(lambda: model.model.engine.active == 0 and model.model.engine.queued == 0)


def test_lc07_tokens_round_trip(server):
    for text in (PROMPT, "naïve 日本語 👩‍👩‍👧", " leading and  double spaces\n"):
        ids = server.client.post("/tokenize", json={"content": text}).json()["tokens"]
        assert server.client.post("/detokenize", json={"tokens": ids}).json()["content"].lstrip(
            " "
        ) == text.lstrip(" ")


def test_metrics_tell_what_the_engine_did(server):
    text = server.client.get("/metrics").text
    assert 'llamay_engine_generated_tokens_total{model="stories"}' in text


def test_oa26_a_demanded_call_always_parses_even_from_a_tiny_model(server):
    pytest.importorskip("llamay_grammar")
    city = {
        "type": "object",
        "properties": {"n": {"enum": [1, 2]}},
        "required": ["n"],
        "additionalProperties": False,
    }
    tools = [
        {"type": "function", "function": {"name": name, "parameters": city}}
        for name in ("tell", "tell_more", "ask")
    ]
    chatml = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    model = server.app.services.models.entries["stories"].model
    if model is None or model.info.chat_template is None:
        from dataclasses import replace

        from llamay_models.chat import ChatTemplate

        model.info = replace(model.info, chat_template=chatml)
        model.model._template = ChatTemplate(chatml)
    for wanted in (tools, tools[:1]):
        for seed in range(3):
            body = {
                "messages": [{"role": "user", "content": "Lily?"}],
                "tools": wanted,
                "tool_choice": "required",
            }
            r = server.client.post("/v1/chat/completions", json=body | {"max_tokens": 100, "seed": seed})
            assert r.status_code == 200, r.text
            choice = r.json()["choices"][0]
            if choice["finish_reason"] == "length":
                continue
            (call,) = choice["message"]["tool_calls"]
            assert call["function"]["name"] in [t["function"]["name"] for t in wanted]
            assert json.loads(call["function"]["arguments"])["n"] in (1, 2)


@pytest.mark.parametrize("mark", ["<tool_call>", "[TOOL_CALLS]{{ m.name }}[ARGS]", "<|tool_call_start|>"])
def test_oa15_a_demanded_call_streams_as_it_is_written_and_is_the_whole_one(tmp_path, mark):
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    template = tmp_path / "calls.jinja"
    template.write_text(
        "{% for t in tools or [] %}<|im_start|>List of tools: {{ t | tojson }}{% endfor %}"
        "{% for m in messages %}{{ m.role }}: {{ m.content }}{% if m.tool_calls %}"
        + mark
        + "{% endif %}\n{% endfor %}assistant: "
    )
    story = {
        "type": "object",
        "properties": {
            "text": {"type": "string", "minLength": 20, "maxLength": 60},
            "n": {"type": "integer"},
        },
        "required": ["text"],
    }
    body = {
        "messages": [{"role": "user", "content": "Tell of Lily."}],
        "tools": [{"type": "function", "function": {"name": "tell", "parameters": story}}],
        "tool_choice": "required",
    }
    config = Config(threads=2, chat_template_file=str(template))
    with running(f"stories={STORIES}", loader=load(config), chat_template_file=str(template)) as server:
        for seed, limit in ((1, 200), (2, 200), (3, 75)):
            asked = body | {"seed": seed, "max_tokens": limit}
            choice = server.client.post("/v1/chat/completions", json=asked).json()["choices"][0]
            text = server.client.post("/v1/chat/completions", json=asked | {"stream": True}).text
            chunks = [json.loads(line[6:]) for line in text.split("\n\n") if line.startswith("data: {")]
            deltas = [d for c in chunks for d in c["choices"][0]["delta"].get("tool_calls", ())]
            (call,) = choice["message"]["tool_calls"]
            assert "".join(d["function"]["arguments"] for d in deltas) == call["function"]["arguments"]
            assert len(deltas) > 10
            assert deltas[0]["function"]["name"] == call["function"]["name"] == "tell"
            if choice["finish_reason"] == "tool_calls":
                assert 20 <= len(json.loads(call["function"]["arguments"])["text"]) <= 60


def test_cx09_contexts_beyond_the_memory_budget_go_to_disk_and_come_back(tmp_path):
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    spill = tmp_path / "spill"
    config = Config(threads=2, ctx_mem_budget=400_000, ctx_spill_dir=str(spill), ctx_spill=1 << 24)
    with running(f"stories={STORIES}", loader=load(config)) as server:
        c = server.client
        prompts = [f"{i}. {PROMPT} {PROMPT} {PROMPT} {PROMPT} {PROMPT}" for i in range(6)]
        made = [c.post("/v1/contexts", json={"prompt": prompt}) for prompt in prompts]
        assert {r.status_code for r in made} == {201}
        assert sum(r.json()["bytes"] for r in made) > config.ctx_mem_budget
        metrics = c.get("/metrics").text
        written = [line for line in metrics.splitlines() if line.startswith("llamay_engine_spill_")]
        assert any(float(line.rpartition(" ")[2]) > 0 for line in written), metrics
        ask = {"max_tokens": 8, "temperature": 0}
        for prompt, context in zip(prompts, made, strict=True):
            going = c.post(f"/v1/contexts/{context.json()['id']}/generate", json=ask | {"commit": False})
            assert going.status_code == 200, going.text
            fresh = complete(server, prompt=prompt, cache_prompt=False, **ask)
            assert going.json()["choices"][0]["text"] == fresh["choices"][0]["text"]
    assert not any(spill.iterdir())


def test_a_time_limit_ends_the_text_as_it_is_and_says_so(server):
    forever = {"ignore_eos": True, "max_tokens": 400, "cache_prompt": False}
    for limit in ({"timeout": 0.02}, {"t_max_predict_ms": 20}, {"timeout": 500, "t_max_predict_ms": 20}):
        out = complete(server, **forever, **limit)
        assert out["choices"][0]["finish_reason"] == "length"
        assert out["usage"]["completion_tokens"] < 400
        native = server.client.post(
            "/completion", json={"prompt": PROMPT, "n_predict": 400} | forever | limit
        )
        assert native.json()["stop_type"] == "limit"
        assert native.json()["tokens_predicted"] < 400
    assert server.metric("llamay_generations_total", model="stories", reason="timeout") >= 6
    free = complete(server, **forever | {"max_tokens": 20}, timeout=500, t_max_predict_ms=-1)
    assert free["usage"]["completion_tokens"] == 20
    for bad in (
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": "1"},
        {"t_max_predict_ms": -2},
        {"priority": 101},
    ):
        for path in ("/v1/completions", "/completion"):
            r = server.client.post(path, json={"prompt": "x"} | bad)
            assert r.status_code == 400, bad
            assert next(iter(bad)) in r.text


def test_of_waiting_requests_the_lower_priority_number_goes_first(server, monkeypatch):
    import llamay_models

    seen = []
    real = llamay_models.Request
    monkeypatch.setattr(llamay_models, "Request", lambda *a, **k: seen.append(k["priority"]) or real(*a, **k))
    complete(server, max_tokens=1, priority=-7)
    complete(server, max_tokens=1, priority=7)
    complete(server, max_tokens=1)
    assert seen == [7, -7, 0]


def test_the_engines_times_are_histograms_for_each_model(server):
    from prometheus_client.parser import text_string_to_metric_families

    complete(server, max_tokens=8, ignore_eos=True)
    text = server.client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for kind in ("queue", "first_token", "between_tokens", "step"):
        family = families[f"llamay_engine_{kind}_seconds"]
        assert family.type == "histogram"
        assert {sample.labels["model"] for sample in family.samples} == {"stories"}
        buckets = [s.value for s in family.samples if s.name.endswith("_bucket")]
        (count,) = [s.value for s in family.samples if s.name.endswith("_count")]
        (total,) = [s.value for s in family.samples if s.name.endswith("_sum")]
        assert buckets == sorted(buckets)
        assert buckets[-1] == count > 0
        assert total >= 0


def test_lc05_completion_takes_what_llamacpp_takes_as_prompts(server):
    def native(prompt, status=200, **more):
        body = {"prompt": prompt, "n_predict": 6, "temperature": 0, "ignore_eos": True} | more
        r = server.client.post("/completion", json=body)
        assert r.status_code == status, r.text
        return r.json()

    ids = server.client.post("/tokenize", json={"content": PROMPT, "add_special": True}).json()["tokens"]
    alone = native(PROMPT)
    several = native([ids, PROMPT, {"prompt_string": PROMPT}, ["Once", *ids[3:]]])
    assert [each["index"] for each in several] == [0, 1, 2, 3]
    assert {each["content"] for each in several[:3]} == {alone["content"]}
    assert all(each["tokens_predicted"] == 6 for each in several)
    assert native([PROMPT])["content"] == native(ids)["content"] == alone["content"]
    assert native([*ids[:4], " a girl", 5])["tokens_evaluated"] > 5
    body = {"prompt": [PROMPT, "The"], "n_predict": 6, "temperature": 0, "stream": True}
    with server.client.stream("POST", "/completion", json=body) as r:
        frames = [json.loads(f[6:]) for f in r.read().decode().split("\n\n")[:-1] if f.startswith("data: {")]
    streamed = "".join(f["content"] for f in frames if f["index"] == 0)
    assert streamed == native(PROMPT, ignore_eos=False)["content"]
    assert [f["index"] for f in frames if f["stop"]] == [0, 1]
    native({"prompt_string": PROMPT, "multimodal_data": ["aGk="]}, 400)
    for bad in ({}, [], [[]], [{}], [[1, [2]]], [1, -5], [99999, "x"], [None]):
        native(bad, 400)


def test_lc04_llamacpps_metrics_add_up_to_what_the_answers_said(server):
    def read():
        r = server.client.get("/metrics")
        assert int(r.headers["process-start-time-unix"]) > 0
        rows = [line.split() for line in r.text.splitlines() if line.startswith("llamacpp:")]
        for name, _ in rows:
            assert f"# TYPE {name} " in r.text
            assert f"# HELP {name} " in r.text
        return {name.removeprefix("llamacpp:"): float(value) for name, value in rows}

    before = read()
    timings = []
    for n in (1, 4, 16):
        body = {"prompt": PROMPT, "n_predict": n, "ignore_eos": True}
        timings.append(server.client.post("/completion", json=body).json()["timings"])
    after = read()
    for name, key in (
        ("prompt_tokens_total", "prompt_n"),
        ("prompt_tokens_cached_total", "cache_n"),
        ("tokens_predicted_total", "predicted_n"),
    ):
        assert after[name] - before[name] == sum(t[key] for t in timings), name
    assert after["n_decode_total"] > before["n_decode_total"]
    assert after["requests_processing"] == after["requests_deferred"] == 0
    # The first token comes out of the prompt's last step.
    assert timings[0]["predicted_per_second"] == 0
    assert timings[2]["predicted_per_second"] == pytest.approx(15e3 / timings[2]["predicted_ms"])


def test_a_template_file_stands_in_for_the_models_own(tmp_path):
    from llamay_server_tests.conftest import running

    from llamay_server import Config, ConfigError, create_app
    from llamay_server.engine.loading import load

    file = tmp_path / "template.jinja"
    file.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}")
    ask = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    with running(f"stories={STORIES}", loader=load(Config()), chat_template_file=str(file)) as server:
        assert server.client.post("/apply-template", json=ask).json()["prompt"].endswith("[user] Hello")
        assert server.client.post("/v1/chat/completions", json=ask).status_code == 200
        assert server.client.get("/props").json()["chat_template"] == file.read_text()
    with pytest.raises(ConfigError, match="chat_template_file"):
        create_app([f"stories={STORIES}"], config=Config(chat_template_file=str(tmp_path / "none")))
    file.write_text("{% for %}")
    with running(f"stories={STORIES}", loader=load(Config()), chat_template_file=str(file)) as server:
        r = server.client.post("/v1/chat/completions", json=ask)
        assert (r.status_code, r.json()["error"]["code"]) == (422, "model_unusable")
        assert "faulty" in r.text
    file.write_text("{{ nobody.said }}")
    with running(f"stories={STORIES}", loader=load(Config()), chat_template_file=str(file)) as server:
        for path in ("/v1/chat/completions", "/apply-template"):
            r = server.client.post(path, json=ask)
            assert r.status_code == 400, "what a template cannot write is no error of the server"
            assert "template" in r.text


def test_completions_say_which_model_made_them_as_chats_do(server):
    once, again = complete(server, max_tokens=1), complete(server, max_tokens=2)
    assert once["system_fingerprint"] == again["system_fingerprint"]
    assert once["system_fingerprint"].startswith("llamay-")


def test_j11_what_one_owner_computed_saves_no_other_owner_a_step():
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    prompt = "Once upon a time, there was a little girl named Lily. " * 12
    with running(
        f"stories={STORIES}", loader=load(Config(threads=1)), api_keys=("ann:a", "bob:b", "cat:c")
    ) as server:

        def ask(key):
            """Tokens that the answer says were cached, and tokens that the engine computed for it."""
            before = server.metric("llamay_engine_prompt_tokens_total", model="stories")
            body = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
            r = server.client.post("/v1/completions", json=body, headers={"x-api-key": key})
            usage = r.json()["usage"]
            after = server.metric("llamay_engine_prompt_tokens_total", model="stories")
            return usage["prompt_tokens_details"]["cached_tokens"], after - before

        cached, computed = ask("a")
        assert cached == 0
        # The work is the same to the token, and so is the time: there is nothing for bob to measure.
        assert ask("b") == (0, computed)
        cached, again = ask("a")
        assert cached > 100
        assert again < computed / 2
        assert ask("c") == (0, computed)


def test_oa42_the_best_of_many_are_those_that_the_model_finds_likeliest(server):
    options = {"temperature": 1.0, "logprobs": 0, "max_tokens": 12, "prompt": [PROMPT, "The end of"]}
    every = complete(server, n=6, **options)["choices"]

    def mean(choice):
        scores = choice["logprobs"]["token_logprobs"]
        return sum(scores) / len(scores)

    assert len({mean(choice) for choice in every}) > 6
    expected = [
        choice["text"] for k in (0, 6) for choice in sorted(every[k : k + 6], key=mean, reverse=True)[:2]
    ]
    best = complete(server, n=2, best_of=6, **options)["choices"]
    assert [choice["text"] for choice in best] == expected


def test_a_model_has_the_name_that_it_is_served_under_and_the_length_that_it_was_trained_for():
    from llamay_server_tests.conftest import running

    from llamay_server import Config
    from llamay_server.engine.loading import load

    with running(f"tiny:1b={STORIES}", loader=load(Config(threads=2, ctx_size=128))) as server:
        refused = server.client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]}
        )
        assert refused.status_code == 400
        assert "tiny:1b has no chat template" in refused.json()["error"]["message"]
        complete(server, prompt=PROMPT, max_tokens=2)
        metrics = server.client.get("/metrics").text
        assert 'llamay_generated_tokens_total{model="tiny:1b"} 2.0' in metrics
        assert "stories260K" not in metrics
        (model,) = server.client.get("/v1/models").json()["data"]
        assert (model["meta"]["n_ctx"], model["meta"]["n_ctx_train"]) == (128, 2048)
