"""POST /completion and /infill: llama.cpp's own completions."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.types import ASGIApp

from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.exchange import Exchange, exchange_of
from llamay_server.http.route_description import EVENTS, described
from llamay_server.llamacpp.reading import read_completions, read_infill
from llamay_server.llamacpp.schema import InfillRequest, NativeRequest
from llamay_server.llamacpp.writing import NativeWriter, native_frames, native_parts
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model
    from llamay_server.models.entry import Entry


@post(["/completion", "/completions"], status_code=200, opt=described(body=NativeRequest, stream=EVENTS))
async def completion(request: Request[Any, Any, Any]) -> ASGIApp:
    """Continue one or several prompts, as llama.cpp does."""
    return await _serve(request, await read_json(request, NativeRequest))


@post("/infill", status_code=200, opt=described(body=InfillRequest, stream=EVENTS))
async def infill(request: Request[Any, Any, Any]) -> ASGIApp:
    """Write the text between a prefix and a suffix, as llama.cpp does."""
    return await _serve(request, await read_json(request, InfillRequest))


async def _serve(request: Request[Any, Any, Any], data: NativeRequest) -> ASGIApp:
    service, exchange = services(request), exchange_of(request.scope)
    if data.stream:

        def frames(entry: Entry, model: Model) -> AsyncGenerator[bytes, None]:
            return native_frames(_writers(service, data, exchange, entry, model))

        held = service.models.frames(data.model, exchange, frames, data.lora)
        return await StreamedAnswer.events(held, service.config.ping_interval)
    async with service.models.use(data.model, exchange, data.lora) as (entry, model):
        writers = _writers(service, data, exchange, entry, model)
        async with contextlib.aclosing(native_parts(writers)) as parts:
            answers = [part async for part in parts][-len(writers) :]
        return WholeAnswer(answers if len(answers) > 1 else answers[0])


def _writers(
    service: Services, data: NativeRequest, exchange: Exchange, entry: Entry, model: Model
) -> list[NativeWriter]:
    """Return a writer for each prompt."""
    if isinstance(data, InfillRequest):
        read = [read_infill(data, entry.profile, model, service, exchange)]
    else:
        read = read_completions(data, entry.profile, model, service, exchange)
    return [NativeWriter(each, data, entry.name, model, exchange, service.admission) for each in read]


HANDLERS = [completion, infill]
