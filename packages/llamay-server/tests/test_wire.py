"""How parts of a stream reach the connection: framed as HTTP wants, in order, and no faster than they are read."""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_engine import FakeModel
from hypothesis import given
from hypothesis import strategies as st

from llamay_server.http.connection import Body
from llamay_server.http.frames import EventTemplate, sse

TEXT = 'Ein naïver Text: 日本語, 👩‍👩‍👧, and "quotes" \\ and\nlines. ' * 4
USER = [{"role": "user", "content": "hi"}]
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/completions": {"prompt": "hi"},
    "/v1/chat/completions": {"messages": USER},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": {"messages": USER},
    "/api/chat": {"model": "fake", "messages": USER},
    "/api/generate": {"model": "fake", "prompt": "hi"},
    "/completion": {"prompt": "hi"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/v1/contexts/{id}/generate": {},
}


def strings(value: Any) -> Iterator[str]:
    """All text that pieces of an answer are told in."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("text", "content", "delta", "response") and isinstance(inner, str):
                yield inner
            elif key in ("choices", "delta", "message"):
                yield from strings(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings(inner)


def told(data: bytes) -> str:
    """The text of a stream's frames."""
    frames = [line.removeprefix("data: ") for line in data.decode().split("\n") if "{" in line]
    parts = [json.loads(frame) for frame in frames]
    ends = ("response.output_text.done", "response.content_part.done", "context.generation")
    parts = [part for part in parts if part.get("type", part.get("object")) not in ends]
    return "".join(text for part in parts for text in strings(part))


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The parts that took the short way."""
    parts: list[bytes] = []
    write = Body.write

    def spy(self: Body, frame: bytes, now: float) -> None:
        parts.append(frame)
        write(self, frame, now)

    monkeypatch.setattr(Body, "write", spy)
    return parts


def talk(url: str, request: bytes, *, until: bytes | None = None) -> bytes:
    """What comes back to raw bytes, up to the end of the connection or to a mark."""
    host, port = url.removeprefix("http://").rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=20) as s:
        s.sendall(request)
        out = b""
        while (until is None or until not in out) and (part := s.recv(65536)):
            out += part
        return out


def post(path: str, fields: dict[str, Any], *, version: str = "1.1", close: bool = False) -> bytes:
    """A request as it goes over the wire."""
    body = json.dumps(fields).encode()
    more = "Connection: close\r\n" if close else ""
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def unchunk(data: bytes) -> tuple[list[bytes], bytes]:
    """The chunks of a body, and what comes after it."""
    chunks = []
    while True:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        chunk, data = data[:n], data[n:]
        assert data.startswith(b"\r\n"), "a chunk is as long as it says"
        data = data[2:]
        if n == 0:
            return chunks, data
        chunks.append(chunk)


class Finished(FakeModel):
    """A model whose generations are complete before anybody reads them, as on a server that is far behind."""

    def submit(self, request):
        generation = super().submit(request)
        generation.wait(20)
        return generation


class Gradual(FakeModel):
    """A model whose pieces come one by one, so that the server waits for each."""

    def __init__(self, **options):
        super().__init__(**options)
        self.decode_delay = 0.0005


@pytest.mark.parametrize("kind", [FakeModel, Finished, Gradual])
@pytest.mark.parametrize("path", ROUTES)
def test_pieces_of_every_dialect_take_the_short_way_and_say_what_the_plain_answer_says(
    start, written, path, kind
):
    model = kind(script=lambda _: TEXT)
    fills = {"fill_prefix": 261, "fill_suffix": 262, "fill_middle": 263}
    model.info = dataclasses.replace(model.info, fill_tokens=fills)
    server = start(model)
    fields = ROUTES[path] | {"max_tokens": 1000, "n_predict": 1000}
    if "{id}" in path:
        made = server.client.post("/v1/contexts", json={"prompt": "hi"}).json()
        path = path.format(id=made["id"])
    with server.client.stream("POST", path, json=fields | {"stream": True}) as answer:
        assert answer.status_code == 200
        data = answer.read()
    assert told(data) == TEXT
    assert len(written) > 100, "nearly all of them, however far the server is behind"
    assert b"".join(written) in data, "one after the other"


def test_chunks_are_framed_and_the_connection_is_kept(start, written):
    server = start(FakeModel(script=lambda _: TEXT))
    stream = post("/v1/completions", {"prompt": "hi", "stream": True, "max_tokens": 1000})
    # The second request is sent before the first is answered.
    data = talk(server.url, stream + post("/tokenize", {"content": "hi"}, close=True))
    head, _, rest = data.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head.lower()
    chunks, rest = unchunk(rest)
    assert len(written) > 100
    assert set(written) <= set(chunks), "each part is a chunk of its own"
    assert told(b"".join(chunks)) == TEXT
    assert rest.startswith(b"HTTP/1.1 200")
    assert json.loads(rest.partition(b"\r\n\r\n")[2])["tokens"]


def test_a_client_of_http_1_0_gets_the_plain_body_and_its_end(start, written):
    server = start(FakeModel(script=lambda _: TEXT))
    data = talk(
        server.url,
        post("/v1/completions", {"prompt": "hi", "stream": True, "max_tokens": 1000}, version="1.0"),
    )
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert len(written) > 100
    assert told(body) == TEXT
    assert body.endswith(b"data: [DONE]\n\n")


def test_a_stream_that_is_to_be_the_last_of_its_connection_ends_it(start):
    server = start(FakeModel(script=lambda _: TEXT))
    request = post("/v1/completions", {"prompt": "hi", "stream": True, "max_tokens": 1000}, close=True)
    head, _, rest = talk(server.url, request).partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    chunks, rest = unchunk(rest)
    assert told(b"".join(chunks)) == TEXT
    assert rest == b""


def test_a_slow_reader_gets_everything_in_order_and_little_is_held_for_it(start, written, monkeypatch):
    held: list[int] = []
    write = Body.write

    def spy(self: Body, frame: bytes, now: float) -> None:
        write(self, frame, now)
        held.append(self._cycle.transport.get_write_buffer_size())

    monkeypatch.setattr(Body, "write", spy)
    words = "".join(f"{i} " for i in range(800))
    server = start(FakeModel(script=lambda _: words))
    for listener in server.server.servers[0].sockets:
        listener._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect((host, int(port)))
        s.sendall(
            post("/v1/completions", {"prompt": "hi", "stream": True, "max_tokens": 4000}, version="1.0")
        )
        time.sleep(0.5)
        data = b""
        while part := s.recv(65536):
            data += part
    assert told(data.partition(b"\r\n\r\n")[2]) == words
    assert len(data) > 4 * max(held), "more was said than was ever held"
    assert max(held) < 80_000


@given(text=st.text(), around=st.text())
def test_a_blank_is_filled_with_exactly_what_encoding_the_whole_event_gives(text, around):
    def make(inner):
        return {"id": around, "choices": [{"delta": {"content": inner}, "x": None}], "more": [1.5, around]}

    assert EventTemplate(make).fill(text) == sse(make(text))
