"""Answers as Ollama's clients read them: lines of NDJSON, or one object."""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from llamay_models.answers import Event, Finished, Reasoning, Text, ToolCall
from llamay_server.http.frames import ndjson
from llamay_server.openai.logprobs import chat_logprobs

if TYPE_CHECKING:
    from llamay_server.chat.run import ChatRun
    from llamay_server.http.exchange import Exchange
    from llamay_server.pipeline.totals import Totals


def now() -> str:
    """Return the time as Ollama writes it: RFC 3339, UTC, nanoseconds."""
    seconds, nanos = divmod(time.time_ns(), 1_000_000_000)
    return (
        datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
        + f".{nanos:09d}Z"
    )


class OllamaWriter:
    """Writes NDJSON lines, or their sum as one object."""

    def __init__(self, run: ChatRun, name: str, *, chat: bool, load: float) -> None:
        """`chat` is true for /api/chat and false for /api/generate; `load` is the seconds of loading the model."""
        self.run, self.name, self.chat, self.load = run, name, chat, load
        self.tokens: list[int] = []
        self.keeps_context = not chat

    def _line(self, **content: Any) -> dict[str, Any]:
        return {"model": self.name, "created_at": now(), **content}

    def _part(self, text: str = "", **more: Any) -> dict[str, Any]:
        if self.chat:
            return {"message": {"role": "assistant", "content": text, **more}}
        return {"response": text, **more}

    def _event_line(self, event: Event) -> dict[str, Any] | None:
        """Return the line of an event, where it has one."""
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
        """Yield the lines as they go out."""

        def frame(event: Event) -> bytes:
            line = self._event_line(event)
            return b"" if line is None else ndjson(line)

        self.run.write_with(frame)
        async with contextlib.aclosing(self.lines()) as lines:
            async for line in lines:
                yield ndjson(line)

    async def lines(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the lines as dicts."""
        end = Finished(0, "stop")
        async with contextlib.aclosing(self.run.answer_events()) as events:
            async for event in events:
                if isinstance(event, Finished):
                    end = event
                elif (line := self._event_line(event)) is not None:
                    yield line
        yield self._line(
            **self._part(),
            done=True,
            done_reason="length" if end.reason == "length" else "stop",
            **self._numbers(),
        )

    def _numbers(self) -> dict[str, Any]:
        totals = self.run.totals
        numbers: dict[str, Any] = durations(totals, self.load, self.run.exchange)
        if self.keeps_context and self.run.rendered is not None:
            numbers["context"] = [*self.run.rendered.prompt.tokens, *self.tokens]
        if self.run.rendered is not None and self.run.rendered.dropped:
            numbers["truncated"] = True
        return numbers

    async def whole(self) -> dict[str, Any]:
        """Return all lines as one object."""
        texts: list[str] = []
        reasoning: list[str] = []
        calls: list[Any] = []
        scores: list[Any] = []
        last: dict[str, Any] = {}
        async with contextlib.aclosing(self.lines()) as lines:
            async for line in lines:
                part = line["message"] if self.chat else line
                texts.append(part["content"] if self.chat else part["response"])
                reasoning.append(part.get("thinking", ""))
                calls += part.get("tool_calls", [])
                scores += line.get("logprobs", [])
                last = line
        more: dict[str, Any] = {}
        if reasoned := "".join(reasoning):
            more["thinking"] = reasoned
        if calls:
            more["tool_calls"] = calls
        last |= self._part("".join(texts), **more)
        if self.run.request.logprobs is not None:
            last["logprobs"] = scores
        return last


def durations(totals: Totals, load: float, exchange: Exchange) -> dict[str, int]:
    """Return the token counts, and the times in nanoseconds, without those that are zero."""
    values = {
        "total_duration": time.monotonic() - exchange.started,
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
