"""Receiving a request's body: its limit, its time-outs, and unpacking."""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from typing import TYPE_CHECKING, Any

from llamay_server.http.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from litestar.types import Receive


async def read_body(
    headers: Mapping[bytes, bytes], receive: Receive, *, limit: int, timeout: float
) -> bytes | None:
    """Return the whole body, unpacked; None where the client left before it was whole.

    Raises a 413 for more than `limit` bytes, and a 408 where a part takes longer than `timeout` seconds.
    """
    length = headers.get(b"content-length", b"")
    if length.isdigit() and int(length) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        try:
            async with asyncio.timeout(timeout):
                message = await receive()
        except TimeoutError:
            raise ApiError(
                "slow", "The request body came too slowly.", headers={"connection": "close"}
            ) from None
        if message["type"] != "http.request":
            return None
        if part := message["body"]:
            parts.append(part)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
        if not message["more_body"]:
            break
    body = b"".join(parts)
    encoding = headers.get(b"content-encoding", b"").decode("latin-1").strip().lower()
    return body if encoding in ("", "identity") else unpack(body, encoding, limit)


def unpack(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body as it was before its `Content-Encoding`. Unpacking stops at `limit` bytes."""
    try:
        if encoding in ("gzip", "x-gzip", "deflate"):
            stream = zlib.decompressobj(wbits=47 if encoding != "deflate" else 15)
            out = stream.decompress(body, limit + 1)
            if len(out) <= limit and not stream.eof:
                raise ApiError("invalid", f"The {encoding} body is cut short.")
        elif encoding == "zstd":
            out = _unzstd(body, limit)
        else:
            raise ApiError(
                "invalid", f"Content-Encoding {encoding[:40]!r} is not supported; use gzip, deflate or zstd."
            )
    except (zlib.error, ValueError) as e:
        raise ApiError("invalid", f"The {encoding} body is damaged.") from e
    if len(out) > limit:
        raise _too_large(limit)
    return out


def _unzstd(body: bytes, limit: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise ApiError(
            "not_supported", "Reading zstd bodies needs the package zstandard on the server."
        ) from None
    try:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(body)
        return bytes(reader.read(limit + 1))
    except zstandard.ZstdError as e:
        raise ValueError(str(e)) from e


def _too_large(limit: int) -> ApiError:
    return ApiError(
        "too_large",
        f"The request body is larger than the limit of {limit} bytes.",
        code="request_too_large",
        headers={"connection": "close"},
    )


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that returns a body which was read before."""
    pending: list[Any] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Any:
        if pending:
            return pending.pop()
        # `disconnected` alone listens to the connection; a route that asks again waits until it is cancelled.
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    replayed.connection = receive  # type: ignore[attr-defined]
    return replayed


async def disconnected(receive: Receive) -> None:
    """Return once the client has left."""
    source: Callable[[], Any] = getattr(receive, "connection", receive)
    while (await source())["type"] != "http.disconnect":
        pass


async def discard(receive: Receive, *, limit: int = 64 << 20, seconds: float = 5.0) -> None:
    """Read some of a refused body and drop it: many clients read the answer only after they have sent the body."""
    size = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while size < limit:
                message = await receive()
                if message["type"] != "http.request" or not message["more_body"]:
                    return
                size += len(message["body"])
