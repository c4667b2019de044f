"""HTTP/1.1 connections: uvicorn's protocol, with a time limit for heads and a shorter path for the frames of streams.

h11 reads and writes heads, and ends messages. Passing one frame of a stream through ASGI and h11 takes longer than
making the frame, so frames may be written to the connection directly, through `Body`.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXTENSION = "llamay.body"


class Body:
    """The body of a streamed answer that is under way: frames written to it go to the connection at once."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._flow, self._write = cycle, cycle.flow, cycle.transport.write
        # For clients of HTTP/1.0 the body ends with the connection, and its parts are not chunked.
        self._framed = cycle.scope["http_version"] >= "1.1"
        self.last = time.monotonic()
        """When a frame was last written, in `time.monotonic()` seconds."""

    @property
    def blocked(self) -> bool:
        """Whether nothing may be written now: the client reads too slowly, or has left, or the body has ended."""
        cycle = self._cycle
        return self._flow.write_paused or cycle.disconnected or cycle.response_complete

    def write(self, frame: bytes, now: float) -> None:
        """Write a frame, which must not be empty, as one chunk (RFC 9112, section 7.1)."""
        self.last = now
        self._write(b"%x\r\n%b\r\n" % (len(frame), frame) if self._framed else frame)


def body_of(scope: Mapping[str, Any]) -> Body | None:
    """Return the body of the answer to a request; None under a server that offers no direct writing."""
    cycle: RequestResponseCycle | None = scope.get("extensions", {}).get(_EXTENSION)
    return None if cycle is None or cycle.scope["method"] == "HEAD" else Body(cycle)


class Protocol(H11Protocol):
    """One connection. A request's head must arrive within `head_timeout` seconds after the connection waits for it."""

    head_timeout = 30.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the clock for the head of a request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Parse the bytes that came, and stop the clock when a head is complete."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        else:
            self._stop()

    def handle_events(self) -> None:
        """Put the connection into the scope of a request that begins; its task starts only after this."""
        super().handle_events()
        if self.cycle is not None:
            self.cycle.scope["extensions"] = {_EXTENSION: self.cycle}  # type: ignore[dict-item]

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the clock."""
        self._stop()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_timeout, self._give_up)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        # Between two requests on one connection, uvicorn's keep-alive time-out counts.
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self.transport.close()


def protocol(head_timeout: float) -> type[Protocol]:
    """Return the class of connections whose heads must arrive within so many seconds."""
    return type("Protocol", (Protocol,), {"head_timeout": head_timeout})
