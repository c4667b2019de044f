"""`ps` and `stop` against a server that runs."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from llamay_cli.verbs.server import until

MODEL = {
    "name": "tiny:latest",
    "digest": "ab" * 32,
    "size": 1_500_000_000,
    "size_vram": 0,
    "context_length": 4096,
    "expires_at": "2318-01-01T00:00:00Z",
}


class Loaded:
    """What a server holds; the wire is the conftest's web server."""

    def __init__(self, web: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.web, self.models, self.asked = web, [dict(MODEL)], []
        web.routes["/api/ps"] = lambda handler: self.send(handler, {"models": self.models})
        host, _, port = web.url.removeprefix("http://").partition(":")
        monkeypatch.setenv("LLAMAY_HOST", host)
        monkeypatch.setenv("LLAMAY_PORT", port)
        loaded = self

        def post(handler: Any) -> None:
            body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
            loaded.asked.append((handler.path, body))
            if body["model"] == "none":
                loaded.send(handler, {"error": "model 'none' not found"}, 404)
                return
            if body["model"] != "busy":
                loaded.models = [m for m in loaded.models if m["name"] != body["model"] + ":latest"]
            loaded.send(handler, {"done": True, "done_reason": "unload"})

        web.server.RequestHandlerClass.do_POST = post

    @staticmethod
    def send(handler: Any, answer: Any, status: int = 200) -> None:
        data = json.dumps(answer).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)


@pytest.fixture
def loaded(web: Any, monkeypatch: pytest.MonkeyPatch) -> Loaded:
    return Loaded(web, monkeypatch)


def test_cl02_ps_is_ollamas_table(loaded: Loaded, llamay: Callable[..., Any]) -> None:
    result = llamay("ps")
    assert result.exit_code == 0, result.stderr
    head, row = result.stdout.splitlines()
    assert head.split() == ["NAME", "ID", "SIZE", "PROCESSOR", "CONTEXT", "UNTIL"]
    assert row.split() == ["tiny:latest", "abababababab", "1.5", "GB", "100%", "CPU", "4096", "Forever"]
    assert json.loads(llamay("ps", "--json").stdout) == [MODEL]
    loaded.models = []
    assert len(llamay("ps").stdout.splitlines()) == 1


def test_cl12_stop_names_what_is_not_there_and_goes_on(loaded: Loaded, llamay: Callable[..., Any]) -> None:
    loaded.models.append(MODEL | {"name": "busy"})
    result = llamay("stop", "none", "busy", "tiny")
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "error: model 'none' not found",
        "busy is in use; the server unloads it when it is idle",
        "stopped tiny",
    ]
    assert loaded.asked[-1] == ("/api/generate", {"model": "tiny", "keep_alive": 0, "stream": False})


def test_a_key_is_shown_and_never_printed(
    loaded: Loaded, llamay: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAY_API_KEY", "s3cret")
    loaded.web.routes["/api/ps"] = lambda handler: loaded.send(handler, {"error": "no"}, 401)
    result = llamay("ps")
    assert result.exit_code == 5
    assert loaded.web.requests[-1][1]["authorization"] == "Bearer s3cret"
    assert "s3cret" not in result.output


@pytest.mark.parametrize("answer", [b"<html>", b"[1", b""])
def test_what_is_no_server_is_one_line(loaded: Loaded, llamay: Callable[..., Any], answer: bytes) -> None:
    loaded.web.routes["/api/ps"] = answer
    result = llamay("ps")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1


def test_no_server_is_exit_code_4(llamay: Callable[..., Any]) -> None:
    result = llamay("ps", "--server", "127.0.0.1:1")
    assert result.exit_code == 4
    assert "hint: `llamay serve` starts one" in result.stderr


def test_times_are_said_as_people_say_them() -> None:
    at = "2026-01-01T00:00:{:02d}Z".format
    now = 1767225600.0
    assert until(at(0), now) == "Stopping..."
    assert until(at(1), now) == "1 second from now"
    assert until("2026-01-01T00:05:00Z", now) == "5 minutes from now"
    assert until("2026-01-01T01:00:00Z", now) == "1 hour from now"
    assert until("2318-01-01T00:00:00Z", now) == "Forever"
    assert until("soon", now) == "soon"
