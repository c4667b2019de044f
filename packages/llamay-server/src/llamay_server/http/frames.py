"""The frames of streamed answers: server-sent events and lines of NDJSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from llamay_server.http.errors import Dialect, body

if TYPE_CHECKING:
    from llamay_server.http.errors import ApiError
    from llamay_server.http.exchange import Exchange

encode = msgspec.json.Encoder(decimal_format="number").encode
PING = b":\n\n"
"""A comment between server-sent events, which keeps a connection alive."""
_HOLE = "\0hole\0"


def sse(data: Any, event: str | None = None) -> bytes:
    r"""Return one server-sent event, with its `\n\n` (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""
    payload = encode(data)
    if event is None:
        return b"data: %b\n\n" % payload
    return b"event: %b\ndata: %b\n\n" % (event.encode(), payload)


class EventTemplate:
    """A server-sent event of which only one text varies: all the rest is encoded once, since each token has one."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        """`make` returns the event's data with a text in it."""
        self._before, self._after = sse(make(_HOLE)).split(encode(_HOLE))

    def fill(self, text: str) -> bytes:
        """Return the event with this text, byte for byte as `sse` makes it of the same data."""
        return self._before + encode(text) + self._after


def ndjson(data: Any) -> bytes:
    """Return one line of NDJSON (https://github.com/ndjson/ndjson-spec)."""
    return encode(data) + b"\n"


def error_frame(error: ApiError, exchange: Exchange) -> bytes:
    """Return the frame that tells an error after the first byte of a stream, as the dialect's clients notice it."""
    if exchange.fail_frame is not None:
        return exchange.fail_frame(error)
    content = body(error, exchange.dialect, exchange.request_id)
    if exchange.dialect is Dialect.OLLAMA:
        return ndjson(content)
    if exchange.dialect in (Dialect.ANTHROPIC, Dialect.OWN):
        return sse(content, "error")
    return sse(content)
