"""/v1/contexts: contexts as values over HTTP. Errors are application/problem+json."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from litestar import Request, delete, get, post
from litestar.types import ASGIApp

from llamay_server.chat.conversation import common_prefix, render
from llamay_server.contexts_api.reading import (
    check_length,
    engine_work,
    given_tokens,
    prefill_more,
    read_conversation,
)
from llamay_server.contexts_api.schema import (
    CreateContext,
    ExplainMiss,
    ExtendContext,
    ForkContext,
    TruncateContext,
)
from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import decode_json, read_json
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.exchange import Exchange, exchange_of
from llamay_server.http.route_description import described
from llamay_server.pipeline.prefill import forks
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.contexts.registry import NamedContext
    from llamay_server.engine.protocol import Context

_LIST_QUERY = [
    {"name": "limit", "schema": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}},
    {"name": "after", "schema": {"type": "string"}},
]
_READ_QUERY = [{"name": "include", "schema": {"type": "string"}}]
_FORK_QUERY = [{"name": "n", "schema": {"type": "integer", "minimum": 1}}]


@post("/v1/contexts", status_code=201, opt=described(body=CreateContext))
async def create(request: Request[Any, Any, Any]) -> ASGIApp:
    """Prefill a prompt, and keep the context under an id."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, CreateContext)
    service.markings.check(exchange.owner, data.marking)
    async with service.models.use(data.model, exchange) as (entry, model):
        ids = given_tokens(data, model, first=True)
        messages = None
        if ids is None:
            if data.messages is None:
                raise invalid("prompt: it is missing; give prompt, tokens or messages", "prompt")
            conversation = read_conversation(data)
            rendered = await asyncio.to_thread(render, model, conversation)
            ids, messages = rendered.prompt.tokens, conversation.messages
        check_length(len(ids), model)
        service.contexts.check_room(exchange.owner, 1, len(ids))
        exchange.phase = "prefill"
        tenant = service.tenant(exchange)
        context = await engine_work(lambda progress: model.context(ids, tenant=tenant, progress=progress))
        named = service.contexts.add(
            context,
            owner=exchange.owner,
            model=entry.name,
            label=data.label or "",
            marking=data.marking or "",
            messages=messages,
            prompt_length=len(ids),
        )
    service.metrics.context_ops.labels(named.model, "create").inc()
    view = named.view() | {"cached_tokens": context.cached_tokens}
    return WholeAnswer(view, status=201, headers={"location": f"/v1/contexts/{named.id}"})


@get("/v1/contexts", opt=described(query=_LIST_QUERY))
async def list_contexts(request: Request[Any, Any, Any]) -> ASGIApp:
    """List the caller's own contexts, oldest first, `limit` at a time after the id `after`."""
    service, exchange = services(request), exchange_of(request.scope)
    limit = _number(request.query_params.get("limit", "100"), "limit", 1, 1000)
    after = request.query_params.get("after")
    views: list[dict[str, Any]] = []
    more, found = False, after is None
    for named in service.contexts.of(exchange.owner):
        if not found:
            found = named.id == after
            continue
        if len(views) == limit:
            more = True
            break
        views.append(named.view())
    if not found:
        raise invalid(f"after: there is no context {str(after)[:64]!r}", "after")
    return WholeAnswer({"object": "list", "data": views, "has_more": more})


@get("/v1/contexts/{context_id:str}", opt=described(query=_READ_QUERY))
async def read(request: Request[Any, Any, Any]) -> ASGIApp:
    """Describe a context; `?include=text,tokens,messages` adds its text, tokens and messages."""
    service, exchange = services(request), exchange_of(request.scope)
    named = named_of(request, service, exchange)
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
    return WholeAnswer(view)


@delete("/v1/contexts/{context_id:str}", status_code=200)
async def remove(request: Request[Any, Any, Any]) -> ASGIApp:
    """Delete a context; a generation that continues it is cancelled."""
    service, exchange = services(request), exchange_of(request.scope)
    named = named_of(request, service, exchange)
    service.contexts.drop(named, "deleted")
    service.metrics.context_ops.labels(named.model, "delete").inc()
    return WholeAnswer({"id": named.id, "object": "context.deleted", "deleted": True})


@post(
    "/v1/contexts/{context_id:str}/fork",
    status_code=201,
    opt=described(body=ForkContext, body_required=False, query=_FORK_QUERY),
)
async def fork(request: Request[Any, Any, Any]) -> ASGIApp:
    """Make n contexts that share everything with this one until they are written to."""
    service, exchange = services(request), exchange_of(request.scope)
    named = named_of(request, service, exchange)
    raw = await request.body()
    data = decode_json(raw, ForkContext) if raw.strip() else ForkContext()
    n = (
        data.n
        if data.n is not None
        else _number(request.query_params.get("n", "1"), "n", 1, service.config.max_n)
    )
    if not 1 <= n <= service.config.max_n:
        raise invalid(f"n: it must be from 1 to {service.config.max_n}", "n")
    service.contexts.check_room(exchange.owner, n, n * len(named.context))
    made = [child_of(service, named, context, data.label) for context in forks(named.context, n)]
    service.metrics.context_ops.labels(named.model, "fork").inc(n)
    views = [child.view() for child in made]
    return WholeAnswer({"object": "list", "data": views, "ids": [child.id for child in made]}, status=201)


def child_of(
    service: Services, named: NamedContext, context: Context, label: str | None = None
) -> NamedContext:
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


@post("/v1/contexts/{context_id:str}/truncate", status_code=200, opt=described(body=TruncateContext))
async def truncate(request: Request[Any, Any, Any]) -> ASGIApp:
    """Keep the first `tokens` tokens."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, TruncateContext)
    named = named_of(request, service, exchange)
    if data.tokens > len(named.context):
        raise invalid(f"tokens: the context has only {len(named.context)}", "tokens")
    async with service.contexts.writing(named, "truncate") as write:
        write.context.truncate(data.tokens)
        if data.tokens < named.prompt_length:
            write.messages, write.prompt_length = None, 0
        write.commit()
    service.metrics.context_ops.labels(named.model, "truncate").inc()
    return WholeAnswer(named.view())


@post("/v1/contexts/{context_id:str}/extend", status_code=200, opt=described(body=ExtendContext))
async def extend(request: Request[Any, Any, Any]) -> ASGIApp:
    """Prefill more; messages continue the conversation that the context was made from."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, ExtendContext)
    named = named_of(request, service, exchange)
    async with (
        service.models.use(named.model, exchange) as (_, model),
        service.contexts.writing(named, "extend") as write,
    ):
        reused, added = await prefill_more(service, named, write, data, model, exchange)
        if not service.contexts.is_live(named):
            raise ApiError("conflict", f"Context {named.id} was deleted meanwhile.", retry=False)
        write.commit()
    service.metrics.context_ops.labels(named.model, "extend").inc()
    return WholeAnswer(named.view() | {"reused_tokens": reused, "read_tokens": added})


@post("/v1/contexts/{context_id:str}/explain-miss", status_code=200, opt=described(body=ExplainMiss))
async def explain_miss(request: Request[Any, Any, Any]) -> ASGIApp:
    """Tell how many tokens a prompt shares with a context, and where they first differ."""
    service, exchange = services(request), exchange_of(request.scope)
    data = await read_json(request, ExplainMiss)
    named = named_of(request, service, exchange)
    async with service.models.use(named.model, exchange) as (_, model):
        wanted = given_tokens(data, model, first=True)
        if wanted is None:
            if data.messages is None:
                raise invalid("prompt: it is missing; give prompt, tokens or messages", "prompt")
            wanted = (await asyncio.to_thread(render, model, read_conversation(data))).prompt.tokens
        held = list(named.context.tokens)
        same = common_prefix(held, wanted)
        around = slice(max(0, same - 8), same + 8)
        parts = {"position": same, "held": model.decode(held[around]), "wanted": model.decode(wanted[around])}
        return WholeAnswer(
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


def named_of(request: Request[Any, Any, Any], service: Services, exchange: Exchange) -> NamedContext:
    """Return the context that a request's path names. Raises a 404."""
    return service.contexts.get(str(request.path_params["context_id"]), exchange.owner)


HANDLERS = [create, list_contexts, read, remove, fork, truncate, extend, explain_miss]
