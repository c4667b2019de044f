"""POST /tokenize, /detokenize, /apply-template and chat/completions/input_tokens: texts, tokens and templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Struct

from llamay_server.chat.conversation import Conversation, render
from llamay_server.chat.profile import behind_profile
from llamay_server.http.answers import WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.exchange import exchange_of
from llamay_server.http.route_description import described
from llamay_server.openai.messages import ChatMessage, read_messages
from llamay_server.openai.tools import openai_choice, openai_tools
from llamay_server.pipeline.prompts import read_prompts
from llamay_server.services import services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import Model
    from llamay_server.models.entry import Entry


class TokenizeRequest(Struct, kw_only=True):
    """Body of POST /tokenize."""

    content: str
    model: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None


@post(["/tokenize", "/v1/tokenize"], status_code=200, opt=described(body=TokenizeRequest))
async def tokenize(request: Request[Any, Any, Any]) -> ASGIApp:
    """Text to token ids."""
    data = await read_json(request, TokenizeRequest)
    async with services(request).models.use(data.model, exchange_of(request.scope)) as (_, model):
        parse = data.parse_special is not False
        ids = model.encode(data.content, add_special=bool(data.add_special), parse_special=parse)
        if not data.with_pieces:
            return WholeAnswer({"tokens": ids})
        return WholeAnswer({"tokens": [{"id": token, "piece": _piece(model, token)} for token in ids]})


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


@post(["/detokenize", "/v1/detokenize"], status_code=200, opt=described(body=DetokenizeRequest))
async def detokenize(request: Request[Any, Any, Any]) -> ASGIApp:
    """Token ids to text."""
    data = await read_json(request, DetokenizeRequest)
    async with services(request).models.use(data.model, exchange_of(request.scope)) as (_, model):
        tokens = read_prompts(list(data.tokens), model, "tokens")[0] if data.tokens else []
        return WholeAnswer({"content": model.decode(tokens)})


class TemplateRequest(Struct, kw_only=True):
    """Body of POST /apply-template."""

    messages: list[ChatMessage]
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


def _conversation(data: TemplateRequest, entry: Entry) -> Conversation:
    messages = read_messages(data.messages)
    ends_open = bool(messages) and messages[-1]["role"] == "assistant" and not data.add_generation_prompt
    box = openai_choice(data.tool_choice, openai_tools(data.tools), None)
    return Conversation(
        messages=behind_profile(messages, entry.profile) if messages else [],
        toolbox=box,
        continue_final=ends_open,
        open_turn=data.add_generation_prompt is not False,
    )


@post("/apply-template", status_code=200, opt=described(body=TemplateRequest))
async def apply_template(request: Request[Any, Any, Any]) -> ASGIApp:
    """The prompt of a chat request with this body."""
    data = await read_json(request, TemplateRequest)
    async with services(request).models.use(data.model, exchange_of(request.scope)) as (entry, model):
        return WholeAnswer({"prompt": render(model, _conversation(data, entry)).prompt.text})


@post(
    ["/chat/completions/input_tokens", "/v1/chat/completions/input_tokens"],
    status_code=200,
    opt=described(body=TemplateRequest),
)
async def input_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    """How many tokens a chat request with this body has as input."""
    data = await read_json(request, TemplateRequest)
    async with services(request).models.use(data.model, exchange_of(request.scope)) as (entry, model):
        return WholeAnswer({"input_tokens": len(render(model, _conversation(data, entry)).prompt.tokens)})


HANDLERS = [tokenize, detokenize, apply_template, input_tokens]
