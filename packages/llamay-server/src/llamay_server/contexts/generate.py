"""POST /v1/contexts/{id}/generate: going on from a context, in one way or in several at once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from litestar import Request, post
from litestar.types import ASGIApp

from llamay_models.answers import (
    THINK,
    ArgumentsPart,
    CallBegun,
    Event,
    Finished,
    Reasoning,
    Text,
    ToolCall,
    begins_thought,
    format_of,
)
from llamay_server.chat.tools import Toolbox, openai_choice, openai_tools
from llamay_server.contexts.registry import Named, Writer
from llamay_server.contexts.routes import GenerateFromContext, child_of, named_of, read_more
from llamay_server.engine.formats import envelope, reader, reasoning_of
from llamay_server.engine.protocol import Context, Model
from llamay_server.http.answers import Streamed, Whole, read_json, release, sse
from llamay_server.http.call import Call, call_of
from llamay_server.http.errors import ApiError, invalid
from llamay_server.openai.objects import usage
from llamay_server.pipeline.run import Delta, End, Run, Spec, Totals
from llamay_server.pipeline.sampling import bound, sampling, stop_list, time_limit, urgency
from llamay_server.services import Services, services

PING = b":\n\n"
_TAIL = 16
"""Tokens in which the mark that opens a thought is found at the end of a context."""


class _Generating:
    """One generate request on a context: candidates, their texts, and which of them stays."""

    def __init__(
        self, service: Services, named: Named, data: GenerateFromContext, call: Call, model: Model
    ) -> None:
        self.service, self.named, self.data, self.call, self.model = service, named, data, call, model
        self.n = data.n or 1
        if self.n > service.config.max_n:
            raise invalid(f"n: at most {service.config.max_n}", "n")
        if data.choose and self.n == 1:
            raise invalid("choose: it needs n to be at least 2", "choose")
        self.options = sampling(data, model)
        self.bound = bound(data, data.response_format)
        self.stop = stop_list(data.stop)
        self.box: Toolbox = openai_choice(
            data.tool_choice, openai_tools(data.tools), data.parallel_tool_calls
        )
        self.form = format_of(model.info.chat_template)
        self.box.bound(self.form, self.bound)  # what cannot be bound is refused before anything is read
        self.keeps = data.commit is not False
        self.totals = Totals()
        if self.n > 1 and not data.choose and self.keeps:
            service.contexts.check_room(call.owner, self.n, self.n * len(named.context))

    async def events(self) -> AsyncGenerator[Event | dict[str, Any], None]:
        """Events of all choices, then the complete answer as a dict."""
        service, named, data = self.service, self.named, self.data
        async with service.contexts.writing(named, "generate") as writer:
            if data.prompt is not None or data.tokens is not None or data.messages is not None:
                self._known, _ = await read_more(service, named, writer, data, self.model, self.call)
            else:
                self._known = len(writer.context)
            contexts = [writer.context] if self.n == 1 else writer.context.fork(self.n)
            try:
                async for event in self._run(writer, contexts):
                    yield event
            finally:
                if self.n > 1:
                    for context in contexts:
                        if not any(context is kept for kept in self._kept):
                            release(context)

    _kept: Sequence[Context] = ()
    _known = 0

    async def _run(
        self, writer: Writer, contexts: list[Context]
    ) -> AsyncGenerator[Event | dict[str, Any], None]:
        data, named, n = self.data, self.named, self.n
        limit = data.max_tokens
        known, marks = envelope(self.form), None
        if named.messages is not None:
            marks = reasoning_of(self.model.info.chat_template)
        tail = list(contexts[0].tokens)[-_TAIL:]
        begun = begins_thought(self.model.decode(tail), marks)
        thoughts = None if marks is None else (*marks, begun)
        bound = self.box.bound(self.form, self.bound, thoughts=thoughts)
        free = bound is None or bound.kind in ("tools", "after_thoughts")
        spec = Spec(
            prompt=contexts[0],
            contexts=contexts,
            cached=self._known,
            sampling=self.options,
            n=n,
            max_tokens=None if limit is None or limit < 0 else limit,
            stop=self.stop,
            bound=bound,
            special=known.visible(marks, calls=self.box.active),
            ignore_eos=bool(data.ignore_eos),
            priority=urgency(data),
            timeout=time_limit(data),
            logprobs=0 if data.choose else None,
        )
        run = Run(self.model, spec, self.call, self.service.admission, self.totals)
        named.cancel = run.cancel
        thinks = marks is not None and free
        parsers = [
            reader(
                self.box,
                form=self.form,
                index=i,
                thinks=thinks,
                in_thought=begun and free,
                reasoning=marks or THINK,
            )
            for i in range(n)
        ]
        choices: list[dict[str, Any]] = [{"index": i, "text": "", "token_ids": []} for i in range(n)]
        sums = [[0.0, 0] for _ in range(n)]
        start = [len(context) for context in contexts]

        def parsed(event: Delta | End) -> Iterator[Event]:
            parser = parsers[event.index]
            if isinstance(event, End):
                items = parser.finish(event.reason, event.stop_sequence)
            else:
                for score in event.scores:
                    sums[event.index][0] += score.logprob
                    sums[event.index][1] += 1
                items = parser.feed(event.text, (), event.tokens)
            for item in items:
                _add(choices[item.index], item)
                yield item

        run.shape(lambda delta: b"".join(map(_frame, parsed(delta))))
        async with contextlib.aclosing(run.events()) as events:
            async for event in events:
                for item in parsed(event):
                    yield item
        for i, context in enumerate(contexts):
            choices[i]["token_ids"] = list(context.tokens)[start[i] :]
        answer: dict[str, Any] = {"object": "context.generation", "choices": choices}
        if not self.service.contexts.is_live(named):
            raise ApiError("conflict", f"Context {named.id} was deleted meanwhile.", retry=False)
        if n > 1 and data.choose:
            self._choose(choices, sums, contexts, writer, answer)
        elif n > 1 and self.keeps:
            children = [child_of(self.service, named, context) for context in contexts]
            for child in children:
                child.messages, child.prompt_length = writer.messages, writer.prompt_length
            self._kept = contexts
            for choice, child in zip(choices, children, strict=True):
                choice["context"] = child.id
        elif n == 1 and self.keeps:
            writer.commit()
        self.service.metrics.context_ops.labels(self.named.model, "generate").inc()
        answer["context"] = named.view() | {"busy": None}
        answer["usage"] = usage(self.totals)
        yield answer

    def _choose(
        self,
        choices: list[dict[str, Any]],
        sums: list[list[float]],
        contexts: list[Context],
        writer: Writer,
        answer: dict[str, Any],
    ) -> None:
        for choice, (total, count) in zip(choices, sums, strict=True):
            choice["score"] = total / max(count, 1) if self.data.choose == "mean_logprob" else total
        best = max(range(self.n), key=lambda i: choices[i]["score"])
        answer["chosen"] = best
        if self.keeps:
            writer.commit(contexts[best])
            self._kept = [contexts[best]]


def _add(choice: dict[str, Any], event: Event) -> None:
    match event:
        case Text():
            choice["text"] += event.text
        case Reasoning():
            choice["reasoning"] = choice.get("reasoning", "") + event.text
        case ToolCall():
            call = {
                "id": event.id,
                "type": "function",
                "function": {"name": event.name, "arguments": event.arguments},
            }
            choice.setdefault("tool_calls", []).append(call)
        case Finished():
            choice["finish_reason"], choice["stop_sequence"] = event.reason, event.stop_sequence


def _frame(event: Event | dict[str, Any]) -> bytes:
    match event:
        case Text():
            told = {"index": event.index, "text": event.text, "token_ids": list(event.tokens)}
            return sse(told, "text") if event.text else b""
        case Reasoning():
            return sse({"index": event.index, "text": event.text}, "reasoning")
        case ToolCall():
            one: dict[str, Any] = {}
            _add(one, event)
            return sse({"index": event.index, **one["tool_calls"][0]}, "tool_call")
        case Finished():
            return sse({"index": event.index, "finish_reason": event.reason}, "finish")
        case CallBegun() | ArgumentsPart():
            return b""  # calls are told whole here
        case dict():
            return sse(event, "done")


async def _frames(
    service: Services, named: Named, data: GenerateFromContext, call: Call
) -> AsyncGenerator[bytes, None]:
    async with (
        service.models.use(named.model, call) as (_, model),
        contextlib.aclosing(_Generating(service, named, data, call, model).events()) as events,
    ):
        async for event in events:
            if out := _frame(event):
                yield out


@post("/v1/contexts/{context_id:str}/generate", status_code=200)
async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
    """Go on from a context: it then holds what was generated, unless `commit` is false."""
    service, call = services(request), call_of(request.scope)
    named = named_of(request, service, call)
    data = await read_json(request, GenerateFromContext)
    if data.stream:
        frames = _frames(service, named, data, call)
        return await Streamed.start(
            frames, media="text/event-stream", ping=PING, interval=service.config.ping_interval
        )
    answer: Any = None
    async with (
        service.models.use(named.model, call) as (_, model),
        contextlib.aclosing(_Generating(service, named, data, call, model).events()) as events,
    ):
        async for event in events:
            answer = event
    return Whole(answer)


HANDLERS = [generate]
