"""Spans go where the operator says, and hold no text."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from llamay_server import ConfigError
from llamay_server.observability.tracing import traced


@pytest.fixture
def collector():
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_request_is_a_span_without_its_text(start, collector):
    pytest.importorskip("opentelemetry.instrumentation.asgi")
    endpoint, bodies = collector
    server = start(otel_endpoint=endpoint)
    body = {"messages": [{"role": "user", "content": "very secret words"}], "max_tokens": 5}
    assert server.client.post("/v1/chat/completions", json=body).status_code == 200
    server.client.get("/health")
    server.app.flush_traces()
    sent = b"".join(bodies)
    for known in (b"llamay", b"/v1/chat/completions", b"gen_ai.usage.output_tokens", b"gen_ai.request.model"):
        assert known in sent
    assert b"secret" not in sent
    assert b"/health" not in sent


def test_without_the_extra_the_setting_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"pip install 'llamay-server\[otel\]'"):
        traced(object(), "http://127.0.0.1:1")
