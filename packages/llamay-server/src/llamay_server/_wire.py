"""HTTP/1.1 on a connection: uvicorn's own, which here also gives up on a head that never ends."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


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
