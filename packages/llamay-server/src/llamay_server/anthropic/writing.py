"""A message as Anthropic's clients read it: one object, or events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

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
from llamay_server.anthropic.cache import last_breakpoint, marked_tokens, miss_reason
from llamay_server.chat.prompt_history import PromptHistory, SeenPrompt, compare
from llamay_server.http.frames import sse

if TYPE_CHECKING:
    from llamay_server.anthropic.schema import MessagesRequest
    from llamay_server.chat.run import ChatRun

# Clients return the signature with the text of the reasoning. The server reads the text alone.
SIGNATURE = "bGxhbWF5"


class MessageWriter:
    """Writes one message, whole or as events."""

    def __init__(self, run: ChatRun, name: str, data: MessagesRequest, prompts: PromptHistory) -> None:
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

    async def _diagnose(self) -> None:
        """Find where the marked part of the prompt ends, and why the prompt missed the cache where the request asks."""
        run, asked = self.run, self.data.diagnostics
        if self.mark is None and asked is None:
            return
        rendered = await run.prepare()
        if self.mark is not None:
            self.marked = await asyncio.to_thread(marked_tokens, run, self.data, self.mark[0])
        if asked is None:
            return
        tokens = rendered.prompt.tokens
        now = SeenPrompt(run.exchange.owner, run.exchange.model, run.request, len(tokens))
        reason = None
        if asked.previous_message_id is not None:
            before = self.prompts.find(asked.previous_message_id, run.exchange.owner)
            if before is None:
                reason = {"type": "previous_message_not_found"}
            else:
                reason = miss_reason(await asyncio.to_thread(compare, before, now, run.model, tokens))
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
        """Return the complete message."""
        await self._diagnose()
        end = Finished(0, "stop")
        async with contextlib.aclosing(self.run.answer_events()) as events:
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
        """Return the content as the client gets it: without the text of the reasoning where the request omits it."""
        if self.shows_thinking:
            return self.content
        return [b | {"thinking": ""} if b["type"] == "thinking" else b for b in self.content]

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Yield the message as events."""
        await self._diagnose()
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

        self.run.write_with(gathered)
        async with contextlib.aclosing(self.run.answer_events()) as events:
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
