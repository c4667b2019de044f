"""POST /v1/messages and /v1/messages/count_tokens: Anthropic's Messages API."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request, post
from litestar.types import ASGIApp

from llamay_models.answers import (
    ArgumentsPart,
    CallBegun,
    Event,
    Finished,
    Reasoning,
    Text,
    ToolCall,
    complete_part,
)
from llamay_server.anthropic.cache import diagnose, last_breakpoint, marked_tokens
from llamay_server.anthropic.reading import assistant_message, read_messages
from llamay_server.anthropic.schema import Block, CountTokensRequest, MessagesRequest
from llamay_server.chat.kept import Stored
from llamay_server.chat.profile import fill, limit, opened, stops
from llamay_server.chat.prompt_history import Seen, SeenPrompts, compare
from llamay_server.chat.run import ChatRequest, ChatRun, Message, render
from llamay_server.chat.tools import Tool, Toolbox, choose, make_tool
from llamay_server.engine.protocol import Model
from llamay_server.http.answers import Streamed, Whole, read_json, sse
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import ApiError, invalid
from llamay_server.pipeline.sampling import SamplingFields, format_bound, sampling, stop_list, unsupported
from llamay_server.services import Services, services
from llamay_server.store import Profile

if TYPE_CHECKING:
    from llamay_server.models.registry import Entry

PING = sse({"type": "ping"}, "ping")
# Clients replay it; nothing here depends on it, because the reasoning itself comes back beside it.
SIGNATURE = "bGxhbWF5"


def _tools(tools: Sequence[dict[str, Any]] | None, call: Call) -> list[Tool]:
    out = []
    for n, item in enumerate(tools or ()):
        kind = item.get("type") or "custom"
        if kind != "custom":
            # Tools that run on Anthropic's own machines: agents always list some, so they are left out and named.
            call.warn(f"tools of type {kind} are not available and were left out")
            continue
        out.append(
            make_tool(
                item.get("name"),
                item.get("description"),
                item.get("input_schema"),
                f"tools[{n}]",
                item.get("strict"),
            )
        )
    return out


def _choice(value: dict[str, Any] | None, tools: Sequence[Tool]) -> Toolbox:
    kind = (value or {}).get("type", "auto")
    parallel = not (value or {}).get("disable_parallel_tool_use", False)
    if kind == "auto":
        return choose(tools, "auto", None, parallel, "tool_choice")
    if kind == "any":
        return choose(tools, "required", None, parallel, "tool_choice")
    if kind == "none":
        return Toolbox(tuple(tools), "none", parallel)
    if kind == "tool":
        name = (value or {}).get("name")
        if not isinstance(name, str):
            raise invalid("tool_choice.name: it is missing", "tool_choice.name")
        return choose(tools, "required", [name], parallel, "tool_choice.name")
    raise invalid(
        f"tool_choice.type: {str(kind)[:40]!r} is unknown; use auto, any, tool or none", "tool_choice.type"
    )


def _thread(data: CountTokensRequest, service: Services, call: Call) -> Stored | None:
    """The kept conversation that a request goes on from."""
    thread = data.thread
    if thread is None or thread.type == "create":
        return None
    if not thread.previous_message_id:
        raise invalid("thread.previous_message_id: it is missing", "thread.previous_message_id")
    found = service.threads.find(thread.previous_message_id, call.owner)
    if found is None:
        message = f"There is no message {thread.previous_message_id[:80]!r} to go on from."
        raise ApiError("not_found", message, param="thread.previous_message_id", code="thread_not_found")
    for name in ("system", "tools"):
        if getattr(data, name) is not None:
            raise invalid(f"{name}: a thread keeps what it was created with", name)
    return found


def _neutral(data: CountTokensRequest, thread: Stored | None, profile: Profile, call: Call) -> ChatRequest:
    """What counting and answering have in common."""
    if not data.messages:
        raise invalid("messages: at least one message is required", "messages")
    if data.mcp_servers:
        raise unsupported("mcp_servers")
    earlier: list[Message] = thread.messages if thread is not None else []
    tools = thread.items if thread is not None else data.tools
    made = {c["id"] for m in earlier for c in m.get("tool_calls", ())}
    new = read_messages(data.messages, data.system, made)
    messages = [*earlier, *new] if thread is not None else opened(new, profile)
    config = data.output_config or {}
    form = data.output_format if data.output_format is not None else config.get("format")
    form_bound = format_bound(form, "output_config.format" if data.output_format is None else "output_format")
    think = None if data.thinking is None else data.thinking.type != "disabled"
    template = {"reasoning_effort": config["effort"]} if isinstance(config.get("effort"), str) else {}
    return ChatRequest(
        messages=messages,
        sampling={},
        box=_choice(data.tool_choice, _tools(tools, call)),
        bound=form_bound,
        continue_final=messages[-1]["role"] == "assistant",
        think=think,
        template=template,
        in_parts=True,
    )


def read_request(
    data: MessagesRequest,
    thread: Stored | None,
    profile: Profile,
    model: Model,
    service: Services,
    call: Call,
) -> ChatRequest:
    """The neutral request of a Messages body."""
    request = _neutral(data, thread, profile, call)
    thinking = data.thinking
    if thinking and thinking.type == "enabled" and thinking.budget_tokens and model.info.template_thinks:
        request.think_budget = thinking.budget_tokens
    fields = SamplingFields(
        temperature=data.temperature, top_p=data.top_p, top_k=data.top_k, min_p=data.min_p, seed=data.seed
    )
    request.sampling = sampling(fill(fields, profile), model)
    request.max_tokens = limit(profile) if data.max_tokens is None else data.max_tokens
    request.stop = stop_list(
        stops(profile) if data.stop_sequences is None else data.stop_sequences, "stop_sequences"
    )
    request.ignore_eos = bool(data.ignore_eos)
    request.tenant = service.tenant(call, data.cache_salt)
    tools = thread.items if thread is not None else data.tools
    eager = any(tool.get("eager_input_streaming") is True for tool in tools or ())
    request.bind_calls = service.config.bind_calls or eager
    return request


class MessageWriter:
    """Writes one message, whole or as events."""

    def __init__(self, run: ChatRun, name: str, data: MessagesRequest, prompts: SeenPrompts) -> None:
        self.run, self.data, self.prompts = run, data, prompts
        self.marked = 0
        """Tokens of the prompt up to its last breakpoint."""
        self.mark = last_breakpoint(data)
        self.shows_thinking = not (data.thinking and data.thinking.display == "omitted")
        self.content: list[dict[str, Any]] = []
        self.tools: list[dict[str, Any]] = []
        self.finished = False
        self.base: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": name,
        }

    def _usage(self, output: int) -> dict[str, Any]:
        prompt, cached = self.run.prompt_usage()
        written = max(0, self.marked - cached)
        long = written if self.mark is not None and self.mark[1].ttl == "1h" else 0
        return {
            "input_tokens": prompt - cached - written,
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": cached,
            "cache_creation": {
                "ephemeral_5m_input_tokens": written - long,
                "ephemeral_1h_input_tokens": long,
            },
            "output_tokens": output,
            "service_tier": "standard",
        }

    async def _look_back(self) -> None:
        """Find where the marked part of the prompt ends, and why it missed where that is asked."""
        run, asked = self.run, self.data.diagnostics
        if self.mark is None and asked is None:
            return
        rendered = await run.prepare()
        if self.mark is not None:
            self.marked = await asyncio.to_thread(marked_tokens, run, self.data, self.mark[0])
        if asked is None:
            return
        tokens = rendered.prompt.tokens
        now = Seen(run.call.owner, run.call.model, run.request, len(tokens))
        reason = None
        if asked.previous_message_id is not None:
            before = self.prompts.find(asked.previous_message_id, run.call.owner)
            if before is None:
                reason = {"type": "previous_message_not_found"}
            else:
                reason = diagnose(await asyncio.to_thread(compare, before, now, run.model, tokens))
        self.base["diagnostics"] = {"cache_miss_reason": reason}
        self.prompts.add(str(self.base["id"]), now)

    def _stop(self, end: Finished) -> dict[str, Any]:
        if end.reason == "tool_calls":
            reason = "tool_use"
        elif end.reason == "length":
            reason = "model_context_window_exceeded" if self.run.context_full() else "max_tokens"
        else:
            reason = "end_turn" if end.stop_sequence is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": end.stop_sequence}

    async def whole(self) -> dict[str, Any]:
        """The complete message."""
        await self._look_back()
        end = Finished(0, "stop")
        async with contextlib.aclosing(self.run.events()) as events:
            async for event in events:
                self._gather(event)
                if isinstance(event, Finished):
                    end = event
        usage = self._usage(self.run.totals.completion_tokens)
        return {**self.base, "content": self.shown(), **self._stop(end), "usage": usage}

    def _gather(self, event: Event) -> None:
        """Add an event to the content."""
        content = self.content
        match event:
            case Text() if event.text:
                if not content or content[-1]["type"] != "text":
                    content.append({"type": "text", "text": ""})
                content[-1]["text"] += event.text
            case Reasoning():
                if not content or content[-1]["type"] != "thinking":
                    content.append({"type": "thinking", "thinking": "", "signature": SIGNATURE})
                content[-1]["thinking"] += event.text
            case ToolCall():
                given = json.loads(event.arguments) if event.complete else complete_part(event.arguments)
                content.append(_tool_block(event, given))

    def shown(self) -> list[dict[str, Any]]:
        """The content as the client gets it: without the words of reasoning it does not want to see."""
        if self.shows_thinking:
            return self.content
        return [b | {"thinking": ""} if b["type"] == "thinking" else b for b in self.content]

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The message as events."""
        await self._look_back()
        opened: str | None = None
        index = -1
        end = Finished(0, "stop")
        started = False

        def emit(kind: str, **data: Any) -> bytes:
            return sse({"type": kind, **data}, kind)

        def close() -> bytes:
            nonlocal opened
            if opened is None:
                return b""
            last = b""
            if opened == "thinking":
                delta = {"type": "signature_delta", "signature": SIGNATURE}
                last = emit("content_block_delta", index=index, delta=delta)
            opened = None
            return last + emit("content_block_stop", index=index)

        def begin(kind: str, block: dict[str, Any]) -> bytes:
            nonlocal opened, index
            if opened == kind and kind != "tool_use":
                return b""
            before = close()
            index += 1
            opened = kind
            return before + emit("content_block_start", index=index, content_block=block)

        def frame(event: Event) -> bytes:
            match event:
                case Text() if event.text:
                    head = begin("text", {"type": "text", "text": ""})
                    return head + emit(
                        "content_block_delta", index=index, delta={"type": "text_delta", "text": event.text}
                    )
                case Reasoning():
                    head = begin("thinking", {"type": "thinking", "thinking": "", "signature": ""})
                    if not self.shows_thinking:
                        return head
                    delta = {"type": "thinking_delta", "thinking": event.text}
                    return head + emit("content_block_delta", index=index, delta=delta)
                case CallBegun():
                    return begin("tool_use", _tool_block(event, {}))
                case ArgumentsPart() if event.text != "{}":
                    delta = {"type": "input_json_delta", "partial_json": event.text}
                    return emit("content_block_delta", index=index, delta=delta)
                case ToolCall():
                    return b"".join(map(frame, event.untold())) + close()
            return b""

        def gathered(event: Event) -> bytes:
            nonlocal started
            self._gather(event)
            out = frame(event)
            if started:
                return out
            started = True
            message = {**self.base, "content": [], "stop_reason": None, "stop_sequence": None}
            return emit("message_start", message={**message, "usage": self._usage(0)}) + out

        self.run.shape(gathered)
        async with contextlib.aclosing(self.run.events()) as events:
            async for event in events:
                if isinstance(event, Finished):
                    end = event
                if out := gathered(event):
                    yield out
        usage = self._usage(self.run.totals.completion_tokens)
        self.finished = True
        yield close() + emit("message_delta", delta=self._stop(end), usage=usage) + emit("message_stop")


def _tool_block(call: ToolCall | CallBegun, arguments: dict[str, Any]) -> dict[str, Any]:
    call_id = "toolu_" + call.id.removeprefix("call_")
    return {"type": "tool_use", "id": call_id, "name": call.name, "input": arguments}


def _prepare(
    service: Services, data: MessagesRequest, call: Call, entry: Entry, model: Model
) -> MessageWriter:
    name = entry.name
    thread = _thread(data, service, call)
    run = ChatRun(
        model, read_request(data, thread, entry.profile, model, service, call), call, service.admission
    )
    run.keep_context = data.thread is not None
    if thread is not None and thread.context is not None and thread.model == name:
        run.resume = thread.context
    if data.context:
        run.resume = service.contexts.for_model(data.context, call.owner, name)
    writer = MessageWriter(run, name, data, service.prompts)
    writer.tools = thread.items if thread is not None else list(data.tools or ())
    return writer


def _keep(service: Services, writer: MessageWriter, call: Call) -> None:
    """Keep the conversation under the message's id, with the context that holds it."""
    if writer.data.thread is None:
        return
    said: Message = {"role": "assistant", "content": ""}
    if writer.content:
        said = assistant_message(msgspec.convert(writer.content, list[Block]), "content", set())
    messages = [*writer.run.request.messages, said]
    kept = {"id": writer.base["id"], "output": []}
    service.threads.add(
        Stored(call.owner, call.model, kept, writer.tools, messages, writer.run.take_context())
    )


async def _holding(service: Services, data: MessagesRequest, call: Call) -> AsyncGenerator[bytes, None]:
    async with service.models.use(data.model, call) as (entry, model):
        writer = _prepare(service, data, call, entry, model)
        async with contextlib.aclosing(writer.frames()) as frames:
            async for frame in frames:
                if writer.finished:
                    _keep(service, writer, call)
                yield frame


@post("/v1/messages", status_code=200)
async def messages(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer a conversation."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, MessagesRequest)
    if data.stream:
        frames = _holding(service, data, call)
        return await Streamed.start(
            frames, media="text/event-stream", ping=PING, interval=service.config.ping_interval
        )
    async with service.models.use(data.model, call) as (entry, model):
        writer = _prepare(service, data, call, entry, model)
        answer = await writer.whole()
        _keep(service, writer, call)
        return Whole(answer)


@post("/v1/messages/count_tokens", status_code=200)
async def count_tokens(request: Request[Any, Any, Any]) -> ASGIApp:
    """How many input tokens a message with this body has."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, CountTokensRequest)
    async with service.models.use(data.model, call) as (entry, model):
        chat = _neutral(data, _thread(data, service, call), entry.profile, call)
        return Whole({"input_tokens": len(render(model, chat).prompt.tokens)})


HANDLERS = [messages, count_tokens]
