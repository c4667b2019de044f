"""llama.cpp's POST /infill: what belongs between a prefix and a suffix."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.types import ASGIApp

from llamay_server.engine.protocol import Model
from llamay_server.http.answers import Streamed, Whole, read_json
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import invalid
from llamay_server.llamacpp.completion import (
    NativeRequest,
    NativeWriter,
    native_frames,
    native_parts,
)
from llamay_server.openai.objects import PING
from llamay_server.pipeline.infill import Extra, fill_prompt
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.models.registry import Entry


class InfillRequest(NativeRequest, kw_only=True):
    """Body of POST /infill: what comes before and after, and pieces of other files; `prompt` begins the middle."""

    prompt: str | list[str | int | list[int | str] | dict[str, Any]] | dict[str, Any] = ""
    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Extra] | None = None


def _writer(service: Services, data: InfillRequest, call: Call, entry: Entry, model: Model) -> NativeWriter:
    limit = data.n_predict if data.n_predict is not None else data.max_tokens
    if not isinstance(data.prompt, str):
        raise invalid("prompt: it must be a text here", "prompt")
    prompt = fill_prompt(
        model,
        data.input_prefix,
        data.input_suffix,
        begun=data.prompt,
        extra=data.input_extra or (),
        reserve=max(1, limit if limit is not None and limit >= 0 else model.info.context_length // 8),
        call=call,
    )
    return NativeWriter(service, data, call, entry, model, prompt)


async def _holding(service: Services, data: InfillRequest, call: Call) -> AsyncGenerator[bytes, None]:
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        writer = _writer(service, data, call, entry, model)
        async with contextlib.aclosing(native_frames([writer])) as frames:
            async for frame in frames:
                yield frame


@post("/infill", status_code=200)
async def infill(request: Request[Any, Any, Any]) -> ASGIApp:
    """Write what belongs between a prefix and a suffix, as llama.cpp does."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, InfillRequest)
    if data.stream:
        frames = _holding(service, data, call)
        return await Streamed.start(
            frames, media="text/event-stream", ping=PING, interval=service.config.ping_interval
        )
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        last: dict[str, Any] = {}
        writer = _writer(service, data, call, entry, model)
        async with contextlib.aclosing(native_parts([writer])) as parts:
            async for part in parts:
                last = part
        return Whole(last)


HANDLERS = [infill]
