"""llama.cpp's own routes: health, props, tokens, templates, slots and adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Request, get, post
from litestar.types import ASGIApp
from msgspec import Struct

from llamay_server.chat.profile import opened
from llamay_server.chat.run import ChatRequest, render
from llamay_server.chat.tools import openai_choice, openai_tools
from llamay_server.engine.protocol import Model
from llamay_server.http.answers import Whole, read_json
from llamay_server.http.call import call_of
from llamay_server.http.errors import ApiError, invalid
from llamay_server.models.lora import AdapterScale, read_scales
from llamay_server.openai.completions import read_prompts
from llamay_server.openai.messages import read_messages
from llamay_server.openai.schema import ChatMessage
from llamay_server.services import services

if TYPE_CHECKING:
    from llamay_server.models.registry import Entry


@get(["/health", "/v1/health"])
async def health(request: Request[Any, Any, Any]) -> ASGIApp:
    """Whether the server can answer; 503 while the default model loads."""
    models = services(request).models
    entry = next(iter(models.entries.values()), None)
    if entry is not None and (entry.status.loading or models.starting):
        error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
        return Whole({"error": error}, status=503)
    return Whole({"status": "ok"})


@get("/metrics")
async def metrics(request: Request[Any, Any, Any]) -> ASGIApp:
    """Prometheus text."""
    service = services(request)
    if not service.config.metrics:
        raise ApiError("not_supported", "Metrics are off; start the server with --metrics.")
    started = {"process-start-time-unix": str(int(service.started))}
    return Whole(service.metrics.text(), headers=started, media="text/plain; version=0.0.4; charset=utf-8")


class TokenizeRequest(Struct, kw_only=True):
    """Body of POST /tokenize."""

    content: str
    model: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


@post(["/tokenize", "/v1/tokenize"], status_code=200)
async def tokenize(request: Request[Any, Any, Any]) -> ASGIApp:
    """Text to token ids."""
    data = await read_json(request, TokenizeRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (_, model):
        parse = data.parse_special is not False
        ids = model.encode(data.content, add_special=bool(data.add_special), parse_special=parse)
        if not data.with_pieces:
            return Whole({"tokens": ids})
        return Whole({"tokens": [{"id": token, "piece": _piece(model, token)} for token in ids]})


def _piece(model: Model, token: int) -> str | list[int]:
    raw = model.token_bytes(token)
    try:
        return raw.decode() if raw else model.token_name(token)
    except UnicodeDecodeError:
        return list(raw)


class DetokenizeRequest(Struct, kw_only=True):
    """Body of POST /detokenize."""

    tokens: list[int]
    model: str | None = None


@post(["/detokenize", "/v1/detokenize"], status_code=200)
async def detokenize(request: Request[Any, Any, Any]) -> ASGIApp:
    """Token ids to text."""
    data = await read_json(request, DetokenizeRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (_, model):
        tokens = read_prompts(list(data.tokens), model, "tokens")[0] if data.tokens else []
        return Whole({"content": model.decode(tokens)})


class TemplateRequest(Struct, kw_only=True):
    """Body of POST /apply-template."""

    messages: list[ChatMessage]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def _template_request(data: TemplateRequest, entry: Entry) -> ChatRequest:
    messages = read_messages(data.messages)
    ends_open = bool(messages) and messages[-1]["role"] == "assistant" and not data.add_generation_prompt
    box = openai_choice(data.tool_choice, openai_tools(data.tools), None)
    return ChatRequest(
        messages=opened(messages, entry.profile) if messages else [],
        sampling={},
        box=box,
        continue_final=ends_open,
        open_turn=data.add_generation_prompt is not False,
    )


@post("/apply-template", status_code=200)
async def apply_template(request: Request[Any, Any, Any]) -> ASGIApp:
    """The prompt that a chat request with this body reads."""
    data = await read_json(request, TemplateRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (entry, model):
        return Whole({"prompt": render(model, _template_request(data, entry)).prompt.text})


@post(["/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"], status_code=200)
async def input_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    """How many tokens a chat request with this body has as input."""
    data = await read_json(request, TemplateRequest)
    async with services(request).models.use(data.model, call_of(request.scope)) as (entry, model):
        return Whole({"input_tokens": len(render(model, _template_request(data, entry)).prompt.tokens)})


@get("/props")
async def props(request: Request[Any, Any, Any]) -> ASGIApp:
    """What the default model and the server are; never keys, and paths only where the operator shows them."""
    service = services(request)
    async with service.models.use(request.query_params.get("model"), call_of(request.scope)) as (
        entry,
        model,
    ):
        info = model.info
        path = "" if info.path is None else str(info.path) if service.config.expose_paths else info.path.name
        return Whole(
            {
                "default_generation_settings": {
                    "n_ctx": info.context_length,
                    "params": {
                        "temperature": 1.0,
                        "top_k": 0,
                        "top_p": 1.0,
                        "min_p": 0.0,
                        "seed": -1,
                        "n_predict": -1,
                    },
                },
                "total_slots": service.config.max_streams or service.config.max_queue,
                "model_alias": entry.name,
                "model_path": path or entry.name,
                "chat_template": info.chat_template or "",
                "bos_token": info.bos_token,
                "eos_token": info.eos_token,
                "modalities": {"vision": False, "audio": False},
                "build_info": f"llamay {service.version}",
            }
        )


@post("/props", status_code=200)
async def set_props(request: Request[Any, Any, Any]) -> ASGIApp:
    """Changing properties at run time is not offered."""
    raise ApiError("not_supported", "Properties cannot be changed while the server runs.")


@get("/slots")
async def slots(request: Request[Any, Any, Any]) -> ASGIApp:
    """One entry for each generation that runs or waits; never anybody's prompt."""
    service = services(request)
    if not service.config.slots:
        raise ApiError("not_supported", "Slots are off; start the server with --slots.")
    admission = service.admission
    busy = admission.waiting + admission.running
    total = service.config.max_streams or service.config.max_queue
    if request.query_params.get("fail_on_no_slot") and busy >= total:
        raise ApiError("unavailable", "no slot available")
    entry = next(iter(service.models.entries.values()), None)
    info = entry.info if entry is not None else None
    length = info.context_length if info is not None else 0
    shown = max(busy, 1)
    return Whole([{"id": i, "n_ctx": length, "is_processing": i < busy} for i in range(shown)])


@post("/slots/{slot:str}", status_code=200)
async def slot_action(request: Request[Any, Any, Any]) -> ASGIApp:
    """Saving and restoring a slot by a file name is not offered."""
    raise ApiError(
        "not_supported",
        "Slots are not saved to files here: download a context's snapshot, and restore it, with /v1/contexts.",
    )


class AdapterState(Struct):
    """One adapter as it is."""

    id: int
    path: str
    scale: float


@get("/lora-adapters")
async def adapters(request: Request[Any, Any, Any]) -> ASGIApp:
    """The LoRA adapters that were loaded beside the model, with the scales of requests that say none."""
    service = services(request)
    async with service.models.use(request.query_params.get("model"), call_of(request.scope)) as (_, model):
        return Whole(_states(model, paths=service.config.expose_paths))


@post("/lora-adapters", status_code=200)
async def set_adapters(request: Request[Any, Any, Any]) -> ASGIApp:
    """Set the scales of requests that say none. Adapters that are not named count as 0 from then on."""
    service = services(request)
    data = await read_json(request, list[AdapterScale])
    async with service.models.use(request.query_params.get("model"), call_of(request.scope)) as (
        entry,
        model,
    ):
        if data and not model.adapters:
            raise invalid(f"[0].id: there is no adapter {data[0].id}", "[0].id")
        if entry.model is not None and model.adapters:
            entry.model.set_scales(read_scales(model, data, ""))
        return Whole(_states(model, paths=service.config.expose_paths))


def _states(model: Model, *, paths: bool) -> list[AdapterState]:
    return [
        AdapterState(i, str(each.path) if paths else each.path.name, each.scale)
        for i, each in enumerate(model.adapters)
    ]


HANDLERS = [
    health,
    metrics,
    tokenize,
    detokenize,
    apply_template,
    input_tokens,
    props,
    set_props,
    slots,
    slot_action,
    adapters,
    set_adapters,
]
