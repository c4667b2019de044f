"""POST /v1/responses and its companions: reading, deleting, cancelling, counting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from litestar import Request, delete, get, post
from litestar.types import ASGIApp

from llamay_server.chat.conversation import render
from llamay_server.chat.kept import KeptAnswer
from llamay_server.chat.run import ChatRun
from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import ApiError, invalid, unsupported
from llamay_server.http.exchange import Exchange, exchange_of
from llamay_server.http.refusals import from_engine
from llamay_server.http.route_description import EVENTS, described
from llamay_server.openai.responses.items import read_input
from llamay_server.openai.responses.reading import read_request
from llamay_server.openai.responses.schema import ResponsesRequest
from llamay_server.openai.responses.writing import ResponseWriter
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model
    from llamay_server.models.entry import Entry

log = logging.getLogger("llamay.server")


@post(["/v1/responses", "/responses"], status_code=200, opt=described(body=ResponsesRequest, stream=EVENTS))
async def responses(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer an input."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, ResponsesRequest)
    if data.stream:

        def frames(entry: Entry, model: Model) -> AsyncGenerator[bytes, None]:
            return _frames(service, data, exchange, entry, model)

        held = service.models.frames(data.model, exchange, frames, data.lora)
        return await StreamedAnswer.events(held, service.config.ping_interval)
    if data.background:
        return await _in_background(service, data, exchange)
    async with service.models.use(data.model, exchange, data.lora) as (entry, model):
        writer, items = _prepare(service, data, exchange, entry, model)
        answer = await writer.whole()
        if data.store is not False:
            _keep(service, writer, items, exchange)
        return WholeAnswer(answer)


def _prepare(
    service: Services, data: ResponsesRequest, exchange: Exchange, entry: Entry, model: Model
) -> tuple[ResponseWriter, list[dict[str, Any]]]:
    """Return the writer of a response, and the items of its input."""
    name = entry.name
    read = read_request(data, entry.profile, model, service, exchange)
    previous = read.previous
    run = ChatRun(model, read.request, exchange, service.admission)
    if data.store is not False:
        run.keep_context = True
    if previous is not None and previous.context is not None and previous.model == name:
        run.resume = previous.context
    if data.context:
        run.resume = service.contexts.for_model(data.context, exchange.owner, name)
    writer = ResponseWriter(run, name, data)
    compared = data.prompt_cache_options and data.prompt_cache_options.comparison_response_id
    if compared and (kept := service.responses.find(compared, exchange.owner)) is not None:
        writer.compared = kept.seen
    exchange.fail_frame = writer.failed
    return writer, read.items


async def _frames(
    service: Services, data: ResponsesRequest, exchange: Exchange, entry: Entry, model: Model
) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a response, which is kept before its last frame is sent."""
    writer, items = _prepare(service, data, exchange, entry, model)
    async with contextlib.aclosing(writer.frames()) as frames:
        async for frame in frames:
            if writer.response["usage"] is not None and data.store is not False:
                _keep(service, writer, items, exchange)
            yield frame


def _keep(
    service: Services, writer: ResponseWriter, items: list[dict[str, Any]], exchange: Exchange
) -> KeptAnswer:
    """Keep a finished response, with its conversation and its context."""
    for n, item in enumerate(items):
        item.setdefault(
            "id", f"{'msg' if item.get('type', 'message') == 'message' else 'item'}_{secrets.token_hex(8)}{n}"
        )
        item.setdefault("type", "message")
        if item["type"] == "message" and isinstance(item.get("content"), str):
            kind = "output_text" if item.get("role") == "assistant" else "input_text"
            item["content"] = [{"type": kind, "text": item["content"]}]
    messages = list(writer.run.request.conversation.messages)
    if writer.data.instructions:
        messages = messages[1:]
    said, _ = read_input(writer.response["output"], lambda _: None)
    kept = KeptAnswer(
        exchange.owner,
        exchange.model,
        writer.response,
        items,
        [*messages, *said],
        writer.run.take_context(),
        seen=writer.seen(),
    )
    service.responses.add(kept)
    return kept


async def _in_background(service: Services, data: ResponsesRequest, exchange: Exchange) -> ASGIApp:
    """Answer that the response is queued, and generate it while the client is gone."""
    ready: asyncio.Future[KeptAnswer] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        kept: KeptAnswer | None = None
        try:
            async with service.models.use(data.model, exchange, data.lora) as (entry, model):
                writer, items = _prepare(service, data, exchange, entry, model)
                await writer.run.prepare()
                writer.response["status"] = "queued"
                kept = KeptAnswer(exchange.owner, entry.name, writer.response, items, [])
                service.responses.add(kept)
                ready.set_result(kept)
                await writer.whole()
                _keep(service, writer, items, exchange)
        except asyncio.CancelledError:
            if kept is not None:
                kept.response["status"] = "cancelled"
            if not ready.done():
                ready.cancel()
            raise
        except Exception as e:
            error = from_engine(e)
            if not ready.done():
                ready.set_exception(error)
                return
            if error.kind == "internal":
                log.exception("background response failed")
            if kept is not None:
                kept.response["status"] = "failed"
                kept.response["error"] = {"code": error.code or "server_error", "message": error.message}

    task = asyncio.ensure_future(work())
    try:
        queued = await ready
    except asyncio.CancelledError:
        task.cancel()
        raise
    queued.task = task
    return WholeAnswer(queued.response)


def _kept(request: Request[Any, Any, Any]) -> tuple[Services, KeptAnswer]:
    """Return the services, and the response that a request's path names. Raises a 404."""
    service = services(request)
    return service, service.responses.get(
        str(request.path_params["response_id"]), exchange_of(request.scope).owner
    )


@get("/v1/responses/{response_id:str}")
async def retrieve(request: Request[Any, Any, Any]) -> ASGIApp:
    """Read a kept response again."""
    if request.query_params.get("stream") == "true":
        raise unsupported("stream", "a stream cannot be resumed")
    return WholeAnswer(_kept(request)[1].response)


@delete("/v1/responses/{response_id:str}", status_code=200)
async def remove(request: Request[Any, Any, Any]) -> ASGIApp:
    """Forget a kept response."""
    service, kept = _kept(request)
    response_id = kept.response["id"]
    service.responses.remove(response_id)
    return WholeAnswer({"id": response_id, "object": "response.deleted", "deleted": True})


@post("/v1/responses/{response_id:str}/cancel", status_code=200)
async def cancel(request: Request[Any, Any, Any]) -> ASGIApp:
    """End a background response."""
    _, kept = _kept(request)
    if not kept.response["background"]:
        raise invalid("only a response that was made with background can be cancelled")
    if kept.task is not None and not kept.task.done():
        kept.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await kept.task
        kept.response["status"] = "cancelled"
    return WholeAnswer(kept.response)


@get("/v1/responses/{response_id:str}/input_items")
async def input_items(request: Request[Any, Any, Any]) -> ASGIApp:
    """List the input items of a kept response, newest first unless `order=asc`."""
    _, kept = _kept(request)
    query = request.query_params
    items = list(kept.items) if query.get("order") == "asc" else list(reversed(kept.items))
    raw = query.get("limit", "20")
    if not (raw.isascii() and raw.isdigit() and len(raw) < 5 and 1 <= int(raw) <= 100):
        raise invalid("limit: it must be from 1 to 100", "limit")
    after = query.get("after")
    if after is not None:
        places = [n for n, item in enumerate(items) if item["id"] == after]
        if not places:
            raise invalid(f"after: there is no item {after[:80]!r}", "after")
        items = items[places[0] + 1 :]
    page = items[: int(raw)]
    ends = {"first_id": page[0]["id"] if page else None, "last_id": page[-1]["id"] if page else None}
    return WholeAnswer({"object": "list", "data": page, "has_more": len(page) < len(items), **ends})


@post("/v1/responses/input_tokens", status_code=200, opt=described(body=ResponsesRequest))
async def input_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    """How many input tokens a response with this body has."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, ResponsesRequest)
    async with service.models.use(data.model, exchange, data.lora) as (entry, model):
        read = read_request(data, entry.profile, model, service, exchange)
        conversation = read.request.conversation
        tokens = await asyncio.to_thread(lambda: len(render(model, conversation).prompt.tokens))
        return WholeAnswer({"object": "response.input_tokens", "input_tokens": tokens})


@post("/v1/responses/compact", status_code=200, opt=described(hidden=True))
async def compact(request: Request[Any, Any, Any]) -> ASGIApp:
    """Refuse: compacting a conversation is not offered."""
    raise ApiError("not_supported", "Compacting a conversation is not available on this server.")


HANDLERS = [responses, retrieve, remove, cancel, input_items, input_tokens, compact]
