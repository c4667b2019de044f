"""Contexts as values over HTTP."""

from __future__ import annotations

import json
import threading

import pytest
from fake_engine import FakeModel

LONG = "word " * 60


def make(server, **body):
    r = server.client.post("/v1/contexts", json=body or {"prompt": LONG})
    assert r.status_code == 201, r.text
    return r.json()


def generate(server, cid, **body):
    return server.client.post(f"/v1/contexts/{cid}/generate", json={"max_tokens": 12, "seed": 3} | body)


def events(response):
    out = []
    for frame in response.read().decode().removesuffix("\n\n").split("\n\n"):
        kind, data = frame.split("\n")
        out.append((kind.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return out


def test_cx01_create_from_prompt_messages_or_tokens(shared):
    a = make(shared, prompt="hello", label="mine", marking="internal")
    assert a["id"].startswith("ctx_")
    assert len(a["id"]) > 20
    assert (a["tokens"], a["pages"], a["label"], a["marking"]) == (6, 1, "mine", "internal")
    b = make(shared, tokens=[256, *b"hello"])
    assert b["tokens"] == 6
    c = make(shared, messages=[{"role": "user", "content": "hello"}])
    prompt = shared.client.post(
        "/apply-template", json={"messages": [{"role": "user", "content": "hello"}]}
    ).json()["prompt"]
    got = shared.client.get(f"/v1/contexts/{c['id']}?include=text,tokens,messages").json()
    assert got["text"] == prompt
    assert len(got["token_ids"]) == c["tokens"]
    for bad in (
        {},
        {"tokens": []},
        {"tokens": [999]},
        {"prompt": "a", "tokens": [1]},
        {"messages": []},
        {"prompt": 5},
    ):
        r = shared.client.post("/v1/contexts", json=bad)
        assert r.status_code == 400, bad
        assert r.headers["content-type"] == "application/problem+json"
        assert {"type", "title", "status", "detail"} <= r.json().keys()


def test_cx01_a_prompt_longer_than_the_model_reads_is_413(start):
    server = start(FakeModel(context_length=100))
    r = server.client.post("/v1/contexts", json={"prompt": LONG})
    assert r.status_code == 413
    assert r.json()["n_ctx"] == 100
    assert r.headers["x-should-retry"] == "false"


def test_cx02_fork_gives_n_ids_and_bounds_n(shared):
    a = make(shared)
    out = shared.client.post(f"/v1/contexts/{a['id']}/fork?n=4")
    assert out.status_code == 201
    ids = out.json()["ids"]
    assert len(set(ids)) == 4
    assert all(v["parent"] == a["id"] and v["tokens"] == a["tokens"] for v in out.json()["data"])
    assert len(shared.client.post(f"/v1/contexts/{a['id']}/fork", json={"n": 2}).json()["ids"]) == 2
    for bad in ("0", "-1", "99999999999", "1e3", "x", "1.5", "٣", ""):
        assert shared.client.post(f"/v1/contexts/{a['id']}/fork?n={bad}").status_code == 400, bad
    for bad in (0, -1, 2**31, 2**63, 1.5, True, "3"):
        assert shared.client.post(f"/v1/contexts/{a['id']}/fork", json={"n": bad}).status_code == 400, bad


def test_cx03_a_fork_generates_what_a_fresh_context_generates(shared):
    a = make(shared, prompt="once upon")
    (f,) = shared.client.post(f"/v1/contexts/{a['id']}/fork").json()["ids"]
    one = generate(shared, f, temperature=0).json()["choices"][0]
    two = generate(shared, make(shared, prompt="once upon")["id"], temperature=0).json()["choices"][0]
    assert one == two
    whole = shared.client.post(
        "/v1/completions", json={"prompt": "once upon", "max_tokens": 12, "temperature": 0}
    ).json()
    assert whole["choices"][0]["text"] == one["text"]


def test_cx04_forks_diverge_the_parent_stays_and_nothing_leaks(start):
    server = start()
    a = make(server)
    x, y = server.client.post(f"/v1/contexts/{a['id']}/fork?n=2").json()["ids"]
    texts = {
        generate(server, c, seed=s, max_tokens=40).json()["choices"][0]["text"] for c, s in ((x, 1), (y, 2))
    }
    assert len(texts) == 2
    assert server.client.get(f"/v1/contexts/{a['id']}").json()["tokens"] == a["tokens"]
    for c in (a["id"], y, x):
        assert server.client.delete(f"/v1/contexts/{c}").json()["deleted"] is True
    server.wait(lambda: server.model.contexts == 0)
    assert server.metric("llamay_contexts") == 0


def test_cx04_many_forks_leave_nothing_behind(start):
    server = start(max_contexts=4000)
    a = make(server)
    for _ in range(20):
        ids = server.client.post(f"/v1/contexts/{a['id']}/fork?n=100").json()["ids"]
        for c in ids[:50]:
            server.client.delete(f"/v1/contexts/{c}")
    listed = server.client.get("/v1/contexts?limit=1000").json()
    assert len(listed["data"]) == 1000
    assert listed["has_more"] is True
    rest = server.client.get(f"/v1/contexts?limit=1000&after={listed['data'][-1]['id']}").json()
    assert len(rest["data"]) == 1
    server.wait(lambda: server.model.contexts == 1001)


def test_generate_advances_the_context_and_commit_false_does_not(shared):
    a = make(shared, prompt="start")
    out = generate(shared, a["id"]).json()
    assert out["context"]["tokens"] == a["tokens"] + len(out["choices"][0]["token_ids"])
    again = generate(shared, a["id"], commit=False).json()
    assert again["context"]["tokens"] == out["context"]["tokens"]
    more = generate(shared, a["id"], prompt=" and then", commit=False).json()
    assert more["usage"]["prompt_tokens"] == out["context"]["tokens"] + len(" and then")
    assert more["usage"]["prompt_tokens_details"]["cached_tokens"] == out["context"]["tokens"]


def test_generate_streams_the_same_as_it_gives_whole(shared):
    a = make(shared, prompt="start")
    (f,) = shared.client.post(f"/v1/contexts/{a['id']}/fork").json()["ids"]
    whole = generate(shared, a["id"], max_tokens=30).json()
    with shared.client.stream(
        "POST", f"/v1/contexts/{f}/generate", json={"max_tokens": 30, "seed": 3, "stream": True}
    ) as r:
        got = events(r)
    assert "".join(d["text"] for k, d in got if k == "text") == whole["choices"][0]["text"]
    kind, last = got[-1]
    assert kind == "done"
    assert last["choices"] == whole["choices"]
    assert last["context"]["tokens"] == whole["context"]["tokens"]


def test_best_of_n_is_one_request(shared):
    a = make(shared, prompt="start")
    out = generate(shared, a["id"], n=4, choose="mean_logprob", max_tokens=20).json()
    assert len(out["choices"]) == 4
    best = out["choices"][out["chosen"]]
    assert best["score"] == max(c["score"] for c in out["choices"])
    held = shared.client.get(f"/v1/contexts/{a['id']}?include=tokens").json()["token_ids"]
    assert held[a["tokens"] :] == best["token_ids"]


def test_n_without_a_choice_gives_children_and_leaves_the_parent(shared):
    a = make(shared, prompt="start")
    out = generate(shared, a["id"], n=3, max_tokens=20).json()
    assert shared.client.get(f"/v1/contexts/{a['id']}").json()["tokens"] == a["tokens"]
    for choice in out["choices"]:
        child = shared.client.get(f"/v1/contexts/{choice['context']}?include=tokens").json()
        assert child["token_ids"][a["tokens"] :] == choice["token_ids"]
        assert child["parent"] == a["id"]


def test_generate_with_a_schema_and_with_tools(start):
    server = start()
    a = make(server, messages=[{"role": "user", "content": "hi"}])
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    out = generate(server, a["id"], json_schema=schema, max_tokens=100, commit=False).json()
    assert json.loads(out["choices"][0]["text"]) == {"n": 7}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    out = generate(server, a["id"], tools=tools, tool_choice="required", max_tokens=200, commit=False).json()
    assert out["choices"][0]["finish_reason"] == "tool_calls"
    assert json.loads(out["choices"][0]["tool_calls"][0]["function"]["arguments"]) == {"n": 7}
    r = generate(server, a["id"], json_schema={"unsupported": 1})
    assert r.status_code == 400
    assert "json_schema" in r.json()["detail"]


def test_cx14_messages_go_on_and_only_the_tail_is_read(shared):
    a = make(shared, messages=[{"role": "user", "content": LONG}])
    said = generate(shared, a["id"]).json()
    out = shared.client.post(
        f"/v1/contexts/{a['id']}/extend", json={"messages": [{"role": "user", "content": "and?"}]}
    ).json()
    assert out["reused_tokens"] >= a["tokens"]
    assert out["read_tokens"] < 60
    assert out["tokens"] == out["reused_tokens"] + out["read_tokens"]
    assert said["context"]["tokens"] <= out["tokens"]
    text = shared.client.get(f"/v1/contexts/{a['id']}?include=text").json()["text"]
    assert text.endswith("and?<|im_end|>\n<|im_start|>assistant\n")


def test_messages_go_on_from_a_context_of_which_only_tokens_are_known(shared):
    a = make(shared, messages=[{"role": "user", "content": "hi"}])
    generate(shared, a["id"])
    b = shared.client.post(
        "/v1/contexts/restore", content=shared.client.get(f"/v1/contexts/{a['id']}/snapshot").content
    )
    texts = []
    for cid in (a["id"], b.json()["id"]):
        r = shared.client.post(
            f"/v1/contexts/{cid}/extend", json={"messages": [{"role": "user", "content": "and?"}]}
        )
        assert r.status_code == 200, r.text
        texts.append(shared.client.get(f"/v1/contexts/{cid}?include=text").json()["text"])
    assert texts[0] == texts[1]


def test_truncate_keeps_the_first_tokens(shared):
    a = make(shared, prompt="hello")
    out = shared.client.post(f"/v1/contexts/{a['id']}/truncate", json={"tokens": 3}).json()
    assert out["tokens"] == 3
    for bad in (0, -1, 4, 2**70, 1.5, None):
        assert shared.client.post(f"/v1/contexts/{a['id']}/truncate", json={"tokens": bad}).status_code == 400


def test_cx05_a_snapshot_restores_and_goes_on_alike(start):
    server = start()
    a = make(server, prompt="once")
    generate(server, a["id"])
    r = server.client.get(f"/v1/contexts/{a['id']}/snapshot")
    assert r.status_code == 200
    assert int(r.headers["content-length"]) == len(r.content)
    assert r.headers["content-disposition"].endswith('.llamay"')
    out = server.client.post("/v1/contexts/restore?label=back", content=iter([r.content[:7], r.content[7:]]))
    assert out.status_code == 201, out.text
    b = out.json()
    assert b["label"] == "back"
    assert generate(server, b["id"]).json()["choices"] == generate(server, a["id"]).json()["choices"]


def test_cx06_other_weights_are_409_and_damage_is_400(start):
    one, two = start(), start(FakeModel(sha="b" * 64))
    data = one.client.get(f"/v1/contexts/{make(one)['id']}/snapshot").content
    r = two.client.post("/v1/contexts/restore", content=data)
    assert r.status_code == 409
    assert r.headers["x-should-retry"] == "false"
    assert {r.json()["expected"], r.json()["found"]} == {"a" * 64, "b" * 64}
    flipped = data[:20] + bytes([data[20] ^ 1]) + data[21:]
    for bad in (data[:-1], flipped, b"x", b"LLAMA" * 100):
        r = one.client.post("/v1/contexts/restore", content=bad)
        assert r.status_code == 400, r.text
        assert "/tmp" not in r.text
    assert one.client.post("/v1/contexts/restore", content=b"").status_code == 400
    assert two.model.contexts == 0


def test_cx07_limits_and_a_full_disk(start, tmp_path):
    server = start(max_snapshot=1000, ctx_dir=str(tmp_path))
    assert server.client.post("/v1/contexts/restore", content=b"x" * 2000).status_code == 413
    assert server.client.post("/v1/contexts/restore", content=iter([b"x" * 600] * 3)).status_code == 413
    a = make(server)
    server.model.disk_full = True
    r = server.client.get(f"/v1/contexts/{a['id']}/snapshot")
    assert r.status_code == 507
    assert r.json()["code"] == "disk_full"
    assert list(tmp_path.iterdir()) == []
    server.wait(lambda: server.model.contexts == 1)


def test_cx10_delete_ends_a_generation_and_twice_is_404_with_the_reason(start):
    server = start()
    server.model.decode_delay = 0.01
    a = make(server)
    got = []
    t = threading.Thread(
        target=lambda: got.append(generate(server, a["id"], max_tokens=3000, ignore_eos=True))
    )
    t.start()
    server.wait(lambda: server.model.live == 1)
    assert server.client.delete(f"/v1/contexts/{a['id']}").status_code == 200
    t.join()
    assert got[0].status_code == 409
    r = server.client.delete(f"/v1/contexts/{a['id']}")
    assert r.status_code == 404
    assert "deleted" in r.json()["detail"]
    server.wait(lambda: server.model.contexts == 0)


def test_cx11_another_key_sees_nothing(start):
    server = start(api_keys=("ann:a", "bob:b"))
    ann, bob = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
    c = server.client
    cid = c.post("/v1/contexts", json={"prompt": "secret"}, headers=ann).json()["id"]
    assert c.get(f"/v1/contexts/{cid}", headers=ann).status_code == 200
    missing = c.get("/v1/contexts/ctx_none", headers=bob).json()["detail"].replace("ctx_none", "X")
    for verb, path, body in [
        ("GET", "", None),
        ("GET", "/snapshot", None),
        ("DELETE", "", None),
        ("POST", "/fork", None),
        ("POST", "/generate", {"max_tokens": 1}),
        ("POST", "/truncate", {"tokens": 1}),
        ("POST", "/extend", {"prompt": "x"}),
    ]:
        r = c.request(verb, f"/v1/contexts/{cid}{path}", json=body, headers=bob)
        assert r.status_code == 404, (verb, path)
        assert r.json()["detail"].replace(cid, "X") == missing
    assert c.get("/v1/contexts", headers=bob).json()["data"] == []
    assert c.get("/metrics", headers=bob).text.count(cid) == 0


def test_j11_cx11_prefixes_are_not_shared_between_keys(start):
    server = start(api_keys=("ann:a", "bob:b"))
    body = {"messages": [{"role": "user", "content": LONG}], "max_tokens": 2}

    def cached(key, **more):
        r = server.client.post("/v1/chat/completions", json=body | more, headers={"x-api-key": key})
        return r.json()["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached("a") == 0
    assert cached("b") == 0
    assert cached("a") > 100
    assert cached("a", cache_salt="other") == 0
    assert cached("a", cache_prompt=False) == 0


def test_cx12_j12_limits_are_429_with_numbers(start):
    server = start(max_contexts=3, max_context_tokens=1000)
    a = make(server, prompt="x" * 100)
    r = server.client.post(f"/v1/contexts/{a['id']}/fork?n=5")
    assert r.status_code == 429
    assert (r.json()["held"], r.json()["limit"], r.json()["asked"]) == (1, 3, 5)
    r = server.client.post("/v1/contexts", json={"prompt": "x" * 950})
    assert r.status_code == 429
    assert r.json()["limit"] == 1000


def test_cx15_a_second_write_is_409_and_reading_and_forking_go_on(start):
    server = start()
    server.model.decode_delay = 0.01
    a = make(server)
    t = threading.Thread(
        target=generate, args=(server, a["id"]), kwargs={"max_tokens": 60, "ignore_eos": True}
    )
    t.start()
    server.wait(lambda: server.model.live == 1)
    for path, body in (
        ("generate", {"max_tokens": 1}),
        ("truncate", {"tokens": 1}),
        ("extend", {"prompt": "x"}),
    ):
        r = server.client.post(f"/v1/contexts/{a['id']}/{path}", json=body)
        assert r.status_code == 409
        assert r.json()["code"] == "context_busy"
        assert r.headers["x-should-retry"] == "false"
    got = server.client.get(f"/v1/contexts/{a['id']}").json()
    assert (got["busy"], got["tokens"]) == ("generate", a["tokens"])
    assert server.client.post(f"/v1/contexts/{a['id']}/fork?n=2").json()["data"][0]["tokens"] == a["tokens"]
    assert server.client.get(f"/v1/contexts/{a['id']}/snapshot").status_code == 200
    t.join()
    assert server.client.get(f"/v1/contexts/{a['id']}").json()["tokens"] == a["tokens"] + 60


def test_t06_leaving_in_a_generation_leaves_the_context_as_it_was(start):
    from .test_transport import leave

    server = start()
    server.model.decode_delay = 0.01
    a = make(server)
    body = {"max_tokens": 3000, "ignore_eos": True}
    leave(server, f"/v1/contexts/{a['id']}/generate", body, when=lambda: server.model.live == 1)
    server.wait(lambda: server.model.live == 0 and server.model.contexts == 1)
    got = server.client.get(f"/v1/contexts/{a['id']}").json()
    assert (got["tokens"], got["busy"]) == (a["tokens"], None)


def test_t06_leaving_while_a_context_is_made_frees_it(start):
    from .test_transport import leave

    server = start()
    server.model.prefill_delay = 0.05
    leave(server, "/v1/contexts", {"prompt": LONG * 10})
    server.wait(
        lambda: server.metric("llamay_cancelled_total", phase="prefill") == 1 and server.model.contexts == 0
    )
    assert server.client.get("/v1/contexts").json()["data"] == []


def test_idle_contexts_are_dropped_after_their_time_with_the_reason(start):
    server = start(context_ttl=0.2)
    a = make(server)
    server.wait(lambda: server.model.contexts == 0)
    r = server.client.get(f"/v1/contexts/{a['id']}")
    assert r.status_code == 404
    assert "without use" in r.json()["detail"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "ctx_%00", "ctx_\u202e", "x" * 5000, "..%2f..%2f"])
def test_j09_names_from_clients_are_never_paths(shared, name):
    for path in ("", "/snapshot"):
        r = shared.client.get(f"/v1/contexts/{name}{path}")
        assert r.status_code in (400, 404)
        assert "root:" not in r.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
def test_a_context_backs_a_request_of_any_dialect(start, path):
    server = start()
    messages = [{"role": "user", "content": LONG}]
    a = make(server, messages=messages)
    body = {"input": messages} if path == "/v1/responses" else {"messages": messages}
    body |= {"max_output_tokens": 5} if path == "/v1/responses" else {"max_tokens": 5}
    server.model._seen.clear()
    used = server.client.post(path, json=body | {"context": a["id"], "store": False}).json()["usage"]
    cached = used.get("cache_read_input_tokens") or (
        used.get("prompt_tokens_details") or used.get("input_tokens_details") or {}
    ).get("cached_tokens")
    assert cached == a["tokens"] - 1
    assert server.client.get(f"/v1/contexts/{a['id']}").json()["tokens"] == a["tokens"]
    assert server.client.post(path, json=body | {"context": "ctx_none"}).status_code == 404
    if path == "/v1/chat/completions":
        out = server.client.post(
            path, json=body | {"context": a["id"], "n": 3, "seed": 1, "temperature": 1}
        ).json()
        plain = server.client.post(path, json=body | {"n": 3, "seed": 1, "temperature": 1}).json()
        assert [c["message"] for c in out["choices"]] == [c["message"] for c in plain["choices"]]
    server.wait(lambda: server.model.contexts == 1)


def test_explain_miss_names_where_a_prompt_parts_from_a_context(shared):
    a = make(shared, prompt="the quick brown fox")
    out = shared.client.post(
        f"/v1/contexts/{a['id']}/explain-miss", json={"prompt": "the quick red fox"}
    ).json()
    assert out["common_tokens"] == 1 + len("the quick ")
    assert out["first_difference"]["held"].startswith("e quick ")
    assert "brown" in out["first_difference"]["held"]
    assert "red" in out["first_difference"]["wanted"]
    same = shared.client.post(
        f"/v1/contexts/{a['id']}/explain-miss", json={"prompt": "the quick brown fox runs"}
    ).json()
    assert same["first_difference"] is None


def test_cx08_j24_a_context_moves_once_and_says_where_it_went(start):
    there = start(api_keys=("ann:k",))
    here = start(move_targets=(there.url,))
    a = make(here, prompt="once", label="mine", marking="internal")
    url = f"/v1/contexts/{a['id']}/move"
    for target in ("http://169.254.169.254", f"{there.url}.evil.example", f"{there.url}@evil.example"):
        assert here.client.post(url, json={"to": target}).status_code == 403
    r = here.client.post(url, json={"to": there.url, "key": "wrong"})
    assert r.status_code == 503
    assert "401" in r.json()["detail"]
    assert here.client.get(f"/v1/contexts/{a['id']}").json()["busy"] is None  # still here, unharmed
    out = here.client.post(url, json={"to": there.url, "key": "k"})
    assert out.status_code == 200, out.text
    moved = there.client.get(f"/v1/contexts/{out.json()['moved']['id']}", headers={"x-api-key": "k"}).json()
    assert (moved["tokens"], moved["label"], moved["marking"], moved["owner"]) == (
        a["tokens"],
        "mine",
        "internal",
        "ann",
    )
    r = here.client.get(f"/v1/contexts/{a['id']}")
    assert r.status_code == 410
    assert r.json()["moved"]["server"] == there.url
    here.wait(lambda: here.model.contexts == 0)


def test_cx08_a_receiver_that_is_not_there_or_is_another_model_leaves_the_context_here(start):
    there = start(FakeModel(sha="b" * 64))
    gone = "http://127.0.0.1:9"
    here = start(move_targets=(there.url, gone))
    a = make(here)
    assert here.client.post(f"/v1/contexts/{a['id']}/move", json={"to": gone}).status_code == 503
    assert here.client.post(f"/v1/contexts/{a['id']}/move", json={"to": there.url}).status_code == 409
    assert here.client.get(f"/v1/contexts/{a['id']}").json()["tokens"] == a["tokens"]
    assert there.model.contexts == 0


def test_a_write_that_is_not_committed_leaves_the_conversation_as_it_was(shared):
    a = make(shared, messages=[{"role": "user", "content": "hi"}])
    url = f"/v1/contexts/{a['id']}"
    generate(shared, a["id"], messages=[{"role": "user", "content": "and?"}], commit=False)
    assert (
        generate(
            shared, a["id"], messages=[{"role": "user", "content": "x"}], json_schema={"unsupported": 1}
        ).status_code
        == 400
    )
    assert shared.client.get(f"{url}?include=messages").json()["messages"] == [
        {"role": "user", "content": "hi"}
    ]
    out = generate(shared, a["id"], n=2, messages=[{"role": "user", "content": "and?"}], max_tokens=5).json()
    child = shared.client.get(f"/v1/contexts/{out['choices'][0]['context']}?include=messages").json()
    assert child["messages"][-1] == {"role": "user", "content": "and?"}
    assert shared.client.get(f"{url}?include=messages").json()["messages"] == [
        {"role": "user", "content": "hi"}
    ]


def test_markings_are_for_those_who_handle_them(start, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    server = start(
        api_keys=("ann:a", "bob:b"),
        markings=("internal", "ann:secret"),
        ctx_key=str(key),
    )
    ann, bob = {"authorization": "Bearer a"}, {"authorization": "Bearer b"}
    c = server.client

    def made(headers, marking):
        return c.post("/v1/contexts", json={"prompt": "hello", "marking": marking}, headers=headers)

    assert made(bob, "internal").status_code == 201
    refused = made(bob, "secret")
    assert refused.status_code == 403
    assert refused.json()["code"] == "marking_not_allowed"
    secret = made(ann, "secret").json()
    forks = c.post(f"/v1/contexts/{secret['id']}/fork?n=2", headers=ann).json()["data"]
    assert {f["marking"] for f in forks} == {"secret"}
    data = c.get(f"/v1/contexts/{secret['id']}/snapshot", headers=ann).content
    again = c.post("/v1/contexts/restore", content=data, headers=ann)
    assert (again.status_code, again.json()["marking"]) == (201, "secret")
    stolen = c.post("/v1/contexts/restore", content=data, headers=bob)
    assert (stolen.status_code, stolen.json()["code"]) == (403, "snapshot_not_allowed")


def test_a_marked_context_leaves_only_encrypted_and_enterprise_knows_no_other_markings(start):
    open_server = start(markings=("internal",))
    made = open_server.client.post("/v1/contexts", json={"prompt": "hello", "marking": "internal"}).json()
    r = open_server.client.get(f"/v1/contexts/{made['id']}/snapshot")
    assert (r.status_code, r.json()["code"]) == (403, "marking_needs_key")
    strict = start(profile="enterprise")
    r = strict.client.post("/v1/contexts", json={"prompt": "hello", "marking": "internal"})
    assert r.status_code == 403
