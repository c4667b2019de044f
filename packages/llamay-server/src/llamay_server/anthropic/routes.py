"""POST /v1/messages and /v1/messages/count_tokens."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, post
from litestar.types import ASGIApp

from llamay_server.anthropic.content import assistant_message
from llamay_server.anthropic.reading import read_input, read_request
from llamay_server.anthropic.schema import Block, CountTokensRequest, MessagesRequest
from llamay_server.anthropic.writing import MessageWriter
from llamay_server.chat.conversation import render
from llamay_server.chat.kept import KeptAnswer
from llamay_server.chat.run import ChatRun
from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.exchange import Exchange, exchange_of
from llamay_server.http.frames import sse
from llamay_server.http.route_description import EVENTS, described
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Message
    from llamay_server.engine.protocol import Model
    from llamay_server.models.entry import Entry

_PING = sse({"type": "ping"}, "ping")


@post("/v1/messages", status_code=200, opt=described(body=MessagesRequest, stream=EVENTS))
async def messages(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer a conversation."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, MessagesRequest)
    if data.stream:

        def frames(entry: Entry, model: Model) -> AsyncGenerator[bytes, None]:
            return _frames(service, data, exchange, entry, model)

        held = service.models.frames(data.model, exchange, frames)
        return await StreamedAnswer.events(held, service.config.ping_interval, ping=_PING)
    async with service.models.use(data.model, exchange) as (entry, model):
        writer = _prepare(service, data, exchange, entry, model)
        answer = await writer.whole()
        _keep(service, writer, exchange)
        return WholeAnswer(answer)


def _prepare(
    service: Services, data: MessagesRequest, exchange: Exchange, entry: Entry, model: Model
) -> MessageWriter:
    given = read_input(data, entry.profile, service, exchange)
    request = read_request(data, given, entry.profile, model, service, exchange)
    thread = given.thread
    run = ChatRun(model, request, exchange, service.admission)
    run.keep_context = data.thread is not None
    if thread is not None and thread.context is not None and thread.model == entry.name:
        run.resume = thread.context
    if data.context:
        run.resume = service.contexts.for_model(data.context, exchange.owner, entry.name)
    writer = MessageWriter(run, entry.name, data, service.prompts)
    writer.tools = given.tools
    return writer


async def _frames(
    service: Services, data: MessagesRequest, exchange: Exchange, entry: Entry, model: Model
) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a message, which is kept before its last frame is sent."""
    writer = _prepare(service, data, exchange, entry, model)
    async with contextlib.aclosing(writer.frames()) as frames:
        async for frame in frames:
            if writer.finished:
                _keep(service, writer, exchange)
            yield frame


def _keep(service: Services, writer: MessageWriter, exchange: Exchange) -> None:
    """Keep the conversation of a thread under the message's id, with the context that holds it."""
    if writer.data.thread is None:
        return
    said: Message = {"role": "assistant", "content": ""}
    if writer.content:
        said = assistant_message(msgspec.convert(writer.content, list[Block]), "content", set())
    turns = [*writer.run.request.conversation.messages, said]
    kept = {"id": writer.base["id"], "output": []}
    service.threads.add(
        KeptAnswer(exchange.owner, exchange.model, kept, writer.tools, turns, writer.run.take_context())
    )


@post("/v1/messages/count_tokens", status_code=200, opt=described(body=CountTokensRequest))
async def count_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    """How many input tokens a message with this body has."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, CountTokensRequest)
    async with service.models.use(data.model, exchange) as (entry, model):
        conversation = read_input(data, entry.profile, service, exchange).conversation
        return WholeAnswer({"input_tokens": len(render(model, conversation).prompt.tokens)})


HANDLERS = [messages, count_tokens]
