"""What must not be possible."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from pathlib import Path

import pytest
from fake_engine import FakeModel

from llamay_server import Config, ConfigError, create_app
from llamay_server.config import read_keys
from llamay_server.http.keys import Keys
from llamay_server.http.origins import host_name
from llamay_server.observability.logs import clean

from .conftest import no_loader, running
from .test_transport import raw

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def test_j01_ol27_only_local_names_are_answered_on_loopback(shared):
    port = shared.url.rsplit(":", 1)[1]
    for host in (
        "localhost",
        f"localhost:{port}",
        "127.0.0.1",
        f"127.0.0.1:{port}",
        "[::1]",
        f"[::1]:{port}",
        "LOCALHOST.",
        "a.localhost",
    ):
        assert shared.client.get("/v1/models", headers={"host": host}).status_code == 200, host
    for host in (
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        f"evil.example:{port}",
        "10.0.0.1",
        "0.0.0.0",
    ):
        r = shared.client.get("/v1/models", headers={"host": host})
        assert r.status_code == 403, host
    for host in ("", "a/b", "user@localhost", "localhost:x", "localhost, evil.example"):
        assert shared.client.get("/v1/models", headers={"host": host}).status_code == 400, host
    assert b" 400 " in raw(shared, b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n").split(b"\r\n")[0]


def test_j01_further_names_can_be_allowed():
    with running(allowed_hosts=("box.lan",)) as server:
        assert server.client.get("/v1/models", headers={"host": "box.lan:80"}).status_code == 200
        assert server.client.get("/v1/models", headers={"host": "other.lan"}).status_code == 403


def test_host_names_are_taken_apart():
    for host, name in {
        "[::1]:80": "::1",
        "A.b:1": "a.b",
        "x.": "x",
        "[::1]": "::1",
        "x:": "x",
        "x:1:2": "",
        "": "",
    }.items():
        assert host_name(host) == name, host


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/api/chat", "/v1/messages", "/v1/contexts", "/api/delete"]
)
@pytest.mark.parametrize("media", ["application/json", "text/plain", "application/x-www-form-urlencoded"])
def test_j02_t11_foreign_pages_are_refused_whatever_the_content_type(shared, path, media):
    for origin in (
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1:1",
        "file://",
    ):
        r = shared.client.post(
            path, content=json.dumps(CHAT), headers={"origin": origin, "content-type": media}
        )
        assert r.status_code == 403, origin
        assert "access-control-allow-origin" not in r.headers


def test_j02_preflights_name_only_allowed_origins():
    ask = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    with running(origins=("https://app.example",)) as server:
        for origin, allowed in (
            ("https://app.example", True),
            ("https://evil.example", False),
            ("null", False),
            (server.url, True),
        ):
            r = server.client.options("/v1/chat/completions", headers=ask | {"origin": origin})
            assert r.headers.get("access-control-allow-origin") == (origin if allowed else None)
            assert "access-control-allow-credentials" not in r.headers
        r = server.client.post("/v1/chat/completions", json=CHAT, headers={"origin": "https://app.example"})
        assert r.status_code == 200
        assert r.headers["access-control-allow-origin"] == "https://app.example"
        assert (
            server.client.post("/v1/chat/completions", json=CHAT, headers={"origin": server.url}).status_code
            == 200
        )


def test_j03_keys_are_kept_as_digests_and_shown_nowhere(caplog):
    secret = "sk-very-secret-0123456789"
    with caplog.at_level(logging.DEBUG), running(api_keys=(f"ann:{secret}",)) as server:
        auth = {"authorization": f"Bearer {secret}"}
        texts = [
            server.client.get(p, headers=auth).text
            for p in ("/props", "/metrics", "/slots", "/openapi.json", "/v1/models")
        ]
        texts += [server.client.get("/v1/models", headers={"authorization": f"Bearer {secret}x"}).text]
        assert server.client.get("/v1/models", headers=auth).status_code == 200
    assert not any(secret in t for t in (*texts, caplog.text))
    assert secret not in repr(vars(Keys({secret: "ann"})))
    assert Keys({"a": "x"}).owner({b"authorization": b"Bearer "}) is None
    assert Keys({"a": "x"}).owner({}) is None


def test_j03_every_key_is_compared(monkeypatch):
    import hmac

    seen = []
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: seen.append(len(a) == len(b)) or a == b)
    assert Keys({f"k{i}": f"o{i}" for i in range(10)}).owner({b"x-api-key": b"k0"}) == "o0"
    assert seen == [True] * 10


def test_j03_a_key_file_open_to_others_is_refused(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# mine\nann:one\n\ntwo\n")
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_keys(Config(api_key_file=str(path)))
    path.chmod(0o600)
    assert read_keys(Config(api_key_file=str(path))) == {"one": "ann", "two": "key-2"}
    with pytest.raises(ConfigError, match="No such file"):
        read_keys(Config(api_key_file=str(tmp_path / "none")))


def test_j04_a_network_address_needs_a_key_or_a_word():
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.com"):
        with pytest.raises(ConfigError, match="reachable"):
            create_app([FakeModel()], config=Config(host=host), loader=no_loader)
        create_app([FakeModel()], config=Config(host=host, api_keys=("k",)), loader=no_loader)
        create_app([FakeModel()], config=Config(host=host, allow_unauthenticated=True), loader=no_loader)
        with pytest.raises(ConfigError, match="enterprise"):
            create_app(
                [FakeModel()],
                config=Config(host=host, allow_unauthenticated=True, profile="enterprise"),
                loader=no_loader,
            )


def test_j15_headers_are_bounded(shared):
    many = b"".join(b"x-%d: y\r\n" % i for i in range(10_000))
    for head in (many, b"x: " + b"y" * (1 << 20) + b"\r\n"):
        out = raw(shared, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n")
        assert b" 400 " in out.split(b"\r\n")[0] or out == b""
    out = raw(shared, b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert out == b"" or out.split(b" ")[1] in (b"400", b"404", b"414")
    assert shared.client.get("/health").status_code == 200


def test_j15_a_slow_head_is_given_up_and_a_kept_connection_is_not(start):
    server = start(head_timeout=0.3)
    host, port = server.url.removeprefix("http://").split(":")

    def closed(s) -> float:
        began = time.monotonic()
        s.settimeout(5)
        assert s.recv(1000) == b""
        return time.monotonic() - began

    for sent in (b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "):
        with socket.create_connection((host, int(port))) as s:
            s.sendall(sent)
            assert 0.1 < closed(s) < 2
    with socket.create_connection((host, int(port))) as s:
        for _ in range(3):
            s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            s.settimeout(5)
            got = b""
            while b'{"status":"ok"}' not in got:
                part = s.recv(4000)
                assert part
                got += part
            assert b"200 OK" in got
            time.sleep(0.5)
        s.sendall(b"GET /health")
        assert 0.1 < closed(s) < 2
    # A byte now and then does not help.
    with socket.create_connection((host, int(port))) as s:
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 5:
                s.sendall(b"x")
                time.sleep(0.02)
        assert time.monotonic() - began < 2
    server.model.decode_delay = 0.05
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 15, "ignore_eos": True}
    assert server.client.post("/v1/chat/completions", json=body).status_code == 200


def test_j15_a_slow_body_is_given_up(start):
    server = start(body_timeout=0.3)
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    with socket.create_connection((host, int(port))) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        s.settimeout(5)
        began = time.monotonic()
        assert b"408" in s.recv(65536)
        assert time.monotonic() - began < 2


def test_j15_many_idle_connections_leave_the_server_answering(shared):
    host, port = shared.url.removeprefix("http://").rsplit(":", 1)
    sockets = [socket.create_connection((host, int(port))) for _ in range(200)]
    try:
        assert shared.client.get("/health").status_code == 200
    finally:
        for s in sockets:
            s.close()


def test_j15_large_lists_are_read_or_refused_quickly(shared):
    began = time.monotonic()
    bodies = [
        CHAT | {"stop": ["x"] * 100_000},
        CHAT | {"logit_bias": {str(i): 1 for i in range(100_000)}},
        {"messages": [{"role": "user", "content": "x"}] * 100_000},
        CHAT | {"tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(5_000)]},
    ]
    for body in bodies:
        assert shared.client.post("/v1/chat/completions", json=body).status_code in (200, 400)
    assert time.monotonic() - began < 20


def test_j20_logs_hold_no_prompt_and_no_control_characters(caplog, start):
    with caplog.at_level(logging.DEBUG):
        server = start()
        server.model.fail = "x"
        server.client.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "my secret prompt"}]}
        )
        server.client.get("/nope%0a%1b[31m")
    assert "my secret prompt" not in caplog.text
    assert clean("a\nb\x1b[31m\u202e") == "a\\nb\\x1b[31m\\u202e"


def test_j20_metrics_have_no_labels_from_requests(shared):
    for name in ("evil1", "evil2"):
        shared.client.post("/v1/chat/completions", json=CHAT | {"model": name})
        shared.client.get(f"/{name}")
    assert "evil" not in shared.client.get("/metrics").text


def test_j22_the_page_is_served_under_a_strict_policy(shared):
    r = shared.client.get("/ui/")
    assert r.status_code == 200
    policy = r.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert (r.headers["x-frame-options"], r.headers["x-content-type-options"]) == ("DENY", "nosniff")
    html = r.text
    assert "<script>" not in html
    assert "onclick=" not in html
    assert "http://" not in html
    assert "https://" not in html
    for name in (
        "app.js",
        "api.js",
        "tree.js",
        "markdown.js",
        "style.css",
        "icon.svg",
        "docs.html",
        "docs.js",
    ):
        r = shared.client.get(f"/ui/{name}")
        assert r.status_code == 200, name
        assert "innerHTML" not in r.text
        assert "eval(" not in r.text
    for name in ("..%2froutes.py", "../routes.py", "%2e%2e/routes.py", "none.js", "%00"):
        assert shared.client.get(f"/ui/{name}").status_code in (400, 404), name
    assert shared.client.get("/ui").headers["location"] == "/ui/"
    assert shared.client.get("/", headers={"accept": "text/html"}).headers["location"] == "/ui/"
    assert start_without_web() == 404


def start_without_web() -> int:
    with running(web=False) as server:
        assert server.client.get("/", headers={"accept": "text/html"}).text == "Ollama is running"
        return server.client.get("/ui/").status_code


def test_j25_metrics_and_the_document_are_behind_the_key_unless_opened():
    with running(api_keys=("k",), metrics_open=True) as server:
        assert server.client.get("/metrics").status_code == 200
        assert server.client.get("/openapi.json").status_code == 401
        assert server.client.get("/ui/").status_code == 200


def test_internal_errors_give_nothing_away(start, monkeypatch):
    server = start()

    def broken(*_, **__):
        raise RuntimeError("/home/secret/path is broken")

    monkeypatch.setattr(server.model, "submit", broken)
    for path, body in (
        ("/v1/chat/completions", CHAT),
        ("/v1/messages", CHAT),
        ("/api/chat", CHAT | {"model": "fake"}),
    ):
        r = server.client.post(path, json=body)
        assert r.status_code == 500
        assert "secret" not in r.text
        assert "Traceback" not in r.text


def test_file_limits_are_not_leaked_to_descriptors(start):
    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc here")
    server = start()
    server.client.post("/v1/chat/completions", json=CHAT)
    before = len(list(Path("/proc/self/fd").iterdir()))
    cid = server.client.post("/v1/contexts", json={"prompt": "x"}).json()["id"]
    for _ in range(20):
        data = server.client.get(f"/v1/contexts/{cid}/snapshot").content
        server.client.post("/v1/contexts/restore", content=data)
        server.client.post("/v1/contexts/restore", content=b"bad")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3


def test_requests_in_threads_do_not_mix(shared):
    results: dict[int, str] = {}

    def one(i: int) -> None:
        body = CHAT | {
            "messages": [{"role": "user", "content": f"number {i}"}],
            "max_tokens": 10,
            "temperature": 0,
        }
        results[i] = shared.client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"][
            "content"
        ]

    threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(16):
        again = dict(results)
        one(i)
        assert results[i] == again[i]


@pytest.mark.parametrize(
    "name", ["messages", "tools", "tokenize", "chat_template", "add_generation_prompt", "bos_token"]
)
def test_j08_a_template_option_cannot_replace_what_the_server_sets(shared, name):
    for path, body in (
        ("/v1/chat/completions", CHAT),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 2}),
    ):
        r = shared.client.post(path, json=body | {"chat_template_kwargs": {name: True}})
        assert r.status_code == 400
        assert name in r.json()["error"]["message"]
    r = shared.client.post(
        "/v1/chat/completions", json=CHAT | {"chat_template_kwargs": {"enable_thinking": False}}
    )
    assert r.status_code == 200


def test_j10_j16_pictures_are_neither_fetched_nor_decoded(shared):
    """A model that reads text only has no use for them, so no address is looked up and no bomb unpacked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        here = f"http://127.0.0.1:{listener.getsockname()[1]}/x.png"
        bomb = "data:image/png;base64," + "A" * 200_000
        addresses = [
            *(
                here,
                bomb,
                "http://169.254.169.254/latest",
                "file:///etc/passwd",
                "ftp://x/y",
                "gopher://x",
                "",
            ),
            *(
                "http://0x7f.1/",
                "http://[::ffff:127.0.0.1]/",
                "http://a@127.0.0.1\\@b/",
                "data:image/svg+xml,<svg/>",
            ),
        ]
        for url in addresses:
            bodies = {
                "/v1/chat/completions": {"type": "image_url", "image_url": {"url": url}},
                "/v1/responses": {"type": "input_image", "image_url": url},
                "/v1/messages": {"type": "image", "source": {"type": "url", "url": url}},
            }
            for path, part in bodies.items():
                key = "input" if path == "/v1/responses" else "messages"
                r = shared.client.post(
                    path, json={key: [{"role": "user", "content": [part]}], "max_tokens": 2}
                )
                assert r.status_code == 400, (path, url)
                assert "/etc" not in r.text
                assert "127.0.0.1" not in r.text
            r = shared.client.post(
                "/api/chat", json={"model": "fake", "messages": [{"role": "user", "images": [url]}]}
            )
            assert r.status_code == 400
        with pytest.raises(TimeoutError):
            listener.accept()


def test_j17_tensors_and_pickles_are_no_input(shared):
    pickled = "gASVHwAAAAAAAACMBXBvc2l4lIwGc3lzdGVtlJOUjARlY2hvlIWUUpQu"
    part = {"type": "image_embeds", "data": pickled}
    for path, body in (
        ("/v1/completions", {"prompt_embeds": pickled}),
        ("/v1/completions", {"prompt": {"embeds": pickled}}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": [part]}]},
        ),
        ("/v1/contexts", {"embeds": pickled}),
    ):
        assert shared.client.post(path, json=body).status_code == 400, path
    import llamay_server

    sources = Path(llamay_server.__file__).parent.rglob("*.py")
    assert not [f.name for f in sources if "pickle" in f.read_text()]


def test_j12_one_owner_cannot_take_the_places_of_another():
    with running(api_keys=("ann:a", "bob:b"), max_contexts=3) as server:
        c, ann, bob = server.client, {"x-api-key": "a"}, {"x-api-key": "b"}
        held = c.post("/v1/contexts", json={"prompt": "mine"}, headers=bob).json()["id"]
        made = [c.post("/v1/contexts", json={"prompt": f"{i}"}, headers=ann).status_code for i in range(6)]
        assert made == [201, 201, 201, 429, 429, 429]
        assert c.get(f"/v1/contexts/{held}", headers=bob).status_code == 200
        assert c.post("/v1/contexts", json={"prompt": "more"}, headers=bob).status_code == 201
