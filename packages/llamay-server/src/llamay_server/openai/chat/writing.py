"""A chat completion as OpenAI's clients read it: one object, or chunks."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from llamay_models.answers import ArgumentsPart, CallBegun, Event, Finished, Reasoning, Text, ToolCall
from llamay_server.http.frames import EventTemplate, sse
from llamay_server.openai.logprobs import chat_logprobs, prompt_logprobs
from llamay_server.openai.objects import DONE, prefill_timings, prompt_progress, timings, usage
from llamay_server.pipeline.admission import run_on_texts
from llamay_server.pipeline.events import PrefillProgress

if TYPE_CHECKING:
    from llamay_models import TokenScore
    from llamay_server.chat.run import ChatRun
    from llamay_server.openai.chat.schema import ChatCompletionRequest


class ChatWriter:
    """Writes one chat completion, whole or as chunks."""

    def __init__(self, run: ChatRun, name: str, data: ChatCompletionRequest) -> None:
        self.run, self.data = run, data
        self.legacy = bool(data.functions) and not data.tools
        self.base = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": name}
        self.logprobs = run.request.logprobs
        self._templates: dict[int, EventTemplate] = {}
        self.base["system_fingerprint"] = f"llamay-{run.model.info.fingerprint}"

    async def whole(self) -> dict[str, Any]:
        """Return the complete object."""
        run, n = self.run, self.run.request.delivery.choices
        texts: list[list[str]] = [[] for _ in range(n)]
        reasoning: list[list[str]] = [[] for _ in range(n)]
        calls: list[list[ToolCall]] = [[] for _ in range(n)]
        scores: list[list[Any]] = [[] for _ in range(n)]
        tokens: list[list[int]] = [[] for _ in range(n)]
        ends: list[str] = ["stop"] * n
        scored = await self._score_prompt()
        async with contextlib.aclosing(run.answer_events()) as events:
            async for event in events:
                match event:
                    case Text():
                        texts[event.index].append(event.text)
                        scores[event.index] += event.scores
                        tokens[event.index] += event.tokens
                    case Reasoning():
                        reasoning[event.index].append(event.text)
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
            if reasoned := "".join(reasoning[i]):
                message["reasoning_content"] = message["reasoning"] = reasoned
            if calls[i] and self.legacy:
                message["function_call"] = {"name": calls[i][0].name, "arguments": calls[i][0].arguments}
            elif calls[i]:
                message["tool_calls"] = [_call_object(c) for c in calls[i]]
            choice: dict[str, Any] = {
                "index": i,
                "message": message,
                "logprobs": chat_logprobs(scores[i], run.model) if self.logprobs is not None else None,
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
        """Return the scores of the prompt's own tokens, where the request asks for them."""
        run, top = self.run, self.data.prompt_logprobs
        if top is None:
            return None
        tokens = (await run.prepare()).prompt.tokens
        return await run_on_texts(
            run.admission, run.exchange, lambda progress: run.model.score(tokens, top=top, progress=progress)
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
        """Return one choice's chunk; `more` are members of the choice, and `beside` members of the chunk."""
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

    def _template(self, index: int) -> EventTemplate:
        """Return the chunks of a choice's text, which differ in nothing but the text."""
        if index not in self._templates:
            self._templates[index] = EventTemplate(lambda text: self._object(index, {"content": text}))
        return self._templates[index]

    @property
    def plain(self) -> bool:
        """Whether chunks of text have nothing but the text."""
        data = self.data
        asked = data.timings_per_token or data.return_token_ids
        return self.logprobs is None and not asked

    @property
    def with_usage(self) -> bool:
        """Whether the client asked for a last chunk with usage."""
        options = self.data.stream_options
        return bool(options and options.include_usage)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Yield the chunks as server-sent events."""
        run = self.run
        opened: set[int] = set()

        def frame(event: Event | PrefillProgress) -> bytes:
            out = self._progress(event) if isinstance(event, PrefillProgress) else self._frame(event)
            if event.index in opened:
                return out
            opened.add(event.index)
            return self._chunk(event.index, {"role": "assistant", "content": None}) + out

        run.write_with(frame)
        async with contextlib.aclosing(run.events()) as events:
            async for event in events:
                if out := frame(event):
                    yield out
        if self.with_usage:
            last: dict[str, Any] = {**self.base, "object": "chat.completion.chunk", "choices": []}
            yield sse({**last, "usage": usage(run.totals), **self._timings()}) + DONE
        else:
            yield DONE

    def _progress(self, report: PrefillProgress) -> bytes:
        told = {"prompt_progress": prompt_progress(report)}
        if self.data.timings_per_token:
            told["timings"] = prefill_timings(report)
        return self._chunk(report.index, {}, beside=told)

    def _timings(self) -> dict[str, Any]:
        """Return the member of a chunk for the times so far, where every chunk is to have it."""
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
                    return self._template(event.index).fill(event.text)
                if self.logprobs is not None:
                    more["logprobs"] = chat_logprobs(event.scores, self.run.model)
                if self.data.return_token_ids:
                    more["token_ids"] = list(event.tokens)
                return self._chunk(event.index, {"content": event.text}, beside=self._timings(), **more)
            case Reasoning():
                delta = {"reasoning_content": event.text, "reasoning": event.text}
                return self._chunk(event.index, delta, beside=self._timings())
            case CallBegun():
                return self._call_chunk(event, {"name": event.name, "arguments": ""})
            case ArgumentsPart():
                return self._call_chunk(event, {"arguments": event.text})
            case ToolCall():
                return b"".join(map(self._frame, event.untold()))
            case Finished():
                return self._chunk(event.index, {}, self._reason(event.reason), beside=self._timings())

    def _call_chunk(self, event: CallBegun | ArgumentsPart, function: dict[str, str]) -> bytes:
        """Return the beginning of a call, with its id, or a part of its arguments."""
        if self.legacy:
            return self._chunk(event.index, {"function_call": function})
        delta: dict[str, Any] = {"index": event.number}
        if isinstance(event, CallBegun):
            delta |= {"id": event.id, "type": "function"}
        return self._chunk(event.index, {"tool_calls": [{**delta, "function": function}]})


def _call_object(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
