"""Uploads that may be larger than memory: received part by part, counted, and written in large pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from litestar import Request

from llamay_server.http.errors import ApiError, invalid

_PIECE = 4 << 20
"""Bytes that are written at once: a switch to a thread for each part from the network takes longer than the writing."""


async def receive_upload(
    request: Request[Any, Any, Any],
    write: Callable[[bytes], Any],
    *,
    what: str,
    limit: int,
    timeout: float,
) -> int:
    """Pass the body of a request to `write`, in a thread, and return its length in bytes.

    `what` names the upload in errors. Raises a 413 where it is longer than `limit`, a 408 where its next part takes
    longer than `timeout` seconds or the client leaves, and the exceptions of `write`.
    """
    if request.headers.get("content-encoding", "identity") != "identity":
        raise invalid(f"Content-Encoding: a {what} is sent as it is, without encoding")
    too_large = ApiError(
        "too_large",
        f"The {what} is larger than the limit of {limit} bytes.",
        code=f"{what}_too_large",
        retry=False,
    )
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    size, gathered, parts = 0, 0, []
    more = True
    while more:
        try:
            async with asyncio.timeout(timeout):
                message = await request.receive()
        except TimeoutError:
            raise ApiError("slow", f"The {what} came too slowly.", headers={"connection": "close"}) from None
        if message["type"] != "http.request":
            raise ApiError("slow", f"The client left before the {what} was whole.")
        part, more = message["body"], message["more_body"]
        size += len(part)
        if size > limit:
            raise too_large
        parts.append(part)
        gathered += len(part)
        if gathered >= _PIECE or (gathered and not more):
            await asyncio.to_thread(write, b"".join(parts))
            gathered, parts = 0, []
    return size
