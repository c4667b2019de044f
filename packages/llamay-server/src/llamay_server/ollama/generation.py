"""POST /api/generate and /api/chat: Ollama's NDJSON streams."""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from litestar import Request, post
from litestar.types import ASGIApp
from msgspec import Meta, Struct

from llamay_models.answers import Event, Finished, Reasoning, Text, ToolCall
from llamay_server.chat.run import ChatRequest, ChatRun, Message, Rendered, render
from llamay_server.chat.tools import openai_choice, openai_tools, read_arguments
from llamay_server.config import parse_seconds
from llamay_server.engine.protocol import Model, Prompt
from llamay_server.http.answers import Streamed, Whole, ndjson, read_json
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import ApiError, invalid
from llamay_server.models.registry import Entry
from llamay_server.openai.logprobs import chat_logprobs
from llamay_server.pipeline.infill import can_fill, fill_prompt
from llamay_server.pipeline.run import Totals
from llamay_server.pipeline.sampling import (
    Bound,
    Int64,
    SamplingFields,
    Unit,
    sampling,
    stop_list,
    unsupported,
)
from llamay_server.services import Services, services

# Ollama's own defaults; clients that compare answers rely on them.
DEFAULTS: Mapping[str, Any] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "repeat_penalty": 1.1,
    "repeat_last_n": 64,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}
KeepAlive = float | str
Effort = Literal["low", "medium", "high", "max"]


class Options(Struct, kw_only=True):
    """`options`: sampling, and settings of Ollama's runner, which have no meaning here and no effect."""

    num_ctx: Annotated[int, Meta(ge=0)] | None = None
    num_predict: Annotated[int, Meta(ge=-2)] | None = None
    seed: Int64 | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    top_p: Unit | None = None
    min_p: Unit | None = None
    typical_p: Unit | None = None
    repeat_last_n: Annotated[int, Meta(ge=-1)] | None = None
    repeat_penalty: Annotated[float, Meta(gt=0, le=10)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0, le=1000)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0, le=1000)] | None = None
    tfs_z: float | None = None
    stop: list[str] | None = None
    num_keep: int | None = None
    num_batch: int | None = None
    num_gpu: int | None = None
    main_gpu: int | None = None
    num_thread: int | None = None
    use_mmap: bool | None = None
    use_mlock: bool | None = None
    numa: bool | None = None
    low_vram: bool | None = None
    vocab_only: bool | None = None
    f16_kv: bool | None = None
    penalize_newline: bool | None = None
    ignore_eos: bool | None = None


class _Common(Struct, kw_only=True):
    model: str | None = None
    format: Any = None
    options: Options | None = None
    stream: bool | None = None
    keep_alive: KeepAlive | None = None
    think: bool | Effort | None = None
    truncate: bool | None = None
    shift: bool | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


class GenerateRequest(_Common, kw_only=True):
    """Body of POST /api/generate."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[str] | None = None


class OllamaMessage(Struct):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class OllamaChatRequest(_Common, kw_only=True):
    """Body of POST /api/chat."""

    messages: list[OllamaMessage] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None


def keep_alive_seconds(value: KeepAlive) -> float:
    """Seconds to stay loaded; negative for ever."""
    if isinstance(value, str):
        try:
            return parse_seconds(value)
        except ValueError:
            raise invalid(f"invalid duration in keep_alive: {value[:40]!r}", "keep_alive") from None
    return value


def now() -> str:
    """The time as Ollama writes it: RFC 3339, UTC, nanoseconds."""
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        + f".{nanos:09d}Z"
    )


def read_messages(messages: Sequence[OllamaMessage]) -> list[Message]:
    """Ollama's messages in the neutral form."""
    out: list[Message] = []
    for n, m in enumerate(messages):
        where = f"messages[{n}]"
        if m.images:
            raise invalid(f"{where}.images: this model reads text only", f"{where}.images")
        message: Message = {"role": m.role, "content": m.content or ""}
        if m.thinking and m.role == "assistant":
            message["reasoning_content"] = m.thinking
        if m.tool_calls:
            message["tool_calls"] = [_call(c, f"{where}.tool_calls[{i}]") for i, c in enumerate(m.tool_calls)]
        if m.role == "tool":
            message["tool_call_id"] = m.tool_call_id or ""
            if m.tool_name:
                message["name"] = m.tool_name
        out.append(message)
    return out


def _call(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = value.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise invalid(f"{where}.function.name: it is missing", f"{where}.function.name")
    arguments = read_arguments(function.get("arguments"), f"{where}.function.arguments")
    return {
        "id": str(value.get("id") or ""),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def own_options(entry: Entry, given: Options | None) -> Options:
    """The model's own parameters, then the request's options over them."""
    own = msgspec.convert(dict(entry.profile.parameters), Options)
    for name in Options.__struct_fields__:
        if given is not None and (value := getattr(given, name)) is not None:
            setattr(own, name, value)
    return own


def _opening(entry: Entry, system: str | None) -> list[Message]:
    """What the model's own profile puts before a conversation; None for `system` takes the profile's."""
    system = entry.profile.system if system is None else system
    own = read_messages(msgspec.convert(list(entry.profile.messages), list[OllamaMessage]))
    if system and not (own and own[0]["role"] == "system"):
        own.insert(0, {"role": "system", "content": system})
    return own


def _bound(form: Any) -> Bound | None:
    if form is None or form == "":
        return None
    if form == "json":
        return Bound("json_object", None, "format")
    if isinstance(form, dict):
        return Bound("json_schema", form, "format")
    raise invalid('invalid format: it must be "json" or a JSON schema', "format")


def _request(
    data: _Common, messages: list[Message], entry: Entry, model: Model, service: Services, call: Call
) -> ChatRequest:
    options = own_options(entry, data.options)
    fields = SamplingFields(
        **{name: getattr(options, name) for name in _SAMPLED if getattr(options, name) is not None}
    )
    if fields.seed == -1:
        fields.seed = None
    if data.think and not model.info.template_thinks:
        raise ApiError("invalid", f'"{entry.name}" does not support thinking', param="think")
    if options.num_ctx and options.num_ctx > model.info.context_length:
        size = model.info.context_length
        call.warn(f"num_ctx has no effect; this model was loaded with {size} tokens of context")
    limit = options.num_predict
    return ChatRequest(
        messages=messages,
        sampling=sampling(fields, model, DEFAULTS),
        bound=_bound(data.format),
        max_tokens=None if limit is None or limit < 0 else limit,
        stop=stop_list(options.stop, "options.stop"),
        logprobs=(data.top_logprobs or 0) if data.logprobs or data.top_logprobs else None,
        ignore_eos=bool(options.ignore_eos),
        tenant=service.tenant(call),
        think=None if data.think is None else bool(data.think),
        template={"reasoning_effort": data.think} if isinstance(data.think, str) else {},
        bind_calls=service.config.bind_calls,
        shorten=data.truncate is not False,
    )


_SAMPLED = [
    name
    for name in Options.__struct_fields__
    if name in SamplingFields.__struct_fields__ and name != "ignore_eos"
]


class RawRun(ChatRun):
    """A generation without a template: the prompt is given as ids."""

    def __init__(
        self, model: Model, request: ChatRequest, call: Call, admission: Any, tokens: list[int]
    ) -> None:
        super().__init__(model, request, call, admission)
        self.rendered = Rendered(Prompt("", tokens))


class Writer:
    """Writes NDJSON lines, or their sum as one object."""

    def __init__(self, run: ChatRun, name: str, *, chat: bool, load: float, call: Call) -> None:
        self.run, self.name, self.chat, self.load, self.call = run, name, chat, load, call
        self.tokens: list[int] = []
        self.keeps_context = not chat

    def _line(self, **content: Any) -> dict[str, Any]:
        return {"model": self.name, "created_at": now(), **content}

    def _part(self, text: str = "", **more: Any) -> dict[str, Any]:
        if self.chat:
            return {"message": {"role": "assistant", "content": text, **more}}
        return {"response": text, **more}

    def _told(self, event: Event) -> dict[str, Any] | None:
        """The line of an event, where it has one."""
        match event:
            case Text():
                self.tokens += event.tokens
                if not event.text and not event.scores:
                    return None
                line = self._line(**self._part(event.text), done=False)
                if self.run.request.logprobs is not None:
                    line["logprobs"] = chat_logprobs(event.scores, self.run.model)["content"]
                return line
            case Reasoning():
                return self._line(**self._part(thinking=event.text), done=False)
            case ToolCall():
                function = {
                    "index": event.number,
                    "name": event.name,
                    "arguments": json.loads(event.arguments),
                }
                return self._line(
                    **self._part(tool_calls=[{"id": event.id, "function": function}]), done=False
                )
        return None

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The lines as they go out."""

        def frame(event: Event) -> bytes:
            line = self._told(event)
            return b"" if line is None else ndjson(line)

        self.run.shape(frame)
        async with contextlib.aclosing(self.lines()) as lines:
            async for line in lines:
                yield ndjson(line)

    async def lines(self) -> AsyncGenerator[dict[str, Any], None]:
        """One dict for each line."""
        end = Finished(0, "stop")
        async with contextlib.aclosing(self.run.events()) as events:
            async for event in events:
                if isinstance(event, Finished):
                    end = event
                elif (line := self._told(event)) is not None:
                    yield line
        yield self._line(
            **self._part(),
            done=True,
            done_reason="length" if end.reason == "length" else "stop",
            **self._numbers(),
        )

    def _numbers(self) -> dict[str, Any]:
        totals = self.run.totals
        numbers: dict[str, Any] = durations(totals, self.load, self.call)
        if self.keeps_context and self.run.rendered is not None:
            numbers["context"] = [*self.run.rendered.prompt.tokens, *self.tokens]
        if self.run.rendered is not None and self.run.rendered.dropped:
            numbers["truncated"] = True
        return numbers

    async def whole(self) -> dict[str, Any]:
        """All lines as one object."""
        texts: list[str] = []
        thoughts: list[str] = []
        calls: list[Any] = []
        scores: list[Any] = []
        last: dict[str, Any] = {}
        async with contextlib.aclosing(self.lines()) as lines:
            async for line in lines:
                part = line["message"] if self.chat else line
                texts.append(part["content"] if self.chat else part["response"])
                thoughts.append(part.get("thinking", ""))
                calls += part.get("tool_calls", [])
                scores += line.get("logprobs", [])
                last = line
        more: dict[str, Any] = {}
        if thought := "".join(thoughts):
            more["thinking"] = thought
        if calls:
            more["tool_calls"] = calls
        last |= self._part("".join(texts), **more)
        if self.run.request.logprobs is not None:
            last["logprobs"] = scores
        return last


def durations(totals: Totals, load: float, call: Call) -> dict[str, int]:
    """Counts and nanoseconds, without those that are zero."""
    values = {
        "total_duration": time.monotonic() - call.started,
        "load_duration": load,
        "prompt_eval_duration": totals.prefill,
        "eval_duration": totals.decode,
    }
    numbers = {name: int(seconds * 1e9) for name, seconds in values.items()}
    parts = sum(numbers.values()) - numbers["total_duration"]
    numbers["total_duration"] = max(numbers["total_duration"], parts)
    numbers["prompt_eval_count"] = totals.prompt_tokens
    numbers["eval_count"] = totals.completion_tokens
    return {name: value for name, value in numbers.items() if value}


async def _answer(
    service: Services, data: GenerateRequest | OllamaChatRequest, call: Call
) -> AsyncGenerator[Any, None]:
    """The writer first, then nothing: the model is held until this is closed."""
    began = time.monotonic()
    async with service.models.use(data.model, call) as (entry, model):
        load = time.monotonic() - began if call.phase == "load" else 0.0
        if data.keep_alive is not None:
            entry.keep(keep_alive_seconds(data.keep_alive))
        if isinstance(data, OllamaChatRequest):
            run = _chat_run(service, data, entry, model, call)
        else:
            run = _generate_run(service, data, entry, model, call)
        writer = Writer(
            run, data.model or entry.name, chat=isinstance(data, OllamaChatRequest), load=load, call=call
        )
        writer.keeps_context = isinstance(data, GenerateRequest) and not data.raw
        yield writer


def _chat_run(service: Services, data: OllamaChatRequest, entry: Entry, model: Model, call: Call) -> ChatRun:
    messages = read_messages(data.messages or [])
    messages = [*_opening(entry, "" if messages and messages[0]["role"] == "system" else None), *messages]
    request = _request(data, messages, entry, model, service, call)
    request.box = openai_choice(data.tool_choice, openai_tools(data.tools), None)
    request.continue_final = messages[-1]["role"] == "assistant"
    return ChatRun(model, request, call, service.admission)


def _generate_run(
    service: Services, data: GenerateRequest, entry: Entry, model: Model, call: Call
) -> ChatRun:
    if data.images:
        raise invalid("images: this model reads text only", "images")
    if data.suffix and not can_fill(model):
        raise ApiError("invalid", f"{entry.name} does not support insert", param="suffix")
    if data.raw and (data.template or data.system or data.context):
        raise invalid("raw mode does not support template, system, or context", "raw")
    if data.template:
        raise unsupported("template", "the model's own template is used")
    prompt = data.prompt or ""
    if data.suffix:
        request = _request(data, [], entry, model, service, call)
        ids = fill_prompt(model, prompt, data.suffix, reserve=max(1, request.max_tokens or 0), call=call)
        return RawRun(model, request, call, service.admission, ids)
    earlier = list(data.context or [])
    size = model.info.vocab_size
    if any(not 0 <= t < size for t in earlier):
        raise invalid("context: it holds a token that this model does not have", "context")
    if data.raw or model.info.chat_template is None:
        system = data.system or (None if data.raw else entry.profile.system)
        text = f"{system}\n\n{prompt}" if system else prompt
        ids = model.encode(text, add_special=not earlier, parse_special=True)
        request = _request(data, [], entry, model, service, call)
        return RawRun(model, request, call, service.admission, [*earlier, *ids])
    messages = _opening(entry, data.system or None) if not earlier else []
    if earlier and data.system:
        messages.append({"role": "system", "content": data.system})
    messages.append({"role": "user", "content": prompt})
    request = _request(data, messages, entry, model, service, call)
    if not earlier:
        return ChatRun(model, request, call, service.admission)
    rendered = render(model, request).prompt.tokens
    return RawRun(model, request, call, service.admission, [*earlier, *rendered])


async def _holding(
    service: Services, data: GenerateRequest | OllamaChatRequest, call: Call
) -> AsyncGenerator[bytes, None]:
    async with contextlib.aclosing(_answer(service, data, call)) as answers:
        async for writer in answers:
            async with contextlib.aclosing(writer.frames()) as frames:
                async for frame in frames:
                    yield frame


async def _serve(
    request: Request[Any, Any, Any], data: GenerateRequest | OllamaChatRequest, *, empty: bool
) -> ASGIApp:
    service, call = services(request), call_of(request.scope)
    if not data.model:
        raise invalid("model is required", "model")
    if empty:
        return await _load_or_unload(service, data, call)
    if data.stream is not False:
        frames = _holding(service, data, call)
        return await Streamed.start(frames, media="application/x-ndjson", ping=None, interval=0)
    answer: Any = None
    async with contextlib.aclosing(_answer(service, data, call)) as answers:
        async for writer in answers:
            answer = await writer.whole()
    return Whole(answer)


async def _load_or_unload(
    service: Services, data: GenerateRequest | OllamaChatRequest, call: Call
) -> ASGIApp:
    """An empty request loads the model, or lets it go where keep_alive is 0."""
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
        return Whole(line | {"done": True, "done_reason": "unload"})
    async with service.models.use(data.model, call) as (entry, _):
        if seconds is not None:
            entry.keep(seconds)
    line |= {
        "done": True,
        "done_reason": "load",
        "total_duration": int((time.monotonic() - began) * 1e9) or 1,
    }
    return Whole(line)


@post("/api/generate", status_code=200)
async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
    """Continue a prompt."""
    data = await read_json(request, GenerateRequest)
    return await _serve(request, data, empty=not data.prompt and not data.images and not data.suffix)


@post("/api/chat", status_code=200)
async def chat(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer a conversation."""
    data = await read_json(request, OllamaChatRequest)
    return await _serve(request, data, empty=not data.messages)


HANDLERS = [generate, chat]
