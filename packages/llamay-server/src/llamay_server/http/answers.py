"""Bodies in, answers out: strict JSON, whole answers, and streams in the framing that each dialect's clients read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from llamay_server.http.call import Call, call_of
from llamay_server.http.connection import body_of
from llamay_server.http.errors import ApiError, Dialect, body, from_engine, invalid

if TYPE_CHECKING:
    from litestar import Request
    from litestar.types import Receive, Scope, Send

    from llamay_server.http.connection import Body

log = logging.getLogger("llamay.server")
T = TypeVar("T")
encode = msgspec.json.Encoder(decimal_format="number").encode

_OPEN_PATHS = frozenset(("/", "/health", "/v1/health", "/favicon.ico"))


def is_open(path: str, *, metrics_open: bool) -> bool:
    """Whether a path answers without a key: health, and the static files of the web chat."""
    path = path.rstrip("/") or "/"
    return (
        path in _OPEN_PATHS
        or path == "/ui"
        or path.startswith("/ui/")
        or (metrics_open and path == "/metrics")
    )


def streams_body(method: str, path: str) -> bool:
    """Whether the route reads its body itself because it may be larger than memory."""
    return method in ("POST", "PUT") and (
        path.rstrip("/") == "/v1/contexts/restore" or path.startswith("/api/blobs/")
    )


async def read_json(request: Request[Any, Any, Any], kind: type[T]) -> T:
    """The body as `kind`, whatever its Content-Type says. Raises a 400 that names the field."""
    return decode_json(await request.body(), kind)


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}


def decode_json(data: bytes, kind: type[T]) -> T:
    """Decode strictly: no coercion, no NaN, no lone surrogate, bounded depth."""
    if not data.strip():
        raise invalid("missing request body", code="missing_body")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        value: T = decoder.decode(data)
    except msgspec.ValidationError as e:
        text, _, path = str(e).partition(" - at `")
        param = path.rstrip("`").removeprefix("$.").removeprefix("$") or None
        if field := re.fullmatch("Object missing required field `(.+)`", text):
            param = f"{param}.{field[1]}" if param else field[1]
            raise invalid(f"{param}: it is missing", param, "missing_required_parameter") from None
        raise invalid(f"{param or 'body'}: {text}", param, "invalid_type") from None
    except msgspec.DecodeError as e:
        raise invalid(f"The body is not valid JSON: {e}", code="invalid_json") from None
    except UnicodeDecodeError:
        raise invalid("The body is not valid UTF-8.", code="invalid_json") from None
    except RecursionError:
        raise invalid("The body is nested too deeply.", code="invalid_json") from None
    return value


class Whole:
    """A complete answer as an ASGI application."""

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
        """Send it."""
        call_of(scope).phase = None
        headers = {"content-type": self.media, "content-length": str(len(self.body))} | self.headers
        raw = [(k.lower().encode(), v.encode()) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": raw})
        await send({"type": "http.response.body", "body": self.body, "more_body": False})


Frames = AsyncGenerator[bytes, None]


class Streamed:
    """An answer in parts. Build it with `Streamed.start`, which decides the status before a byte leaves."""

    def __init__(
        self, frames: Frames, first: asyncio.Task[bytes], ping: bytes | None, interval: float, media: str
    ) -> None:
        self._frames, self._first = frames, first
        self._ping, self._interval, self._media = ping, interval, media
        self._last = 0.0
        self._body: Body | None = None

    @classmethod
    async def start(cls, frames: Frames, *, media: str, ping: bytes | None, interval: float) -> Streamed:
        """Await the first frame, so that a refusal still has a status of its own.

        After `interval` seconds of silence an admitted request starts anyway, with a keep-alive; from then on errors go
        out as frames.
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
        """Send the frames as they come; whatever ends this, the generator is closed and so frees what it holds."""
        call = call_of(scope)
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
                call.body = self._body = body_of(scope)
                async for frame in self._frames:
                    self._last = loop.time()
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
            except Exception as e:
                error = from_engine(e)
                if error.kind == "internal":
                    log.exception("request %s failed in its stream", call.request_id)
                frame = error_frame(error, call)
                await send({"type": "http.response.body", "body": frame, "more_body": True})
            call.phase = call.body = None
            if pinger is not None:
                pinger.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            call.body = None
            if pinger is not None:
                pinger.cancel()
            if not self._first.done():
                self._first.cancel()
                with contextlib.suppress(BaseException):
                    await self._first
            await self._frames.aclose()

    async def _keep_alive(self, send: Send, ping: bytes) -> None:
        loop = asyncio.get_running_loop()
        while True:
            last = self._last if self._body is None else max(self._last, self._body.last)
            silence = loop.time() - last
            if silence >= self._interval:
                self._last = loop.time()
                await send({"type": "http.response.body", "body": ping, "more_body": True})
            else:
                await asyncio.sleep(self._interval - silence)


def sse(data: Any, event: str | None = None) -> bytes:
    r"""One server-sent event, ended by `\n\n`."""
    payload = encode(data)
    if event is None:
        return b"data: %b\n\n" % payload
    return b"event: %b\ndata: %b\n\n" % (event.encode(), payload)


_HOLE = "\0hole\0"


class Blank:
    """A server-sent event of which only one text varies: the rest is encoded once, as it goes out with each token."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        """`make` gives the event's data with a text in it."""
        self._before, self._after = sse(make(_HOLE)).split(encode(_HOLE))

    def fill(self, text: str) -> bytes:
        """The event with this text, byte for byte what `sse` makes of it."""
        return self._before + encode(text) + self._after


def ndjson(data: Any) -> bytes:
    """One line of NDJSON."""
    return encode(data) + b"\n"


def error_frame(error: ApiError, call: Call) -> bytes:
    """An error after the first byte, as this dialect's clients notice it."""
    if call.fail_frame is not None:
        return call.fail_frame(error)
    content = body(error, call.dialect, call.request_id)
    if call.dialect is Dialect.OLLAMA:
        return ndjson(content)
    if call.dialect is Dialect.ANTHROPIC:
        return sse(content, "error")
    if call.dialect is Dialect.OWN:
        return sse(content, "error")
    return sse(content)


async def in_thread(work: Callable[[Callable[..., None]], T]) -> T:
    """Run blocking engine work off the loop; being cancelled makes its progress callback raise, which frees it.

    `work(progress)` is waited for even then, so that nothing still runs on what the caller frees next.
    """
    stopped = False

    def progress(*_: Any) -> None:
        if stopped:
            raise Abandoned

    future = asyncio.ensure_future(asyncio.to_thread(work, progress))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        stopped = True

        def clean(ended: asyncio.Future[T]) -> None:
            # The work may have finished before it noticed: what it made has no owner any more.
            if not ended.cancelled() and ended.exception() is None:
                result = ended.result()
                for item in result if isinstance(result, list) else [result]:
                    if hasattr(item, "close"):
                        release(item)

        future.add_done_callback(clean)
        raise


async def watched(
    work: Callable[[Callable[..., None]], T], result: list[T]
) -> AsyncGenerator[tuple[int, int], None]:
    """`in_thread`, with each report (done, total) of the work as it comes; what it gave is then in `result`."""
    loop = asyncio.get_running_loop()
    reports: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue()

    def watch(check: Callable[..., None]) -> T:
        def progress(stage: str, done: int, total: int) -> None:
            check(stage, done, total)
            loop.call_soon_threadsafe(reports.put_nowait, (done, total))

        return work(progress)

    task = asyncio.ensure_future(in_thread(watch))
    task.add_done_callback(lambda _: reports.put_nowait(None))
    try:
        while (report := await reports.get()) is not None:
            yield report
        result.append(await task)
    finally:
        task.cancel()


def release(item: Any) -> None:
    """Close a context off the loop: closing one that was just cancelled waits for the engine's current step."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        item.close()
        return
    loop.run_in_executor(None, item.close)


class Abandoned(Exception):
    """Raised out of a progress callback to stop work that nobody waits for."""
