"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.types import ASGIApp

from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.exchange import Exchange, exchange_of
from llamay_server.http.route_description import EVENTS, described
from llamay_server.openai.completions.reading import read_request
from llamay_server.openai.completions.schema import CompletionRequest
from llamay_server.openai.completions.writing import CompletionWriter
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model
    from llamay_server.models.entry import Entry


@post(["/v1/completions"], status_code=200, opt=described(body=CompletionRequest, stream=EVENTS))
async def completions(request: Request[Any, Any, Any]) -> ASGIApp:
    """Continue one or several texts."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, CompletionRequest)
    if data.stream:

        def frames(entry: Entry, model: Model) -> AsyncGenerator[bytes, None]:
            return _writer(service, data, exchange, entry, model).frames()

        held = service.models.frames(data.model, exchange, frames, data.lora)
        return await StreamedAnswer.events(held, service.config.ping_interval)
    async with service.models.use(data.model, exchange, data.lora) as (entry, model):
        return WholeAnswer(await _writer(service, data, exchange, entry, model).whole())


def _writer(
    service: Services, data: CompletionRequest, exchange: Exchange, entry: Entry, model: Model
) -> CompletionWriter:
    completion = read_request(data, entry.profile, model, service, exchange)
    return CompletionWriter(completion, data, entry.name, model, exchange, service.admission)


HANDLERS = [completions]
