"""POST /v1/chat/completions: OpenAI's chat in, one neutral request through, OpenAI's objects out."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from litestar import Request, post
from litestar.types import ASGIApp

from llamay_models.answers import ArgumentsPart, CallBegun, Event, Finished, Reasoning, Text, ToolCall
from llamay_server.chat.profile import fill, limit, opened, stops
from llamay_server.chat.run import ChatRequest, ChatRun, template_options
from llamay_server.chat.tools import openai_choice, openai_tools
from llamay_server.engine.protocol import Model
from llamay_server.http.answers import Blank, Streamed, Whole, read_json, sse
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import invalid
from llamay_server.openai.logprobs import chat_logprobs, prompt_logprobs
from llamay_server.openai.messages import read_messages
from llamay_server.openai.objects import DONE, PING, prompt_progress, reading_timings, timings, usage
from llamay_server.openai.schema import ChatCompletionRequest, ChatMessage, TextPart
from llamay_server.pipeline.run import Reading, read_through
from llamay_server.pipeline.sampling import bound, sampling, stop_list, time_limit, unsupported, urgency
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_server.engine.protocol import TokenScore
    from llamay_server.models.registry import Entry


def read_request(data: ChatCompletionRequest, model: Model, service: Services, call: Call) -> ChatRequest:
    """The neutral request. Raises a 400 for what is wrong or cannot be honoured."""
    if data.chat_template:
        raise unsupported("chat_template")
    if data.prompt_logprobs is not None and data.stream:
        raise unsupported("prompt_logprobs", "a stream does not tell them")
    if data.echo:
        raise unsupported("echo", "a chat answer does not repeat its prompt")
    if "audio" in (data.modalities or ()):
        raise unsupported("modalities", "this model writes text only")
    if data.top_logprobs is not None and not data.logprobs and data.top_logprobs > 0:
        raise invalid("top_logprobs: it needs logprobs to be true", "top_logprobs")
    if data.continue_final_message and data.add_generation_prompt:
        raise invalid(
            "continue_final_message: it cannot go with add_generation_prompt; set one",
            "continue_final_message",
        )
    messages = read_messages(data.messages)
    if not messages:
        raise invalid("messages: it is empty; send at least one message", "messages")
    ends_open = messages[-1]["role"] == "assistant"
    if ends_open and len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise invalid(
            "messages: two assistant messages at the end; which one to go on from is unclear", "messages"
        )
    if data.continue_final_message and not ends_open:
        raise invalid(
            "continue_final_message: the last message is not the assistant's", "continue_final_message"
        )
    continue_final = ends_open and not data.add_generation_prompt and data.continue_final_message is not False
    tools = openai_tools(data.tools, data.functions)
    box = openai_choice(_choice(data), tools, data.parallel_tool_calls if not data.functions else False)
    n = data.n or 1
    if n > service.config.max_n:
        raise invalid(f"n: at most {service.config.max_n} choices, not {n}", "n")
    most = data.max_completion_tokens if data.max_completion_tokens is not None else data.max_tokens
    template = template_options(data.chat_template_kwargs)
    think = data.enable_thinking
    if data.reasoning_effort is not None:
        template.setdefault("reasoning_effort", data.reasoning_effort)
        if think is None and data.reasoning_effort == "none":
            think = False
    return ChatRequest(
        messages=messages,
        sampling=sampling(data, model),
        box=box,
        bound=bound(data, data.response_format),
        n=n,
        max_tokens=None if most is None or most < 0 else most,
        stop=stop_list(data.stop),
        include_stop=bool(data.include_stop_str_in_output),
        logprobs=(data.top_logprobs or 0) if data.logprobs else None,
        ignore_eos=bool(data.ignore_eos),
        reuse=data.cache_prompt is not False
        and uses_cache(data.prompt_cache_options, _marks_prompt(data.messages)),
        priority=urgency(data),
        timeout=time_limit(data),
        tenant=service.tenant(call, data.cache_salt),
        continue_final=continue_final,
        open_turn=data.add_generation_prompt is not False,
        think=think,
        template=template,
        progress=bool(data.return_progress and data.stream),
        bind_calls=service.config.bind_calls,
        in_parts=True,
        shorten=bool(data.truncate),
    )


def uses_cache(options: Mapping[str, Any] | None, marked: bool) -> bool:
    """Whether a prompt is looked up and kept: in explicit mode only one with a breakpoint is."""
    return marked or (options or {}).get("mode") != "explicit"


def _marks_prompt(messages: Sequence[ChatMessage]) -> bool:
    parts = [part for m in messages if isinstance(m.content, list) for part in m.content]
    return any(isinstance(part, TextPart) and part.prompt_cache_breakpoint for part in parts)


def _choice(data: ChatCompletionRequest) -> Any:
    if data.tool_choice is None and data.functions and data.function_call is not None:
        return data.function_call
    return data.tool_choice


class ChatWriter:
    """Writes one chat answer, whole or as chunks."""

    def __init__(self, run: ChatRun, name: str, data: ChatCompletionRequest) -> None:
        self.run, self.data = run, data
        self.legacy = bool(data.functions) and not data.tools
        self.base = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}
        self._blanks: dict[int, Blank] = {}
        self.base["system_fingerprint"] = f"llamay-{run.model.info.fingerprint}"

    async def whole(self) -> dict[str, Any]:
        """The complete object."""
        run, n = self.run, self.run.request.n
        texts: list[list[str]] = [[] for _ in range(n)]
        thoughts: list[list[str]] = [[] for _ in range(n)]
        calls: list[list[ToolCall]] = [[] for _ in range(n)]
        scores: list[list[Any]] = [[] for _ in range(n)]
        tokens: list[list[int]] = [[] for _ in range(n)]
        ends: list[str] = ["stop"] * n
        scored = await self._score_prompt()
        async with contextlib.aclosing(run.events()) as events:
            async for event in events:
                match event:
                    case Text():
                        texts[event.index].append(event.text)
                        scores[event.index] += event.scores
                        tokens[event.index] += event.tokens
                    case Reasoning():
                        thoughts[event.index].append(event.text)
                    case ToolCall():
                        calls[event.index].append(event)
                    case Finished():
                        ends[event.index] = event.reason
        choices = []
        for i in range(n):
            text = "".join(texts[i])
            message: dict[str, Any] = {
                "role": "assistant",
                "content": None if calls[i] and not text else text,
                "refusal": None,
            }
            if thought := "".join(thoughts[i]):
                message["reasoning_content"] = message["reasoning"] = thought
            if calls[i] and self.legacy:
                message["function_call"] = {"name": calls[i][0].name, "arguments": calls[i][0].arguments}
            elif calls[i]:
                message["tool_calls"] = [_call_object(c) for c in calls[i]]
            choice: dict[str, Any] = {
                "index": i,
                "message": message,
                "logprobs": chat_logprobs(scores[i], run.model) if run.request.logprobs is not None else None,
                "finish_reason": self._reason(ends[i]),
            }
            if self.data.return_token_ids:
                choice["token_ids"] = tokens[i]
            choices.append(choice)
        out: dict[str, Any] = {
            **self.base,
            "object": "chat.completion",
            "choices": choices,
            "usage": usage(run.totals),
        }
        if scored is not None:
            out["prompt_logprobs"] = prompt_logprobs(scored, run.model)
        if self.data.timings_per_token:
            out["timings"] = timings(run.totals)
        return out

    async def _score_prompt(self) -> list[TokenScore] | None:
        """The prompt's own tokens with their probabilities, where they are asked for."""
        run, top = self.run, self.data.prompt_logprobs
        if top is None:
            return None
        tokens = (await run.prepare()).prompt.tokens
        return await read_through(
            run.admission, run.call, lambda progress: run.model.score(tokens, top=top, progress=progress)
        )

    def _reason(self, reason: str) -> str:
        return "function_call" if reason == "tool_calls" and self.legacy else reason

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        reason: str | None = None,
        *,
        beside: Mapping[str, Any] = MappingProxyType({}),
        **more: Any,
    ) -> bytes:
        """One choice's chunk; `more` is said in the choice, `beside` of the answer as a whole."""
        return sse(self._object(index, delta, reason, beside=beside, **more))

    def _object(
        self,
        index: int,
        delta: dict[str, Any],
        reason: str | None = None,
        *,
        beside: Mapping[str, Any] = MappingProxyType({}),
        **more: Any,
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason, **more}
        out: dict[str, Any] = {**self.base, "object": "chat.completion.chunk", "choices": [choice], **beside}
        if self.with_usage:
            out["usage"] = None
        return out

    def _blank(self, index: int) -> Blank:
        """The chunk of a choice's text."""
        if index not in self._blanks:
            self._blanks[index] = Blank(lambda text: self._object(index, {"content": text}))
        return self._blanks[index]

    @property
    def plain(self) -> bool:
        """Whether chunks of text tell nothing but the text."""
        data = self.data
        asked = data.timings_per_token or data.return_token_ids
        return self.run.request.logprobs is None and not asked

    @property
    def with_usage(self) -> bool:
        """Whether the client asked for a last chunk with usage."""
        options = self.data.stream_options
        return bool(options and options.include_usage)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """The chunks as server-sent events."""
        run = self.run
        opened: set[int] = set()

        def frame(event: Event | Reading) -> bytes:
            out = self._progress(event) if isinstance(event, Reading) else self._frame(event)
            if event.index in opened:
                return out
            opened.add(event.index)
            return self._chunk(event.index, {"role": "assistant", "content": None}) + out

        run.shape(frame)
        async with contextlib.aclosing(run.steps()) as events:
            async for event in events:
                if out := frame(event):
                    yield out
        if self.with_usage:
            last: dict[str, Any] = {**self.base, "object": "chat.completion.chunk", "choices": []}
            yield sse({**last, "usage": usage(run.totals), **self._timings()}) + DONE
        else:
            yield DONE

    def _progress(self, reading: Reading) -> bytes:
        told = {"prompt_progress": prompt_progress(reading)}
        if self.data.timings_per_token:
            told["timings"] = reading_timings(reading)
        return self._chunk(reading.index, {}, beside=told)

    def _timings(self) -> dict[str, Any]:
        """What a chunk says of the times so far, where each is to say it."""
        run = self.run.run
        if not self.data.timings_per_token or run is None:
            return {}
        return {"timings": timings(run.totals_now())}

    def _frame(self, event: Event) -> bytes:
        match event:
            case Text():
                if not event.text and not event.scores:
                    return b""
                more: dict[str, Any] = {}
                if self.plain:
                    return self._blank(event.index).fill(event.text)
                if self.run.request.logprobs is not None:
                    more["logprobs"] = chat_logprobs(event.scores, self.run.model)
                if self.data.return_token_ids:
                    more["token_ids"] = list(event.tokens)
                return self._chunk(event.index, {"content": event.text}, beside=self._timings(), **more)
            case Reasoning():
                thought = {"reasoning_content": event.text, "reasoning": event.text}
                return self._chunk(event.index, thought, beside=self._timings())
            case CallBegun():
                return self._call_chunk(event, {"name": event.name, "arguments": ""})
            case ArgumentsPart():
                return self._call_chunk(event, {"arguments": event.text})
            case ToolCall():
                return b"".join(map(self._frame, event.untold()))
            case Finished():
                return self._chunk(event.index, {}, self._reason(event.reason), beside=self._timings())

    def _call_chunk(self, event: CallBegun | ArgumentsPart, function: dict[str, str]) -> bytes:
        """The beginning of a call, with its id, or a part of its arguments."""
        if self.legacy:
            return self._chunk(event.index, {"function_call": function})
        delta: dict[str, Any] = {"index": event.number}
        if isinstance(event, CallBegun):
            delta |= {"id": event.id, "type": "function"}
        return self._chunk(event.index, {"tool_calls": [{**delta, "function": function}]})


def _call_object(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


async def _holding(service: Services, data: ChatCompletionRequest, call: Call) -> AsyncGenerator[bytes, None]:
    """The frames of an answer, with its model held for as long as they come."""
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        writer = _writer(service, data, call, entry, model)
        async with contextlib.aclosing(writer.frames()) as frames:
            async for frame in frames:
                yield frame


def _writer(
    service: Services, data: ChatCompletionRequest, call: Call, entry: Entry, model: Model
) -> ChatWriter:
    profile = entry.profile
    fill(data, profile)
    if data.stop is None:
        data.stop = stops(profile)
    if data.max_tokens is None and data.max_completion_tokens is None:
        data.max_tokens = limit(profile)
    chat = read_request(data, model, service, call)
    chat.messages = opened(chat.messages, profile)
    run = ChatRun(model, chat, call, service.admission)
    if data.context:
        run.resume = service.contexts.for_model(data.context, call.owner, entry.name)
    return ChatWriter(run, entry.name, data)


@post(["/v1/chat/completions", "/chat/completions"], status_code=200)
async def chat_completions(request: Request[Any, Any, Any]) -> ASGIApp:
    """Answer a conversation."""
    service, call = services(request), call_of(request.scope)
    data = await read_json(request, ChatCompletionRequest)
    if data.stream:
        frames = _holding(service, data, call)
        return await Streamed.start(
            frames, media="text/event-stream", ping=PING, interval=service.config.ping_interval
        )
    async with service.models.use(data.model, call, data.lora) as (entry, model):
        return Whole(await _writer(service, data, call, entry, model).whole())


HANDLERS = [chat_completions]
