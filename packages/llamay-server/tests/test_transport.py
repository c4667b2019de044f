"""Section 0 of the specification: what holds for every route, over real sockets."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable

import httpx
import pytest

from llamay_server.http.receiving import unpack

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "seed": 3}
ALL_GETS = ["/", "/health", "/v1/models", "/metrics"]


def raw(server, text: bytes, *, timeout: float = 5.0) -> bytes:
    """Send bytes as they are and read until the server closes or is silent."""
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=timeout) as s:
        out = b""
        try:
            s.sendall(text)
            s.settimeout(0.6)
            while part := s.recv(65536):
                out += part
        except (TimeoutError, ConnectionResetError, BrokenPipeError):
            pass  # silent, or closed while there was still something to read
        return out


def frames(text: str) -> list[str]:
    assert "\r" not in text
    assert text.endswith("\n\n")
    return text.removesuffix("\n\n").split("\n\n")


def test_t01_t02_event_streams_end_frames_with_two_newlines_and_done(shared):
    with shared.client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as r:
        text = r.read().decode()
    assert r.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in r.headers
    assert r.headers["cache-control"] == "no-cache"
    assert r.headers["x-accel-buffering"] == "no"
    parts = frames(text)
    assert parts[-1] == "data: [DONE]"
    for part in parts[:-1]:
        assert part.startswith("data: {")
        assert json.loads(part.removeprefix("data: "))["object"] == "chat.completion.chunk"


def test_t03_the_body_ends_right_after_the_last_frame(shared):
    body = json.dumps(CHAT | {"stream": True}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    began = time.monotonic()
    out = raw(shared, head + body)
    assert b"data: [DONE]\n\n\r\n0\r\n\r\n" in out
    assert time.monotonic() - began < 3


def test_t04_an_error_before_the_first_byte_has_a_status_even_for_a_stream(start):
    server = start()
    server.model.fail = "no such thing"
    r = server.client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert r.status_code == 400
    assert r.json()["error"]["message"] == "no such thing"


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/chat/completions", CHAT), ("/v1/completions", {"prompt": "x", "max_tokens": 12, "seed": 1})],
)
def test_t05_an_error_after_the_first_byte_is_a_frame_and_ends_the_stream(start, path, body):
    server = start()
    server.model.fail_after = 5
    with server.client.stream("POST", path, json=body | {"stream": True}) as r:
        text = r.read().decode()
    assert r.status_code == 200
    last = json.loads(frames(text)[-1].removeprefix("data: "))
    assert last["error"]["message"] == "the engine stumbled"


def leave(
    server, path: str, body: dict, after: float = 0.15, *, when: Callable[[], bool] | None = None
) -> None:
    """Send a request, and close the connection so many seconds later, or later than the condition holds."""
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    if when is not None:
        server.wait(when)
    time.sleep(after)
    connection.close()


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("phase", ["queue", "prefill", "decode"])
def test_t06_a_client_that_leaves_cancels_within_250_ms(start, stream, phase):
    server = start()
    model = server.model
    body = {
        "messages": [{"role": "user", "content": "word " * 200}],
        "max_tokens": 4000,
        "ignore_eos": True,
        "stream": stream,
    }
    if phase == "queue":
        model.blocked.set()
    elif phase == "prefill":
        model.prefill_delay = 0.05
    else:
        model.decode_delay = 0.01
    leave(server, "/v1/chat/completions", body, when=lambda: model.live == 1)
    assert server.wait(lambda: model.live == 0) < 0.25
    server.wait(
        lambda: (
            sum(server.metric("llamay_cancelled_total", phase=p) for p in ("queue", "prefill", "decode")) == 1
        )
    )
    assert server.app.services.admission.waiting == server.app.services.admission.running == 0


def test_t06_a_client_that_leaves_while_several_choices_run_frees_all_of_them(start):
    server = start()
    server.model.decode_delay = 0.01
    body = CHAT | {"n": 4, "max_tokens": 4000, "ignore_eos": True}
    leave(server, "/v1/chat/completions", body, when=lambda: server.model.live == 4)
    server.wait(lambda: server.model.live == 0 and server.model.contexts == 0 and server.model.ended == 4)


@pytest.mark.parametrize("stream", [False, True])
def test_t06_a_client_that_leaves_while_a_grammar_compiles_frees_its_place(start, stream):
    server = start()
    admission = server.app.services.admission
    begun, end = threading.Event(), threading.Event()

    def slow(wanted):
        assert admission.waiting == 1
        begun.set()
        assert end.wait(10)
        return compile_at_once(wanted)

    compile_at_once, server.model.compile = server.model.compile, slow
    body = CHAT | {"regex": "yes", "stream": stream}
    leave(server, "/v1/chat/completions", body, when=begun.is_set)
    assert server.wait(lambda: admission.waiting == admission.running == 0) < 0.25
    server.wait(lambda: server.metric("llamay_cancelled_total", phase="compile") == 1)
    # The compiler is not waited for, and nothing was submitted.
    end.set()
    server.model.compile = compile_at_once
    assert server.model.ended == 0
    assert "yes" in server.client.post("/v1/chat/completions", json=CHAT | {"regex": "yes"}).text


@pytest.mark.parametrize("stream", [False, True])
def test_t06_a_client_that_leaves_while_the_model_loads_abandons_the_load(start, tmp_path, stream):
    from fake_engine import FakeModel

    state = {"steps": 0, "abandoned": False}

    def loader(path, *, progress=None):
        try:
            for _ in range(400):
                time.sleep(0.01)
                state["steps"] += 1
                progress("weights", state["steps"], 400)
        except BaseException:
            state["abandoned"] = True
            raise
        return FakeModel("slow")

    server = start(FakeModel(), f"slow={tmp_path / 'slow.gguf'}", loader=loader)
    body = CHAT | {"model": "slow", "stream": stream}
    leave(server, "/v1/chat/completions", body, when=lambda: state["steps"] > 0)
    assert server.wait(lambda: state["abandoned"]) < 0.25
    server.wait(lambda: server.metric("llamay_cancelled_total", phase="load") == 1)
    # The next request begins anew and is answered.
    assert server.client.post("/v1/chat/completions", json=CHAT | {"model": "slow"}).status_code == 200


def test_t07_deltas_are_whole_characters_and_equal_the_plain_text(start):
    server = start()
    smile = "naïve 👩‍👩‍👧 日本語 e\u0301 end"
    server.model.script = lambda prompt: smile
    whole = server.client.post("/v1/chat/completions", json=CHAT | {"max_tokens": 100}).json()
    assert whole["choices"][0]["message"]["content"] == smile
    with server.client.stream(
        "POST", "/v1/chat/completions", json=CHAT | {"max_tokens": 100, "stream": True}
    ) as r:
        chunks = [json.loads(f[6:]) for f in frames(r.read().decode())[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks) == smile


@pytest.mark.parametrize(
    ("text", "stop", "told"),
    [
        ("one STOP two", "STOP", "one "),
        ("one STO two", "STOP", "one STO two"),  # what was held back comes when it is no stop string
        ("one STO", "STOP", "one STO"),
        ("SSTOP", "STOP", "S"),
        ("aab aaab", "aaab", "aab "),
        ("naïve é", "é", "naïve "),  # one character in two tokens
        ("日本語", "本", "日"),
        ("x👩‍👩‍👧y", "👧y", "x👩‍👩‍"),
    ],
)
def test_t08_a_stop_string_is_never_shown_in_part_however_tokens_divide_it(start, text, stop, told):
    server = start()
    server.model.script = lambda prompt: text
    body = CHAT | {"stop": stop, "max_tokens": 100}
    whole = server.client.post("/v1/chat/completions", json=body).json()["choices"][0]
    assert whole["message"]["content"] == told
    with server.client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as r:
        chunks = [json.loads(f[6:])["choices"][0] for f in frames(r.read().decode())[:-1]]
    deltas = [c["delta"].get("content") or "" for c in chunks]
    assert "".join(deltas) == told
    for n in range(len(deltas)):
        assert told.startswith("".join(deltas[:n]))


@pytest.mark.parametrize("limit", range(1, 9))
def test_t07_a_character_cut_by_the_limit_is_told_alike_in_both_forms(start, limit):
    server = start()
    server.model.script = lambda prompt: "a👩‍b"
    body = CHAT | {"max_tokens": limit}
    whole = server.client.post("/v1/chat/completions", json=body).json()["choices"][0]
    with server.client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as r:
        chunks = [json.loads(f[6:])["choices"][0] for f in frames(r.read().decode())[:-1]]
    assert "".join(c["delta"].get("content") or "" for c in chunks) == whole["message"]["content"]
    assert chunks[-1]["finish_reason"] == whole["finish_reason"] == "length"


def test_t09_a_long_prefill_is_kept_alive_by_comments(start):
    server = start(ping_interval=0.05)
    server.model.prefill_delay = 0.3
    with server.client.stream("POST", "/v1/chat/completions", json=CHAT | {"stream": True}) as r:
        text = r.read().decode()
    assert text.startswith(":\n\n")
    assert text.endswith("data: [DONE]\n\n")


def test_t09_no_keep_alive_before_a_refusal(start):
    server = start(ping_interval=5.0)
    server.model.fail = "refused"
    assert server.client.post("/v1/chat/completions", json=CHAT | {"stream": True}).status_code == 400


def test_t10_unknown_fields_are_ignored_null_is_absent_and_wrong_types_name_their_path(shared):
    c = shared.client
    assert (
        c.post(
            "/v1/chat/completions", json=CHAT | {"whatever": {"x": 1}, "stop": None, "n": None}
        ).status_code
        == 200
    )
    missing = c.post("/v1/embeddings", json={"model": "fake"}).json()["error"]
    assert (missing["param"], missing["code"]) == ("input", "missing_required_parameter")
    for field, value, path in [
        ("temperature", "0.5", "temperature"),
        ("n", True, "n"),
        ("stream", 1, "stream"),
        ("max_tokens", 1.5, "max_tokens"),
        (
            "messages",
            [{"role": "user", "content": [{"type": "text", "text": 5}]}],
            "messages[0].content[0].text",
        ),
        ("messages", [{"role": "nobody", "content": "x"}], "messages[0].role"),
        ("messages", [{"content": "x"}], "messages[0].role"),
        ("messages", [{"role": "user", "content": [{"type": "smell"}]}], "messages[0].content[0].type"),
    ]:
        r = c.post("/v1/chat/completions", json=CHAT | {field: value})
        assert r.status_code == 400, field
        error = r.json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", path)
        assert path in error["message"]


@pytest.mark.parametrize(
    "media",
    [
        "application/json",
        "application/json; charset=utf-8",
        "text/plain",
        "application/x-www-form-urlencoded",
        None,
    ],
)
def test_t11_json_is_read_whatever_its_content_type(shared, media):
    headers = {"content-type": media} if media else {}
    r = shared.client.post("/v1/chat/completions", content=json.dumps(CHAT), headers=headers)
    assert r.status_code == 200


def test_t12_packed_bodies_are_read_and_bombs_stopped(start):
    server = start(max_body=100_000)
    data = json.dumps(CHAT).encode()
    zstandard = pytest.importorskip("zstandard")
    packings = {"gzip": gzip.compress(data), "deflate": zlib.compress(data), "zstd": zstandard.compress(data)}
    for name, body in packings.items():
        r = server.client.post("/v1/chat/completions", content=body, headers={"content-encoding": name})
        assert r.status_code == 200, name
    bombs = {"gzip": gzip.compress(b" " * 5_000_000), "zstd": zstandard.compress(b" " * 5_000_000)}
    for name, body in bombs.items():
        r = server.client.post("/v1/chat/completions", content=body, headers={"content-encoding": name})
        assert r.status_code == 413, name
    for name, body in {
        "gzip": b"nonsense",
        "zstd": b"nonsense",
        "br": data,
        "gzip ": gzip.compress(data)[:-9],
    }.items():
        r = server.client.post(
            "/v1/chat/completions", content=body, headers={"content-encoding": name.strip()}
        )
        assert r.status_code == 400, name


def test_t12_unpacking_never_holds_more_than_the_limit():
    from llamay_server.http.errors import ApiError

    with pytest.raises(ApiError) as e:
        unpack(gzip.compress(b"x" * 1_000_001), "gzip", 1_000_000)
    assert e.value.kind == "too_large"
    assert len(unpack(gzip.compress(b"x" * 1_000_000), "gzip", 1_000_000)) == 1_000_000


BAD_JSON = {
    "no object": b"{",
    "cut short": b'{"messages": [',
    "not utf-8": b'{"messages": "\xff\xfe"}',
    "huge number": b'{"messages": [], "temperature": 1e400}',
    "not a number": b'{"messages": [], "temperature": NaN}',
    "infinity": b'{"messages": [], "temperature": Infinity}',
    "lone surrogate": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "deep": b'{"messages": ' + b"[" * 100_000,
    "deep and closed": b'{"whatever": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "empty": b"",
    "a list": b"[]",
    "null": b"null",
}


@pytest.mark.parametrize("name", BAD_JSON)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions", "/v1/contexts"])
def test_t13_bad_json_is_400_in_the_shape_of_the_route(shared, name, path):
    r = shared.client.post(path, content=BAD_JSON[name])
    assert r.status_code == 400
    if path == "/v1/contexts":
        assert r.headers["content-type"] == "application/problem+json"
        assert r.json()["status"] == 400
    else:
        assert r.json()["error"]["type"] == "invalid_request_error"


def test_t14_a_body_over_the_limit_is_413(start):
    server = start(max_body=10_000)
    big = json.dumps(CHAT | {"user": "x" * 20_000}).encode()
    for path in ("/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/contexts"):
        assert server.client.post(path, content=big).status_code == 413
    # A chunked body has no length to look at beforehand.
    r = server.client.post("/v1/chat/completions", content=iter([big[:9_000], big[9_000:]]))
    assert r.status_code == 413
    assert r.json()["error"]["code"] == "request_too_large"
    # The next request on a fresh connection works.
    assert server.client.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_t15_head_options_wrong_verbs_and_unknown_paths(shared):
    c = shared.client
    for path in ("/health", "/v1/models", "/metrics"):
        r = c.head(path)
        assert (r.status_code, r.content) == (200, b"")
        assert r.headers["content-type"] == c.get(path).headers["content-type"]
    assert c.options("/v1/chat/completions").status_code == 204
    for path, key in [
        ("/v1/nothing", "error"),
        ("/api/nothing", "error"),
        ("/v1/contexts/a/b/c", "detail"),
        ("/x", "error"),
    ]:
        r = c.get(path)
        assert r.status_code == 404
        assert key in r.json()
    r = c.put("/v1/chat/completions", json=CHAT)
    assert r.status_code == 405
    assert r.json()["error"]["type"] == "invalid_request_error"
    assert c.get("/v1/messages/nothing").json()["type"] == "error"


def test_t16_trailing_slashes_and_unknown_queries_are_accepted(shared):
    for path in ("/v1/chat/completions/", "/v1/chat/completions?beta=true&x=%ff"):
        assert shared.client.post(path, json=CHAT).status_code == 200
    assert shared.client.get("/v1/models/").status_code == 200


def test_t17_every_answer_has_a_request_id(shared):
    c = shared.client
    for path in ("/health", "/nothing", "/v1/models"):
        r = c.get(path)
        assert r.headers["x-request-id"] == r.headers["request-id"]
    assert c.get("/health", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    for bad in ("x" * 200, "a b", "é".encode()):
        assert c.get("/health", headers={"x-request-id": bad}).headers["x-request-id"].startswith("req_")


def test_t18_keys_are_read_from_both_headers_and_only_health_is_open(start):
    server = start(api_keys=("ann:sekret-1", "sekret-2"))
    c = server.client
    assert c.get("/health").status_code == 200
    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"x-api-key": "sekret-1x"},
        {"authorization": "Basic sekret-1"},
    ):
        for path in ("/v1/models", "/metrics", "/props", "/slots", "/v1/contexts"):
            r = c.get(path, headers=headers)
            assert r.status_code == 401, path
            assert "sekret" not in r.text
    assert c.get("/v1/models").json()["error"]["code"] == "invalid_api_key"
    assert (
        c.get("/v1/models", headers={"anthropic-version": "1"}).json()["error"]["type"]
        == "authentication_error"
    )
    assert "error" in c.get("/api/tags").json()
    for headers in (
        {"authorization": "Bearer sekret-1"},
        {"x-api-key": "sekret-2"},
        {"authorization": "bearer sekret-2"},
    ):
        assert c.get("/v1/models", headers=headers).status_code == 200


def test_t18_without_keys_any_key_is_accepted(shared):
    assert shared.client.get("/v1/models", headers={"authorization": "Bearer dummy"}).status_code == 200


def test_t19_a_full_queue_is_429_with_retry_after(start):
    server = start(max_queue=2)
    server.model.blocked.set()
    threads = [
        threading.Thread(target=server.client.post, args=("/v1/chat/completions",), kwargs={"json": CHAT})
        for _ in range(2)
    ]
    for t in threads:
        t.start()
    server.wait(lambda: server.app.services.admission.waiting == 2)
    r = server.client.post("/v1/chat/completions", json=CHAT)
    assert r.status_code == 429
    assert r.json()["error"]["type"] == "rate_limit_error"
    assert int(r.headers["retry-after"]) >= 1
    server.model.blocked.clear()
    for t in threads:
        t.join()
    assert server.client.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_t20_connections_are_kept_pipelined_and_chunked(shared):
    body = json.dumps(CHAT).encode()
    one = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    assert raw(shared, one + one).count(b"HTTP/1.1 200 OK") == 2
    chunked = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(b"1\r\n" + bytes([b]) + b"\r\n" for b in body) + b"0\r\n\r\n"
    assert b"200 OK" in raw(shared, chunked)
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    expect = f"{head}Content-Length: {len(body)}\r\n\r\n".encode()
    assert b"100 Continue" in raw(shared, expect + body)


def test_t20_ipv6_and_unix_sockets(start, tmp_path):
    try:
        server = start(host="::1")
    except AssertionError:
        pytest.skip("no IPv6 loopback here")
    assert server.url.startswith("http://[::1]:")
    assert server.client.get("/health").status_code == 200
    path = str(tmp_path / "s")
    assert start(uds=path).client.get("/health").status_code == 200


def test_t21_t22_usage_and_text_agree_streamed_or_not_alone_or_in_a_batch(shared):
    body = CHAT | {"max_tokens": 40, "temperature": 0.9}
    whole = shared.client.post("/v1/chat/completions", json=body).json()
    text, used = whole["choices"][0]["message"]["content"], whole["usage"]
    streamed = body | {"stream": True, "stream_options": {"include_usage": True}}
    with shared.client.stream("POST", "/v1/chat/completions", json=streamed) as r:
        chunks = [json.loads(f[6:]) for f in frames(r.read().decode())[:-1]]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks[:-1]) == text
    last = chunks[-1]["usage"]
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert last[key] == used[key]
    results: list[str] = []

    def one() -> None:
        with httpx.Client(base_url=shared.url) as c:
            results.append(
                c.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
            )

    threads = [threading.Thread(target=one) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [text] * 8


def test_a_stopping_server_lets_requests_end_and_refuses_new_ones(start):
    server = start(drain_timeout=5.0)
    server.model.decode_delay = 0.01
    got: list[httpx.Response] = []
    body = CHAT | {"max_tokens": 60, "ignore_eos": True}
    running = threading.Thread(
        target=lambda: got.append(httpx.post(server.url + "/v1/chat/completions", json=body))
    )
    running.start()
    server.wait(lambda: server.model.live == 1)
    server.server._loop.call_soon_threadsafe(server.server.begin_drain)
    server.wait(lambda: server.app.gate.draining)
    r = httpx.post(server.url + "/v1/chat/completions", json=CHAT)
    assert r.status_code == 503
    assert "retry-after" in r.headers
    running.join()
    assert got[0].status_code == 200


def test_a_stopping_server_cuts_off_what_takes_too_long_and_says_so(start):
    server = start(drain_timeout=0.2)
    server.model.decode_delay = 0.01
    body = CHAT | {"max_tokens": 4000, "ignore_eos": True, "stream": True}
    texts: list[str] = []

    def read() -> None:
        with httpx.stream("POST", server.url + "/v1/chat/completions", json=body) as r:
            texts.append(r.read().decode())

    reader = threading.Thread(target=read)
    reader.start()
    server.wait(lambda: server.app.services.admission.running == 1)
    server.server._loop.call_soon_threadsafe(server.server.begin_drain)
    reader.join(10)
    assert "shutting down" in texts[0].rsplit("data: ", 1)[1]
    server.wait(lambda: server.model.live == 0)


def test_a_request_has_a_time_limit(start):
    server = start(request_timeout=0.3)
    server.model.decode_delay = 0.01
    body = CHAT | {"max_tokens": 4000, "ignore_eos": True}
    r = server.client.post("/v1/chat/completions", json=body)
    assert r.status_code == 504
    with server.client.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as r:
        assert "timeout_error" in r.read().decode()
    server.wait(lambda: server.model.live == 0)
