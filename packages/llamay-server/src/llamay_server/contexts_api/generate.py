"""POST /v1/contexts/{id}/generate: continuing a context, with one choice or with several at once."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

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
    prompt_end,
)
from llamay_server.contexts_api.reading import prefill_more
from llamay_server.contexts_api.routes import child_of, named_of
from llamay_server.contexts_api.schema import GenerateFromContext
from llamay_server.engine.blocking import release
from llamay_server.engine.formats import answer_format, reader
from llamay_server.http.answers import StreamedAnswer, WholeAnswer
from llamay_server.http.bodies import read_json
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.exchange import Exchange, exchange_of
from llamay_server.http.frames import sse
from llamay_server.http.route_description import EVENTS, described
from llamay_server.openai.objects import usage
from llamay_server.openai.tools import openai_choice, openai_tools
from llamay_server.pipeline.constraints import output_constraint
from llamay_server.pipeline.delivery import Delivery, generation_request, stop_list
from llamay_server.pipeline.events import ChoiceEnd, TextDelta
from llamay_server.pipeline.prefill import forks
from llamay_server.pipeline.run import Run
from llamay_server.pipeline.sampling import sampling_options
from llamay_server.pipeline.totals import Totals
from llamay_server.services import Services, services

if TYPE_CHECKING:
    from llamay_models.answers import Reader
    from llamay_server.chat.tools import Toolbox
    from llamay_server.contexts.registry import ContextWrite, NamedContext
    from llamay_server.engine.protocol import Context, Model


class _Choices:
    """The choices of one request: their parsers, their answers so far, and their log-probabilities."""

    def __init__(self, parsers: list[Reader]) -> None:
        self._parsers = parsers
        self.answers: list[dict[str, Any]] = [
            {"index": i, "text": "", "token_ids": []} for i in range(len(parsers))
        ]
        self.sums = [[0.0, 0] for _ in parsers]
        """The sum of the log-probabilities of each choice's tokens, and their number."""

    def parse(self, event: TextDelta | ChoiceEnd) -> Iterator[Event]:
        """Yield the parsed events of a run's event, and add them to its choice."""
        parser, sums = self._parsers[event.index], self.sums[event.index]
        if isinstance(event, ChoiceEnd):
            items = parser.finish(event.reason, event.stop_sequence)
        else:
            for score in event.scores:
                sums[0] += score.logprob
                sums[1] += 1
            items = parser.feed(event.text, (), event.tokens)
        for item in items:
            _add(self.answers[item.index], item)
            yield item


class _Generating:
    """One request to continue a context: its choices, and which of them becomes the context."""

    def __init__(
        self,
        service: Services,
        named: NamedContext,
        data: GenerateFromContext,
        exchange: Exchange,
        model: Model,
    ) -> None:
        self.service, self.named, self.data = service, named, data
        self.exchange, self.model = exchange, model
        self.n = data.n or 1
        if self.n > service.config.max_n:
            raise invalid(f"n: at most {service.config.max_n}", "n")
        if data.choose and self.n == 1:
            raise invalid("choose: it needs n to be at least 2", "choose")
        self.request = generation_request(
            data,
            sampling_options(data, model),
            max_tokens=data.max_tokens,
            stop=stop_list(data.stop),
            logprobs=0 if data.choose else None,
        )
        self.constraint = output_constraint(data, data.response_format)
        self.toolbox: Toolbox = openai_choice(
            data.tool_choice, openai_tools(data.tools), data.parallel_tool_calls
        )
        self.written = answer_format(model.info.chat_template)
        self.toolbox.constraint(
            self.written.name, self.constraint
        )  # refuses an impossible constraint before the prefill
        self.keeps = data.commit is not False
        self.totals = Totals()
        if self.n > 1 and not data.choose and self.keeps:
            service.contexts.check_room(exchange.owner, self.n, self.n * len(named.context))

    async def events(self) -> AsyncGenerator[Event | dict[str, Any], None]:
        """Yield the events of all choices, and then the complete answer as a dict."""
        service, named, data = self.service, self.named, self.data
        async with service.contexts.writing(named, "generate") as write:
            if data.prompt is not None or data.tokens is not None or data.messages is not None:
                self._cached, _ = await prefill_more(service, named, write, data, self.model, self.exchange)
            else:
                self._cached = len(write.context)
            contexts = [write.context] if self.n == 1 else forks(write.context, self.n)
            try:
                async for event in self._run(write, contexts):
                    yield event
            finally:
                if self.n > 1:
                    for context in contexts:
                        if not any(context is kept for kept in self._kept):
                            release(context)

    _kept: Sequence[Context] = ()
    _cached = 0

    async def _run(
        self, write: ContextWrite, contexts: list[Context]
    ) -> AsyncGenerator[Event | dict[str, Any], None]:
        named, n = self.named, self.n
        # Behind a text that is no conversation, nobody reasons before an answer.
        written = self.written if named.messages is not None else replace(self.written, reasoning=None)
        marks = written.reasoning
        begun = written.in_reasoning(prompt_end(self.model, contexts[0].tokens))
        reasoning = None if marks is None else (*marks, begun)
        constraint = self.toolbox.constraint(written.name, self.constraint, reasoning=reasoning)
        free = constraint is None or constraint.after_reasoning
        visible = written.visible(calls=self.toolbox.active)
        request = replace(
            self.request,
            prompt=cast("Sequence[int]", contexts[0]),
            special=self.model.control_tokens(visible),
        )
        delivery = Delivery(choices=n, constraint=constraint)
        run = Run(
            self.model,
            request,
            delivery,
            self.exchange,
            self.service.admission,
            self.totals,
            contexts=contexts,
            cached=self._cached,
        )
        named.cancel = run.cancel
        parsers = [
            reader(
                self.toolbox.schemas,
                form=written.name,
                index=i,
                parallel=self.toolbox.parallel,
                thinks=marks is not None and free,
                in_reasoning=begun and free,
                reasoning=marks or THINK,
            )
            for i in range(n)
        ]
        choices = _Choices(parsers)
        start = [len(context) for context in contexts]
        run.write_with(lambda delta: b"".join(map(_frame, choices.parse(delta))))
        async with contextlib.aclosing(run.text_events()) as events:
            async for event in events:
                for item in choices.parse(event):
                    yield item
        for i, context in enumerate(contexts):
            choices.answers[i]["token_ids"] = list(context.tokens)[start[i] :]
        yield self._commit(write, contexts, choices)

    def _commit(self, write: ContextWrite, contexts: list[Context], choices: _Choices) -> dict[str, Any]:
        """Return the complete answer, after the kept choices have become the context, or contexts of their own."""
        data, named, n = self.data, self.named, self.n
        answer: dict[str, Any] = {"object": "context.generation", "choices": choices.answers}
        if not self.service.contexts.is_live(named):
            raise ApiError("conflict", f"Context {named.id} was deleted meanwhile.", retry=False)
        if n > 1 and data.choose:
            self._choose(choices, contexts, write, answer)
        elif n > 1 and self.keeps:
            children = [child_of(self.service, named, context) for context in contexts]
            for child in children:
                child.messages, child.prompt_length = write.messages, write.prompt_length
            self._kept = contexts
            for choice, child in zip(choices.answers, children, strict=True):
                choice["context"] = child.id
        elif n == 1 and self.keeps:
            write.commit()
        self.service.metrics.context_ops.labels(self.named.model, "generate").inc()
        answer["context"] = named.view() | {"busy": None}
        answer["usage"] = usage(self.totals)
        return answer

    def _choose(
        self,
        choices: _Choices,
        contexts: list[Context],
        write: ContextWrite,
        answer: dict[str, Any],
    ) -> None:
        """Make the likeliest choice the context."""
        for choice, (total, count) in zip(choices.answers, choices.sums, strict=True):
            choice["score"] = total / max(count, 1) if self.data.choose == "mean_logprob" else total
        best = max(range(self.n), key=lambda i: choices.answers[i]["score"])
        answer["chosen"] = best
        if self.keeps:
            write.commit(contexts[best])
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
            return b""  # this route delivers calls whole
        case dict():
            return sse(event, "done")


async def _frames(
    service: Services, named: NamedContext, data: GenerateFromContext, exchange: Exchange
) -> AsyncGenerator[bytes, None]:
    async with (
        service.models.use(named.model, exchange) as (_, model),
        contextlib.aclosing(_Generating(service, named, data, exchange, model).events()) as events,
    ):
        async for event in events:
            if out := _frame(event):
                yield out


@post(
    "/v1/contexts/{context_id:str}/generate",
    status_code=200,
    opt=described(body=GenerateFromContext, stream=EVENTS),
)
async def generate(request: Request[Any, Any, Any]) -> ASGIApp:
    """Continue a context, which then holds the generated tokens, unless `commit` is false."""
    service, exchange = services(request), exchange_of(request.scope)
    named = named_of(request, service, exchange)
    data = await read_json(request, GenerateFromContext)
    if data.stream:
        frames = _frames(service, named, data, exchange)
        return await StreamedAnswer.events(frames, service.config.ping_interval)
    answer: Any = None
    async with (
        service.models.use(named.model, exchange) as (_, model),
        contextlib.aclosing(_Generating(service, named, data, exchange, model).events()) as events,
    ):
        async for event in events:
            answer = event
    return WholeAnswer(answer)


HANDLERS = [generate]
