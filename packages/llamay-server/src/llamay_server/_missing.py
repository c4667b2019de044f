"""Routes that clients know and this server does not have: they say so, with 501, instead of "no such path"."""

from __future__ import annotations

from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from ._errors import ApiError


@post("/infill", status_code=200)
async def infill(request: Request[Any, Any, Any]) -> ASGIApp:
    """Not built."""
    raise ApiError("not_supported", "Filling in the middle is not available on this server.", retry=False)


HANDLERS = [infill]
