"""POST /v1/responses and its companions: OpenAI's Responses API."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from litestar import Request, delete, get, post
from litestar.types import ASGIApp

from llamay_server.chat.kept import Stored
from llamay_server.chat.profile import fill, limit, opened, stops
from llamay_server.chat.run import ChatRequest, ChatRun, Message, render, template_options
from llamay_server.chat.tools import openai_choice
from llamay_server.engine.protocol import Model
from llamay_server.http.answers import Streamed, Whole, read_json
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import ApiError, from_engine, invalid
from llamay_server.openai.chat import uses_cache
from llamay_server.openai.objects import PING
from llamay_server.openai.responses.items import read_input, read_tools
from llamay_server.openai.responses.schema import ResponsesRequest
from llamay_server.openai.responses.writing import ResponseWriter, prewarms
from llamay_server.pipeline.sampling import bound, sampling, stop_list, time_limit, unsupported, urgency
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.models.registry import Entry

log = logging.getLogger("llamay.server")
_LOGPROBS = "message.output_text.logprobs"


def read_request(
    data: ResponsesRequest, model: Model, service: Services, call: Call
) -> tuple[ChatRequest, list[dict[str, Any]], Stored | None]:
    """The neutral request, the input items, and the response it goes on from."""
    for name in ("conversation", "prompt"):
        if getattr(data, name) is not None:
            raise unsupported(name)
    if data.background and data.store is False:
        raise invalid("background: it needs store to be true", "background")
    if data.background and data.stream:
        raise unsupported("background", "a background response cannot be streamed")
    previous = None
    earlier: list[Message] = []
    if data.previous_response_id:
        previous = service.responses.get(data.previous_response_id, call.owner, param="previous_response_id")
        earlier = previous.messages
    # Without input the turn is an empty one, as in the original.
    given = "" if data.input is None and not earlier else data.input
    new, items = read_input(given, lambda item_id: service.responses.item(item_id, call.owner))
    messages = [*earlier, *new]
    if not messages:
        raise invalid("input: it is missing", "input")
    if data.instructions:
        messages.insert(0, {"role": "system", "content": data.instructions})
    text, reasoning = data.text, data.reasoning
    template = template_options(data.chat_template_kwargs)
    think = None
    if reasoning is not None and reasoning.effort is not None:
        template.setdefault("reasoning_effort", reasoning.effort)
        think = False if reasoning.effort == "none" else None
    scored = _LOGPROBS in (data.include or ()) or bool(data.top_logprobs)
    request = ChatRequest(
        messages=messages,
        sampling=sampling(data, model),
        box=openai_choice(data.tool_choice, read_tools(data.tools, call), data.parallel_tool_calls),
        bound=bound(data, text.format if text is not None else None, "text.format"),
        max_tokens=0 if prewarms(data) else data.max_output_tokens,
        logprobs=(data.top_logprobs or 0) if scored else None,
        ignore_eos=bool(data.ignore_eos),
        reuse=data.cache_prompt is not False and uses_cache(data.prompt_cache_options, _marks_prompt(items)),
        priority=urgency(data),
        timeout=time_limit(data),
        tenant=service.tenant(call, data.cache_salt),
        continue_final=False,
        think=think,
        template=template,
        progress=bool(data.return_progress and data.stream),
        bind_calls=service.config.bind_calls,
        in_parts=True,
        shorten=data.truncation == "auto",
    )
    return request, items, previous


def _marks_prompt(items: Sequence[Mapping[str, Any]]) -> bool:
    parts = [part for item in items if isinstance(item.get("content"), list) for part in item["content"]]
    return any(isinstance(part, Mapping) and part.get("prompt_cache_breakpoint") for part in parts)


def _keep(service: Services, writer: ResponseWriter, items: list[dict[str, Any]], call: Call) -> Stored:
    """Keep a finished response, with its conversation and its context."""
    for n, item in enumerate(items):
        item.setdefault(
            "id", f"{'msg' if item.get('type', 'message') == 'message' else 'item'}_{secrets.token_hex(8)}{n}"
        )
        item.setdefault("type", "message")
        if item["type"] == "message" and isinstance(item.get("content"), str):
            kind = "output_text" if item.get("role") == "assistant" else "input_text"
            item["content"] = [{"type": kind, "text": item["content"]}]
    messages = list(writer.run.request.messages)
    if writer.data.instructions:
        messages = messages[1:]
    said, _ = read_input(writer.response["output"], lambda _: None)
    stored = Stored(
        call.owner,
        call.model,
        writer.response,
        items,
        [*messages, *said],
        writer.run.take_context(),
        seen=writer.seen(),
    )
    service.responses.add(stored)
    return stored


def _prepare(
    service: Services, data: ResponsesRequest, call: Call, entry: Entry, model: Model
) -> tuple[ResponseWriter, list[Any]]:
    name = entry.name
    fill(data, entry.profile)
    if data.max_output_tokens is None:
        data.max_output_tokens = limit(entry.profile)
    request, items, previous = read_request(data, model, service, call)
    if previous is None:
        request.messages = opened(request.messages, entry.profile)
    request.stop = stop_list(stops(entry.profile))
    run = ChatRun(model, request, call, service.admission)
    if data.store is not False:
        run.keep_context = True
    if previous is not None and previous.context is not None and previous.model == name:
        run.resume = previous.context
    if data.context:
        run.resume = service.contexts.for_model(data.context, call.owner, name)
    writer = ResponseWriter(run, name, data)
    compared = (data.prompt_cache_options or {}).get("comparison_response_id")
    if isinstance(compared, str) and (stored := service.responses.find(compared, call.owner)) is not None:
        writer.compared = stored.seen
    call.fail_frame = writer.failed
    return writer, items


async def _holding(service: Services, data: ResponsesRequest, call: Call) -> AsyncGenerator[bytes, None]:
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        writer, items = _prepare(service, data, call, entry, model)
        async with contextlib.aclosing(writer.frames()) as frames:
            async for frame in frames:
                if writer.response["usage"] is not None and data.store is not False:
                    _keep(service, writer, items, call)
                yield frame


@post(["/v1/responses", "/responses"], status_code=200)
async def responses(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer an input."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, ResponsesRequest)
    if data.stream:
        frames = _holding(service, data, call)
        return await Streamed.start(
            frames, media="text/event-stream", ping=PING, interval=service.config.ping_interval
        )
    if data.background:
        return await _in_background(service, data, call)
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        writer, items = _prepare(service, data, call, entry, model)
        answer = await writer.whole()
        if data.store is not False:
            _keep(service, writer, items, call)
        return Whole(answer)


async def _in_background(service: Services, data: ResponsesRequest, call: Call) -> ASGIApp:
    """Begin, answer "queued", and go on without the client."""
    ready: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        stored: Stored | None = None
        try:
            async with service.models.use(data.model, call, data.lora) as (entry, model):
                writer, items = _prepare(service, data, call, entry, model)
                await writer.run.prepare()
                writer.response["status"] = "queued"
                stored = Stored(call.owner, entry.name, writer.response, items, [])
                service.responses.add(stored)
                ready.set_result(stored)
                await writer.whole()
                _keep(service, writer, items, call)
        except asyncio.CancelledError:
            if stored is not None:
                stored.response["status"] = "cancelled"
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
            if stored is not None:
                stored.response["status"] = "failed"
                stored.response["error"] = {"code": error.code or "server_error", "message": error.message}

    task = asyncio.ensure_future(work())
    try:
        stored = await ready
    except asyncio.CancelledError:
        task.cancel()
        raise
    stored.task = task
    return Whole(stored.response)


def _stored(request: Request[Any, Any, Any]) -> tuple[Services, Stored]:
    service = services(request)
    return service, service.responses.get(
        str(request.path_params["response_id"]), call_of(request.scope).owner
    )


@get("/v1/responses/{response_id:str}")
async def retrieve(request: Request[Any, Any, Any]) -> ASGIApp:
    """A kept response."""
    if request.query_params.get("stream") == "true":
        raise unsupported("stream", "a stream cannot be resumed")
    return Whole(_stored(request)[1].response)


@delete("/v1/responses/{response_id:str}", status_code=200)
async def remove(request: Request[Any, Any, Any]) -> ASGIApp:
    """Forget a kept response."""
    service, stored = _stored(request)
    response_id = stored.response["id"]
    service.responses.remove(response_id)
    return Whole({"id": response_id, "object": "response.deleted", "deleted": True})


@post("/v1/responses/{response_id:str}/cancel", status_code=200)
async def cancel(request: Request[Any, Any, Any]) -> ASGIApp:
    """End a background response."""
    _, stored = _stored(request)
    if not stored.response["background"]:
        raise invalid("only a response that was made with background can be cancelled")
    if stored.task is not None and not stored.task.done():
        stored.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await stored.task
        stored.response["status"] = "cancelled"
    return Whole(stored.response)


@get("/v1/responses/{response_id:str}/input_items")
async def input_items(request: Request[Any, Any, Any]) -> ASGIApp:
    """The input of a kept response, newest first unless `order=asc`."""
    _, stored = _stored(request)
    query = request.query_params
    items = list(stored.items) if query.get("order") == "asc" else list(reversed(stored.items))
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
    return Whole({"object": "list", "data": page, "has_more": len(page) < len(items), **ends})


@post("/v1/responses/input_tokens", status_code=200)
async def input_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    """How many input tokens a response with this body has."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, ResponsesRequest)
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        chat, _, previous = read_request(data, model, service, call)
        if previous is None:
            chat.messages = opened(chat.messages, entry.profile)
        tokens = await asyncio.to_thread(lambda: len(render(model, chat).prompt.tokens))
        return Whole({"object": "response.input_tokens", "input_tokens": tokens})


@post("/v1/responses/compact", status_code=200)
async def compact(request: Request[Any, Any, Any]) -> ASGIApp:
    """Not built."""
    raise ApiError("not_supported", "Compacting a conversation is not available on this server.")


HANDLERS = [responses, retrieve, remove, cancel, input_items, input_tokens, compact]
