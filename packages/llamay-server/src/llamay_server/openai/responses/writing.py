"""A response as OpenAI's clients read it: events, and the object that is complete with the last of them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any

from llamay_models.answers import ArgumentsPart, CallBegun, Event, Finished, Reasoning, Text, ToolCall
from llamay_server.chat.prompt_history import SeenPrompt, compare
from llamay_server.http.frames import sse
from llamay_server.openai.logprobs import chat_logprobs
from llamay_server.openai.objects import prompt_progress, timings
from llamay_server.openai.responses.items import seal
from llamay_server.openai.responses.reading import prewarms
from llamay_server.pipeline.events import PrefillProgress

if TYPE_CHECKING:
    from llamay_server.chat.run import ChatRun
    from llamay_server.http.errors import ApiError
    from llamay_server.openai.responses.schema import ResponsesRequest

_SEALED = "reasoning.encrypted_content"
_REASONS = {
    "model": "model_changed",
    "key": "prompt_cache_key_changed",
    "system": "input_changed",
    "messages": "input_changed",
    "tools": "tools_changed",
    "choice": "tools_changed",
    "format": "text_format_changed",
    "effort": "reasoning_effort_changed",
}


class ResponseWriter:
    """Writes one response: its events, and the object that grows with them."""

    def __init__(self, run: ChatRun, name: str, data: ResponsesRequest) -> None:
        self.run, self.data = run, data
        self.sequence = 0
        self.item: dict[str, Any] | None = None
        self.compared: SeenPrompt | None = None
        """The earlier prompt that the request asks to be compared with, where it is known."""
        self.seals = _SEALED in (data.include or ())
        text = data.text.format if data.text and data.text.format else {"type": "text"}
        reasoning, sampling = data.reasoning, run.request.generation.sampling
        self.response: dict[str, Any] = {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": int(time.time()),
            "completed_at": None,
            "status": "in_progress",
            "background": bool(data.background),
            "error": None,
            "incomplete_details": None,
            "instructions": data.instructions,
            "max_output_tokens": data.max_output_tokens,
            "max_tool_calls": data.max_tool_calls,
            "model": name,
            "output": [],
            "parallel_tool_calls": data.parallel_tool_calls is not False,
            "previous_response_id": data.previous_response_id,
            "reasoning": {
                "effort": reasoning.effort if reasoning else None,
                "summary": reasoning.summary if reasoning else None,
            },
            "service_tier": "default",
            "store": data.store is not False,
            "temperature": sampling.temperature if sampling else 1.0,
            "text": {"format": text, "verbosity": (data.text.verbosity if data.text else None) or "medium"},
            "tool_choice": data.tool_choice if data.tool_choice is not None else "auto",
            "tools": [_echo(tool) for tool in data.tools or ()],
            "top_logprobs": data.top_logprobs or 0,
            "top_p": sampling.top_p if sampling else 1.0,
            "truncation": data.truncation or "disabled",
            "usage": None,
            "user": data.user,
            "metadata": data.metadata or {},
        }

    def _event(self, kind: str, **content: Any) -> bytes:
        out = sse({"type": kind, **content, "sequence_number": self.sequence}, kind)
        self.sequence += 1
        return out

    def _where(self) -> dict[str, Any]:
        assert self.item is not None
        return {"item_id": self.item["id"], "output_index": len(self.response["output"]) - 1}

    def _usage(self) -> dict[str, Any]:
        totals = self.run.totals
        return {
            "input_tokens": totals.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": totals.cached_tokens,
                "cache_write_tokens": totals.written_tokens,
            },
            "output_tokens": totals.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": totals.reasoning_tokens},
            "total_tokens": totals.prompt_tokens + totals.completion_tokens,
        }

    def _timings(self) -> dict[str, Any]:
        run = self.run.run
        if not self.data.timings_per_token or run is None:
            return {}
        return {"timings": timings(run.totals_now())}

    def seen(self) -> SeenPrompt:
        """Return the prompt of this response, for later ones to be compared with."""
        run, exchange, rendered = self.run, self.run.exchange, self.run.rendered
        length = len(rendered.prompt.tokens) if rendered is not None else 0
        key = self.data.prompt_cache_key or ""
        return SeenPrompt(exchange.owner, exchange.model, run.request, length, key)

    async def _diagnose(self) -> None:
        """Tell why the prompt could not continue an earlier one, where the request asks for that."""
        options = self.data.prompt_cache_options
        if options is None or not options.comparison_response_id:
            return
        tokens = (await self.run.prepare()).prompt.tokens
        if self.compared is None:
            self.response["prompt_cache_diagnostics"] = {"type": "comparison_response_not_found"}
            return
        miss = await asyncio.to_thread(compare, self.compared, self.seen(), self.run.model, tokens)
        told: dict[str, Any] = {"type": "cache_hit"}
        if miss is not None:
            told = {
                "type": "cache_miss",
                "reason": _REASONS[miss.part],
                "cache_missed_tokens": miss.missed,
                "comparison_reusable_tokens": miss.common,
            }
        self.response["prompt_cache_diagnostics"] = told

    def _open(self, kind: str, item: dict[str, Any]) -> bytes:
        """Begin an item, unless the open item is of its kind and goes on."""
        if self.item is not None and self.item["type"] == kind and kind != "function_call":
            return b""
        out = self._close()
        self.item = item
        self.response["output"].append(item)
        shown = {**item, "content": []} if kind == "message" else item
        out += self._event(
            "response.output_item.added", output_index=len(self.response["output"]) - 1, item=dict(shown)
        )
        if kind == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item["content"].append(part)
            out += self._event(
                "response.content_part.added", **self._where(), content_index=0, part=dict(part)
            )
        return out

    def _close(self, status: str = "completed") -> bytes:
        """End the open item, with its whole content."""
        item = self.item
        if item is None:
            return b""
        out = b""
        index = len(self.response["output"]) - 1
        if item["type"] == "message":
            part = item["content"][0]
            scores = part["logprobs"]
            out += self._event(
                "response.output_text.done",
                **self._where(),
                content_index=0,
                text=part["text"],
                logprobs=scores,
            )
            out += self._event("response.content_part.done", **self._where(), content_index=0, part=part)
        elif item["type"] == "reasoning":
            text = item["content"][0]["text"]
            out += self._event("response.reasoning_text.done", **self._where(), content_index=0, text=text)
            if self.seals:
                item["encrypted_content"] = seal(text)
        item["status"] = status
        out += self._event("response.output_item.done", output_index=index, item=item)
        self.item = None
        return out

    def _next(self, event: Event | PrefillProgress) -> bytes:
        """Return the frames of an event; those of the first one also begin the stream."""
        out = b""
        if self.sequence == 0:
            out = self._event("response.created", response=self.response)
            out += self._event("response.in_progress", response=self.response)
        if isinstance(event, PrefillProgress):
            told = {"prompt_progress": prompt_progress(event)}
            return out + self._event("response.in_progress", response=self.response, **told)
        return out + self._frame(event)

    def _frame(self, event: Event) -> bytes:
        match event:
            case Text() if event.text or event.scores:
                item_id = f"msg_{secrets.token_hex(12)}"
                item: dict[str, Any] = {
                    "id": item_id,
                    "type": "message",
                    "role": "assistant",
                    "status": "in_progress",
                    "content": [],
                }
                out = self._open("message", item)
                assert self.item is not None
                scores: list[Any] = []
                if self.run.request.logprobs is not None:
                    scores = chat_logprobs(event.scores, self.run.model)["content"]
                part = self.item["content"][0]
                part["text"] += event.text
                part["logprobs"] += scores
                delta = {"content_index": 0, "delta": event.text, "logprobs": scores, **self._timings()}
                return out + self._event("response.output_text.delta", **self._where(), **delta)
            case Reasoning():
                content = [{"type": "reasoning_text", "text": ""}]
                item = {
                    "id": f"rs_{secrets.token_hex(12)}",
                    "type": "reasoning",
                    "summary": [],
                    "content": content,
                }
                item["status"] = "in_progress"
                out = self._open("reasoning", item)
                assert self.item is not None
                self.item["content"][0]["text"] += event.text
                return out + self._event(
                    "response.reasoning_text.delta", **self._where(), content_index=0, delta=event.text
                )
            case CallBegun():
                item = {
                    "id": f"fc_{event.id.removeprefix('call_')}",
                    "type": "function_call",
                    "call_id": event.id,
                }
                item |= {"name": event.name, "arguments": "", "status": "in_progress"}
                return self._open("function_call", item)
            case ArgumentsPart():
                return self._event(
                    "response.function_call_arguments.delta", **self._where(), delta=event.text
                )
            case ToolCall():
                out = b"".join(map(self._frame, event.untold()))
                assert self.item is not None
                self.item["arguments"] = event.arguments
                if not event.complete:
                    return out + self._close("incomplete")
                done = {"arguments": event.arguments, "name": event.name}
                out += self._event("response.function_call_arguments.done", **self._where(), **done)
                return out + self._close()
        return b""

    def _finish(self, end: Finished) -> None:
        cut = end.reason == "length" and not prewarms(self.data)
        self.response["status"] = "incomplete" if cut else "completed"
        if cut:
            self.response["incomplete_details"] = {"reason": "max_output_tokens"}
            if self.response["output"] and self.response["output"][-1]["type"] == "message":
                self.response["output"][-1]["status"] = "incomplete"
        self.response["completed_at"] = int(time.time())
        self.response["usage"] = self._usage()

    def failed(self, error: ApiError) -> bytes:
        """Return the frame that ends a stream which fails. Clients reconnect after a stream without such a frame."""
        self.response["status"] = "failed"
        self.response["error"] = {"code": error.code or "server_error", "message": error.message}
        return self._event("response.failed", response=self.response)

    async def frames(self) -> AsyncGenerator[bytes, None]:
        """Yield all events; the object is complete with the last one."""
        await self._diagnose()
        end = Finished(0, "stop")
        self.run.write_with(self._next)
        async with contextlib.aclosing(self.run.events()) as events:
            async for event in events:
                if isinstance(event, Finished):
                    end = event
                if out := self._next(event):
                    yield out
        last = self._close()
        self._finish(end)
        yield last + self._event(
            f"response.{self.response['status']}", response=self.response, **self._timings()
        )

    async def whole(self) -> dict[str, Any]:
        """Return the complete object."""
        async with contextlib.aclosing(self.frames()) as frames:
            async for _ in frames:
                pass
        return self.response


def _echo(tool: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(tool)
    if out.get("type") == "function":
        out.setdefault("strict", True)
        out.setdefault("parameters", None)
        out.setdefault("description", None)
    return out
