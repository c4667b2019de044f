"""POST /api/generate and /api/chat."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.types import ASGIApp

from llamay_server.chat.conversation import Rendered, render
from llamay_server.chat.run import ChatRun
from llamay_server.engine.protocol import Prompt
from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import ApiError, invalid, unsupported
from llamay_server.http.exchange import Exchange, exchange_of
from llamay_server.http.route_description import LINES, described
from llamay_server.ollama.reading import keep_alive_seconds, profile_messages, read_chat, read_request
from llamay_server.ollama.schema import GenerateRequest, OllamaChatRequest
from llamay_server.ollama.writing import OllamaWriter, now
from llamay_server.pipeline.infill import can_fill, fill_prompt
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.chat.request import ChatRequest
    from llamay_server.engine.protocol import Model
    from llamay_server.models.entry import Entry


@post("/api/generate", status_code=200, opt=described(body=GenerateRequest, stream=LINES))
async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
    """Continue a prompt."""
    data = await read_json(request, GenerateRequest)
    return await _serve(request, data, empty=not data.prompt and not data.images and not data.suffix)


@post("/api/chat", status_code=200, opt=described(body=OllamaChatRequest, stream=LINES))
async def chat(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer a conversation."""
    data = await read_json(request, OllamaChatRequest)
    return await _serve(request, data, empty=not data.messages)


async def _serve(
    request: Request[Any, Any, Any], data: GenerateRequest | OllamaChatRequest, *, empty: bool
) -> ASGIApp:
    service, exchange = services(request), exchange_of(request.scope)
    if not data.model:
        raise invalid("model is required", "model")
    if empty:
        return await _load_or_unload(service, data, exchange)
    if data.stream is not False:
        return await StreamedAnswer.lines(_frames(service, data, exchange))
    async with _writing(service, data, exchange) as writer:
        return WholeAnswer(await writer.whole())


@contextlib.asynccontextmanager
async def _writing(
    service: Services, data: GenerateRequest | OllamaChatRequest, exchange: Exchange
) -> AsyncGenerator[OllamaWriter, None]:
    """Yield the writer of an answer, whose model stays loaded while the block runs."""
    began = time.monotonic()
    async with service.models.use(data.model, exchange) as (entry, model):
        load = time.monotonic() - began if exchange.phase == "load" else 0.0
        if data.keep_alive is not None:
            entry.keep(keep_alive_seconds(data.keep_alive))
        is_chat = isinstance(data, OllamaChatRequest)
        if isinstance(data, OllamaChatRequest):
            request = read_chat(data, entry, model, service, exchange)
            run = ChatRun(model, request, exchange, service.admission)
        else:
            run = _generate_run(service, data, entry, model, exchange)
        writer = OllamaWriter(run, data.model or entry.name, chat=is_chat, load=load)
        writer.keeps_context = isinstance(data, GenerateRequest) and not data.raw
        yield writer


async def _frames(
    service: Services, data: GenerateRequest | OllamaChatRequest, exchange: Exchange
) -> AsyncGenerator[bytes, None]:
    async with (
        _writing(service, data, exchange) as writer,
        contextlib.aclosing(writer.frames()) as frames,
    ):
        async for frame in frames:
            yield frame


def _generate_run(
    service: Services, data: GenerateRequest, entry: Entry, model: Model, exchange: Exchange
) -> ChatRun:
    """Return the run of /api/generate: from a conversation of one turn, or without a template from ids."""
    if data.images:
        raise invalid("images: this model reads text only", "images")
    if data.suffix and not can_fill(model):
        raise ApiError("invalid", f"{entry.name} does not support insert", param="suffix")
    if data.raw and (data.template or data.system or data.context):
        raise invalid("raw mode does not support template, system, or context", "raw")
    if data.template:
        raise unsupported("template", "the model's own template is used")

    def run_on(request: ChatRequest, tokens: list[int] | None = None) -> ChatRun:
        run = ChatRun(model, request, exchange, service.admission)
        if tokens is not None:
            run.rendered = Rendered(Prompt("", tokens))
        return run

    prompt = data.prompt or ""
    if data.suffix:
        request = read_request(data, [], entry, model, service, exchange)
        reserve = max(1, request.generation.max_tokens or 0)
        return run_on(request, fill_prompt(model, prompt, data.suffix, reserve=reserve, exchange=exchange))
    earlier = list(data.context or [])
    size = model.info.vocab_size
    if any(not 0 <= t < size for t in earlier):
        raise invalid("context: it holds a token that this model does not have", "context")
    if data.raw or model.info.chat_template is None:
        system = data.system or (None if data.raw else entry.profile.system)
        text = f"{system}\n\n{prompt}" if system else prompt
        ids = model.encode(text, add_special=not earlier, parse_special=True)
        return run_on(read_request(data, [], entry, model, service, exchange), [*earlier, *ids])
    messages = profile_messages(entry, data.system or None) if not earlier else []
    if earlier and data.system:
        messages.append({"role": "system", "content": data.system})
    messages.append({"role": "user", "content": prompt})
    request = read_request(data, messages, entry, model, service, exchange)
    if not earlier:
        return run_on(request)
    return run_on(request, [*earlier, *render(model, request.conversation).prompt.tokens])


async def _load_or_unload(
    service: Services, data: GenerateRequest | OllamaChatRequest, exchange: Exchange
) -> ASGIApp:
    """Answer an empty request: it loads the model, or unloads it where keep_alive is 0."""
    began = time.monotonic()
    seconds = None if data.keep_alive is None else keep_alive_seconds(data.keep_alive)
    line: dict[str, Any] = {"model": data.model, "created_at": now()}
    line |= (
        {"message": {"role": "assistant", "content": ""}}
        if isinstance(data, OllamaChatRequest)
        else {"response": ""}
    )
    if seconds == 0:
        entry = service.models.find(data.model)
        entry.keep(0.0)
        await service.models.unload(entry)
        return WholeAnswer(line | {"done": True, "done_reason": "unload"})
    async with service.models.use(data.model, exchange) as (entry, _):
        if seconds is not None:
            entry.keep(seconds)
    line |= {
        "done": True,
        "done_reason": "load",
        "total_duration": int((time.monotonic() - began) * 1e9) or 1,
    }
    return WholeAnswer(line)


HANDLERS = [generate, chat]
