"""Answers as ASGI applications: whole ones, and streams."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from llamay_server.http.connection import body_of
from llamay_server.http.exchange import exchange_of
from llamay_server.http.frames import PING, encode, error_frame
from llamay_server.http.refusals import from_engine

if TYPE_CHECKING:
    from litestar.types import Receive, Scope, Send

    from llamay_server.http.connection import Body

log = logging.getLogger("llamay.server")
Frames = AsyncGenerator[bytes, None]


class WholeAnswer:
    """A complete answer. `content` is encoded as JSON, unless it is bytes."""

    def __init__(
        self,
        content: Any,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        media: str = "application/json",
    ) -> None:
        self.body = content if isinstance(content, bytes) else encode(content)
        self.status, self.media, self.headers = status, media, dict(headers or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        exchange_of(scope).phase = None
        headers = {"content-type": self.media, "content-length": str(len(self.body))} | self.headers
        raw = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": raw})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


class StreamedAnswer:
    """An answer in parts. `StreamedAnswer.start` makes one, and settles the status before a byte is sent."""

    def __init__(
        self, frames: Frames, first: asyncio.Task[bytes], ping: bytes | None, interval: float, media: str
    ) -> None:
        self._frames, self._first = frames, first
        self._ping, self._interval, self._media = ping, interval, media
        self._last = 0.0
        self._body: Body | None = None

    @classmethod
    async def events(cls, frames: Frames, interval: float, *, ping: bytes = PING) -> StreamedAnswer:
        """Return a stream of server-sent events, with keep-alives after `interval` seconds of silence; see `start`."""
        return await cls.start(frames, media="text/event-stream", ping=ping, interval=interval)

    @classmethod
    async def lines(cls, frames: Frames) -> StreamedAnswer:
        """Return a stream of NDJSON lines; see `start`."""
        return await cls.start(frames, media="application/x-ndjson", ping=None, interval=0)

    @classmethod
    async def start(
        cls, frames: Frames, *, media: str, ping: bytes | None, interval: float
    ) -> StreamedAnswer:
        """Wait for the first frame, so that an error before it still has a status of its own.

        After `interval` seconds without a frame the answer starts anyway, with the keep-alive frame `ping`; errors are
        told as frames from then on. Without `ping` there is no keep-alive.
        """

        async def pull() -> bytes:
            return await anext(frames)

        first = asyncio.ensure_future(pull())
        try:
            await asyncio.wait({first}, timeout=interval if ping is not None else None)
            if first.done():
                first.result()
        except BaseException:
            first.cancel()
            with contextlib.suppress(BaseException):
                await first
            await frames.aclose()
            raise
        return cls(frames, first, ping, interval, media)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the frames as they come. However this ends, the generator of the frames is closed and frees its own."""
        exchange = exchange_of(scope)
        headers = [
            (b"content-type", self._media.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),
        ]
        loop = asyncio.get_running_loop()
        self._last = loop.time()
        pinger: asyncio.Task[None] | None = None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if self._ping is not None:
                pinger = asyncio.ensure_future(self._keep_alive(send, self._ping))
            try:
                await send({"type": "http.response.body", "body": await self._first, "more_body": True})
                exchange.body = self._body = body_of(scope)
                async for frame in self._frames:
                    self._last = loop.time()
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
            except Exception as e:
                error = from_engine(e)
                if error.kind == "internal":
                    log.exception("request %s failed in its stream", exchange.request_id)
                frame = error_frame(error, exchange)
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            exchange.phase = exchange.body = None
            if pinger is not None:
                pinger.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            exchange.body = None
            if pinger is not None:
                pinger.cancel()
            if not self._first.done():
                self._first.cancel()
                with contextlib.suppress(BaseException):
                    await self._first
            await self._frames.aclose()

    async def _keep_alive(self, send: Send, ping: bytes) -> None:
        """Send `ping` whenever nothing was sent for the interval."""
        loop = asyncio.get_running_loop()
        while True:
            last = self._last if self._body is None else max(self._last, self._body.last)
            silence = loop.time() - last
            if silence >= self._interval:
                self._last = loop.time()
                await send({"type": "http.response.body", "body": ping, "more_body": True})
            else:
                await asyncio.sleep(self._interval - silence)
