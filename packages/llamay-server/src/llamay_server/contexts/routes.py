"""/v1/contexts: contexts as values over HTTP. Errors are application/problem+json."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from litestar import Request, delete, get, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_server.chat.run import ChatRequest, common, render
from llamay_server.chat.tools import openai_choice, openai_tools
from llamay_server.contexts.registry import Named, Writer
from llamay_server.engine.protocol import Context, Model, PromptTooLong
from llamay_server.http.answers import Whole, decode_json, in_thread, read_json, release
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import ApiError, from_engine, invalid
from llamay_server.openai.completions import read_prompts
from llamay_server.openai.messages import read_messages
from llamay_server.openai.schema import ChatMessage
from llamay_server.pipeline.sampling import SamplingFields
from llamay_server.services import Services, services

_CHUNK = 1 << 20
Name = Annotated[str, Meta(max_length=256)]


class Reading(Struct, kw_only=True):
    """Something to read: text, token ids, or a conversation."""

    prompt: str | None = None
    tokens: list[int] | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None


class CreateContext(Reading, kw_only=True):
    """Body of POST /v1/contexts."""

    model: str | None = None
    label: Name | None = None
    marking: Name | None = None


class ExtendContext(Reading, kw_only=True):
    """Body of POST /v1/contexts/{id}/extend."""


class ExplainMiss(Reading, kw_only=True):
    """Body of POST /v1/contexts/{id}/explain-miss."""


class ForkContext(Struct, kw_only=True):
    """Body of POST /v1/contexts/{id}/fork, which may be left out."""

    n: int | None = None
    label: Name | None = None


class TruncateContext(Struct, kw_only=True):
    """Body of POST /v1/contexts/{id}/truncate."""

    tokens: Annotated[int, Meta(ge=1)]


class GenerateFromContext(SamplingFields, kw_only=True):
    """Body of POST /v1/contexts/{id}/generate."""

    prompt: str | None = None
    tokens: list[int] | None = None
    messages: list[ChatMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    n: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    choose: Literal["mean_logprob", "sum_logprob"] | None = None
    commit: bool | None = None
    response_format: dict[str, Any] | None = None


def _ids(data: Reading | GenerateFromContext, model: Model, *, first: bool) -> list[int] | None:
    """The ids of a prompt or of tokens; None where there is neither."""
    given = [name for name in ("prompt", "tokens", "messages") if getattr(data, name) is not None]
    if len(given) > 1:
        raise invalid(
            f"{given[1]}: there is {given[0]} already; give one of prompt, tokens, messages", given[1]
        )
    if data.prompt is not None:
        ids = model.encode(data.prompt, add_special=first, parse_special=True)
        if not ids:
            raise invalid("prompt: it is empty", "prompt")
        return ids
    if data.tokens is not None:
        return read_prompts(list(data.tokens), model, "tokens")[0]
    return None


def _chat(data: Reading | GenerateFromContext, earlier: Sequence[dict[str, Any]] = ()) -> ChatRequest:
    messages = [*earlier, *read_messages(data.messages or [])]
    parallel = getattr(data, "parallel_tool_calls", None)
    box = openai_choice(data.tool_choice, openai_tools(data.tools), parallel)
    ends_open = bool(messages) and messages[-1]["role"] == "assistant"
    wanted = getattr(data, "add_generation_prompt", None)
    return ChatRequest(
        messages=messages, sampling={}, box=box, continue_final=ends_open and wanted is not True
    )


def check_length(tokens: int, model: Model) -> None:
    """Refuse with a 413 what is longer than the model's context."""
    limit = model.info.context_length
    if tokens > limit:
        error = from_engine(PromptTooLong(tokens, limit))
        raise ApiError("too_large", error.message, code=error.code, extra=error.extra, retry=False)


@post("/v1/contexts", status_code=201)
async def create(request: Request[Any, Any, Any]) -> ASGIApp:
    """Read a prompt and keep what was computed under a name."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, CreateContext)
    service.markings.check(call.owner, data.marking)
    async with service.models.use(data.model, call) as (entry, model):
        ids = _ids(data, model, first=True)
        messages = None
        if ids is None:
            if data.messages is None:
                raise invalid("prompt: it is missing; give prompt, tokens or messages", "prompt")
            chat = _chat(data)
            ids, messages = (await asyncio.to_thread(render, model, chat)).prompt.tokens, chat.messages
        check_length(len(ids), model)
        service.contexts.check_room(call.owner, 1, len(ids))
        call.phase = "prefill"
        tenant = service.tenant(call)
        context = await engine(lambda progress: model.context(ids, tenant=tenant, progress=progress))
        named = service.contexts.add(
            context,
            owner=call.owner,
            model=entry.name,
            label=data.label or "",
            marking=data.marking or "",
            messages=messages,
            prompt_length=len(ids),
        )
    service.metrics.context_ops.labels(named.model, "create").inc()
    view = named.view() | {"cached_tokens": context.cached_tokens}
    return Whole(view, status=201, headers={"location": f"/v1/contexts/{named.id}"})


async def engine(work: Any) -> Any:
    """Blocking work of the engine, off the loop; what it raises becomes a refusal, except for lack of room on disk."""
    try:
        return await in_thread(work)
    except (ApiError, OSError):
        raise
    except Exception as e:
        raise from_engine(e) from e


@get("/v1/contexts")
async def list_contexts(request: Request[Any, Any, Any]) -> ASGIApp:
    """The caller's own contexts, oldest first, `limit` at a time after the id `after`."""
    service, call = services(request), call_of(request.scope)
    limit = _number(request.query_params.get("limit", "100"), "limit", 1, 1000)
    after = request.query_params.get("after")
    views: list[dict[str, Any]] = []
    more, found = False, after is None
    for named in service.contexts.of(call.owner):
        if not found:
            found = named.id == after
            continue
        if len(views) == limit:
            more = True
            break
        views.append(named.view())
    if not found:
        raise invalid(f"after: there is no context {str(after)[:64]!r}", "after")
    return Whole({"object": "list", "data": views, "has_more": more})


@get("/v1/contexts/{context_id:str}")
async def read(request: Request[Any, Any, Any]) -> ASGIApp:
    """One context; `?include=text,tokens` adds what it holds."""
    service, call = services(request), call_of(request.scope)
    named = named_of(request, service, call)
    view = named.view()
    include = [part for part in request.query_params.get("include", "").split(",") if part]
    for part in include:
        if part not in ("text", "tokens", "messages"):
            raise invalid(f"include: {part[:40]!r} is unknown; use text, tokens or messages", "include")
    if include:
        ids = list(named.context.tokens)
        async with service.models.use(named.model) as (_, model):
            if "text" in include:
                view["text"] = model.decode(ids)
            if "tokens" in include:
                view["token_ids"] = ids
            if "messages" in include:
                view["messages"] = named.messages
    return Whole(view)


@delete("/v1/contexts/{context_id:str}", status_code=200)
async def remove(request: Request[Any, Any, Any]) -> ASGIApp:
    """Free a context; what generates from it ends as cancelled."""
    service, call = services(request), call_of(request.scope)
    named = named_of(request, service, call)
    service.contexts.drop(named, "deleted")
    service.metrics.context_ops.labels(named.model, "delete").inc()
    return Whole({"id": named.id, "object": "context.deleted", "deleted": True})


@post("/v1/contexts/{context_id:str}/fork", status_code=201)
async def fork(request: Request[Any, Any, Any]) -> ASGIApp:
    """N contexts that share everything with this one until they are written to."""
    service, call = services(request), call_of(request.scope)
    named = named_of(request, service, call)
    raw = await request.body()
    data = decode_json(raw, ForkContext) if raw.strip() else ForkContext()
    n = (
        data.n
        if data.n is not None
        else _number(request.query_params.get("n", "1"), "n", 1, service.config.max_n)
    )
    if not 1 <= n <= service.config.max_n:
        raise invalid(f"n: it must be from 1 to {service.config.max_n}", "n")
    service.contexts.check_room(call.owner, n, n * len(named.context))
    made = [child_of(service, named, context, data.label) for context in named.context.fork(n)]
    service.metrics.context_ops.labels(named.model, "fork").inc(n)
    views = [child.view() for child in made]
    return Whole({"object": "list", "data": views, "ids": [child.id for child in made]}, status=201)


def child_of(service: Services, named: Named, context: Context, label: str | None = None) -> Named:
    """Name a fork of a named context, which keeps its owner, marking and conversation."""
    return service.contexts.add(
        context,
        owner=named.owner,
        model=named.model,
        parent=named.id,
        marking=named.marking,
        label=label if label is not None else named.label,
        messages=named.messages,
        prompt_length=named.prompt_length,
    )


@post("/v1/contexts/{context_id:str}/truncate", status_code=200)
async def truncate(request: Request[Any, Any, Any]) -> ASGIApp:
    """Keep the first `tokens` tokens."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, TruncateContext)
    named = named_of(request, service, call)
    if data.tokens > len(named.context):
        raise invalid(f"tokens: the context has only {len(named.context)}", "tokens")
    async with service.contexts.writing(named, "truncate") as writer:
        writer.context.truncate(data.tokens)
        if data.tokens < named.prompt_length:
            writer.messages, writer.prompt_length = None, 0
        writer.commit()
    service.metrics.context_ops.labels(named.model, "truncate").inc()
    return Whole(named.view())


@post("/v1/contexts/{context_id:str}/extend", status_code=200)
async def extend(request: Request[Any, Any, Any]) -> ASGIApp:
    """Read more; messages go on from the conversation that the context was made from."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, ExtendContext)
    named = named_of(request, service, call)
    async with (
        service.models.use(named.model, call) as (_, model),
        service.contexts.writing(named, "extend") as writer,
    ):
        reused, added = await read_more(service, named, writer, data, model, call)
        if not service.contexts.is_live(named):
            raise ApiError("conflict", f"Context {named.id} was deleted meanwhile.", retry=False)
        writer.commit()
    service.metrics.context_ops.labels(named.model, "extend").inc()
    return Whole(named.view() | {"reused_tokens": reused, "read_tokens": added})


async def read_more(
    service: Services,
    named: Named,
    writer: Writer,
    data: Reading | GenerateFromContext,
    model: Model,
    call: Call,
) -> tuple[int, int]:
    """Read what `data` holds into the fork; gives the tokens kept and read."""
    given = _ids(data, model, first=False)
    held = list(writer.context.tokens)
    chat = None
    if given is not None:
        ids, keep = given, len(held)
    else:
        if data.messages is None:
            raise invalid("prompt: it is missing; give prompt, tokens or messages", "prompt")
        if named.messages is None:
            # What came before is known only as tokens, such as in a restored context: the new turns follow on it.
            ids, keep = await asyncio.to_thread(_turns_alone, data, model, held)
        else:
            chat = _chat(data, _conversation(named, model))
            wanted = (await asyncio.to_thread(render, model, chat)).prompt.tokens
            # The last token is read again where nothing is left to read: its scores are needed to go on.
            keep = min(common(held, wanted), len(wanted) - 1)
            ids = wanted[keep:]
    check_length(keep + len(ids), model)
    service.contexts.check_room(call.owner, 0, keep + len(ids) - len(held))
    call.phase = "prefill"
    if 0 < keep < len(held):
        writer.context.truncate(keep)
    if keep == 0 and held:
        tenant, whole = service.tenant(call), ids
        fresh = await engine(lambda progress: model.context(whole, tenant=tenant, progress=progress))
        release(writer.context)
        writer.context = fresh
    else:
        context, more = writer.context, ids
        await engine(lambda progress: context.extend(more, progress=progress))
    if chat is not None:
        writer.messages, writer.prompt_length = chat.messages, keep + len(ids)
    return keep, len(ids)


def _conversation(named: Named, model: Model) -> list[dict[str, Any]]:
    """The messages so far: those it was made from, and what the model said since."""
    messages = named.messages or []
    said = model.decode(list(named.context.tokens)[named.prompt_length :])
    eos = model.info.eos_token
    said = said.removesuffix(eos) if eos else said
    return [*messages, {"role": "assistant", "content": said}] if said.strip() else list(messages)


def _turns_alone(
    data: Reading | GenerateFromContext, model: Model, held: Sequence[int]
) -> tuple[list[int], int]:
    """The tokens of new turns after a conversation of which only the tokens are known, and how many of those stay.

    The template is asked twice, for a stand-in conversation alone and with the new turns behind it: what is more the
    second time is what the new turns add.
    """
    stand_in = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    before = render(model, ChatRequest(stand_in, {}, continue_final=True)).prompt.tokens
    after = render(model, _chat(data, stand_in)).prompt.tokens
    if after[: len(before)] != before or len(after) == len(before):
        raise invalid(
            "messages: this model's template cannot put turns behind a context; give prompt or tokens",
            "messages",
        )
    added = after[len(before) :]
    if len(added) > 1 and held[-1] == added[0]:
        return added[1:], len(held)
    ended = model.info.eos_token and held[-1:] == model.encode(
        model.info.eos_token, add_special=False, parse_special=True
    )
    return added, len(held) - bool(ended)


@post("/v1/contexts/{context_id:str}/explain-miss", status_code=200)
async def explain_miss(request: Request[Any, Any, Any]) -> ASGIApp:
    """How far a prompt agrees with a context, and where and how they part."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, ExplainMiss)
    named = named_of(request, service, call)
    async with service.models.use(named.model, call) as (_, model):
        wanted = _ids(data, model, first=True)
        if wanted is None:
            if data.messages is None:
                raise invalid("prompt: it is missing; give prompt, tokens or messages", "prompt")
            wanted = (await asyncio.to_thread(render, model, _chat(data))).prompt.tokens
        held = list(named.context.tokens)
        same = common(held, wanted)
        around = slice(max(0, same - 8), same + 8)
        parts = {"position": same, "held": model.decode(held[around]), "wanted": model.decode(wanted[around])}
        return Whole(
            {
                "object": "context.miss",
                "id": named.id,
                "context_tokens": len(held),
                "prompt_tokens": len(wanted),
                "common_tokens": same,
                "first_difference": parts if same < len(wanted) and same < len(held) else None,
            }
        )


def _number(text: str, name: str, least: int, most: int) -> int:
    digits = text.strip().removeprefix("-").removeprefix("+")
    value = int(text) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
    if value is None or not least <= value <= most:
        raise invalid(f"{name}: it must be a whole number from {least} to {most}", name)
    return value


def named_of(request: Request[Any, Any, Any], service: Services, call: Call) -> Named:
    """The context that a request's path names. Raises a 404."""
    return service.contexts.get(str(request.path_params["context_id"]), call.owner)


HANDLERS = [
    create,
    list_contexts,
    read,
    remove,
    fork,
    truncate,
    extend,
    explain_miss,
]
