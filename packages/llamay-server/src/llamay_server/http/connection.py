"""HTTP/1.1 on a connection: uvicorn's own, which here also gives up on a head that never ends.

h11 reads and writes heads, and ends messages. What it would do for each part of a stream, and ASGI's way to it, costs
more than making the part, so that a stream's frames may take a shorter one: `Body`.
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
    """The body of an answer that is under way, whose length its head does not tell."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle, self._flow, self._write = cycle, cycle.flow, cycle.transport.write
        # To clients of HTTP/1.0 the end of the connection is the end of the body, and nothing frames its parts.
        self._framed = cycle.scope["http_version"] >= "1.1"
        self.last = time.monotonic()
        """When something was last written."""

    @property
    def blocked(self) -> bool:
        """Whether nothing may be written now: the client reads too slowly, or it is gone, or the body has ended."""
        cycle = self._cycle
        return self._flow.write_paused or cycle.disconnected or cycle.response_complete

    def write(self, frame: bytes, now: float) -> None:
        """Send a part, which must not be empty."""
        self.last = now
        self._write(b"%x\r\n%b\r\n" % (len(frame), frame) if self._framed else frame)


def body_of(scope: Mapping[str, Any]) -> Body | None:
    """The body of the answer to a request, where the server below lets us write it."""
    cycle: RequestResponseCycle | None = scope.get("extensions", {}).get(_EXTENSION)
    return None if cycle is None or cycle.scope["method"] == "HEAD" else Body(cycle)


class Protocol(H11Protocol):
    """One connection. From its first byte, or from being opened, a request has `head_timeout` seconds for its head."""

    head_timeout = 30.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Read on, and see whether the head is whole."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        else:
            self._stop()

    def handle_events(self) -> None:
        """Let the request that begins know its answer's way out; it runs only after this."""
        super().handle_events()
        if self.cycle is not None:
            self.cycle.scope["extensions"] = {_EXTENSION: self.cycle}  # type: ignore[dict-item]

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
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
        # Between two requests of a connection that is kept, uvicorn's own timer counts.
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.conn.trailing_data[0]):
            self.transport.close()


def protocol(head_timeout: float) -> type[Protocol]:
    """The class of connections with this limit, in seconds."""
    return type("Protocol", (Protocol,), {"head_timeout": head_timeout})
