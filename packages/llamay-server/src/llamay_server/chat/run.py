"""A chat request on its way: its prompt, its generations, and the parsed events that all dialects are written from.

All dialects take this one path, and therefore agree: the same request has the same tokens, the same usage and the same
finish reason, streamed or not, in every API.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from llamay_models.answers import Event, Finished, Reader
from llamay_server.chat.conversation import common_prefix, fit
from llamay_server.chat.framing import Framing
from llamay_server.chat.reasoning_budget import within_budget
from llamay_server.engine.blocking import release
from llamay_server.engine.formats import answer_format
from llamay_server.pipeline.events import PrefillProgress, TextDelta
from llamay_server.pipeline.prefill import forks, prefill_tenant, watched_prefill
from llamay_server.pipeline.run import Run
from llamay_server.pipeline.totals import Totals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llamay_server.chat.conversation import Rendered
    from llamay_server.chat.request import ChatRequest
    from llamay_server.engine.protocol import Context, Model, Progress
    from llamay_server.http.exchange import Exchange
    from llamay_server.pipeline.admission import AdmissionControl


class ChatRun:
    """A chat request on its way through an engine.

    Attributes:
        totals: the numbers, complete after the last event.
        rendered: the prompt, once it is rendered.
        run: the run of its generations, once they are submitted.
        resume: a context with a computed conversation that this request may continue; it is forked, never changed.
        keep_context: whether the context with prompt and answer is kept at the end, for `take_context`.
        parsers: the parser of each choice.

    """

    def __init__(
        self, model: Model, request: ChatRequest, exchange: Exchange, admission: AdmissionControl
    ) -> None:
        self.model, self.request, self.exchange, self.admission = model, request, exchange, admission
        self.totals = Totals()
        self.rendered: Rendered | None = None
        self.run: Run | None = None
        self.resume: Context | None = None
        self.keep_context = False
        self.parsers: list[Reader] = []
        self._context: Context | None = None
        self._cached: int | None = None
        self._write: Callable[[Event], bytes] | None = None

    def write_with(self, write: Callable[[Event], bytes]) -> None:
        """Set the function that makes a stream's frame of an event; see `Run.write_with`."""
        self._write = write

    async def prepare(self) -> Rendered:
        """Render the prompt in a thread: a template and a tokenizer may take long."""
        if self.rendered is None:
            self.rendered = await asyncio.to_thread(fit, self.model, self.request.conversation)
            if self.rendered.dropped:
                self.admission.metrics.truncated.labels(self.model.info.name).inc()
                self.exchange.notes["x-llamay-truncated"] = str(self.rendered.dropped)
        return self.rendered

    async def events(self) -> AsyncGenerator[Event | PrefillProgress, None]:
        """Yield the parsed events of all choices; each choice ends with `Finished`.

        `PrefillProgress` comes only where the delivery asks for it.
        """
        request, rendered = self.request, await self.prepare()
        delivery, tokens = request.delivery, rendered.prompt.tokens
        framing = Framing.of(request, rendered, answer_format(self.model.info.chat_template))
        self.parsers = [framing.parser(i) for i in range(delivery.choices)]
        generation = replace(
            request.generation, prompt=tokens, special=self.model.control_tokens(framing.visible)
        )
        delivery = replace(delivery, constraint=framing.constraint)
        contexts: Sequence[Context] | None = None
        if self.keep_context or self.resume is not None:
            async with contextlib.aclosing(self._prefill(tokens)) as progress:
                async for report in progress:
                    if delivery.progress:
                        yield report
            assert self._context is not None
            contexts = [self._context] if delivery.choices == 1 else forks(self._context, delivery.choices)
            # The engine continues contexts of its own.
            generation = replace(generation, prompt=cast("Sequence[int]", self._context))
        run = self.run = Run(
            self.model,
            generation,
            delivery,
            self.exchange,
            self.admission,
            self.totals,
            contexts=contexts,
            cached=self._cached,
        )
        budgeted = delivery.reasoning_budget is not None
        if (write := self._write) is not None and not budgeted:
            feed = self.parsers[0].feed
            run.write_with(lambda delta: b"".join(map(write, feed(delta.text, delta.scores, delta.tokens))))
        done = False
        try:
            parsed: AsyncGenerator[Event | PrefillProgress, None]
            if budgeted:
                parsed = within_budget(request, run, framing, self.parsers[0], tokens, self.totals)
            else:
                parsed = self._parsed(run)
            async with contextlib.aclosing(parsed) as events:
                async for event in events:
                    yield event
            done = True
        finally:
            if delivery.choices > 1:
                for branch in contexts or ():
                    release(branch)
            if not (done and self.keep_context) and (context := self.take_context()) is not None:
                release(context)

    def answer_events(self) -> AsyncGenerator[Event, None]:
        """Return the `events` of a delivery without progress."""
        return cast("AsyncGenerator[Event, None]", self.events())

    async def _parsed(self, run: Run) -> AsyncGenerator[Event | PrefillProgress, None]:
        async with contextlib.aclosing(run.events()) as events:
            async for event in events:
                if isinstance(event, PrefillProgress):
                    yield event
                    continue
                parser = self.parsers[event.index]
                if isinstance(event, TextDelta):
                    parsed = parser.feed(event.text, event.scores, event.tokens)
                else:
                    parsed = parser.finish(event.reason, event.stop_sequence)
                for item in parsed:
                    if isinstance(item, Finished):
                        self.totals.reasoning_tokens += parser.reasoning_tokens
                    yield item

    async def _prefill(self, tokens: list[int]) -> AsyncGenerator[PrefillProgress, None]:
        """Make a context of the prompt from the context to resume, and record the number of tokens that both share."""
        self.exchange.phase = "prefill"
        base = self.resume
        held = list(base.tokens) if base is not None else []
        same = min(common_prefix(held, tokens), len(tokens) - 1)
        generation = self.request.generation
        tenant = prefill_tenant(generation.tenant, reuse=generation.reuse)
        if base is None or same == 0:
            made: list[Context] = []

            def begin(progress: Progress) -> Context:
                return self.model.context(tokens, tenant=tenant, progress=progress)

            async with contextlib.aclosing(watched_prefill(begin, made, len(tokens))) as reports:
                async for report in reports:
                    yield report
            self._context, self._cached = made[0], made[0].cached_tokens
            return
        fork = base.fork()
        try:

            def extend(progress: Progress) -> None:
                if same < len(held):
                    fork.truncate(same)
                fork.extend(tokens[same:], progress=progress)

            async with contextlib.aclosing(watched_prefill(extend, [], len(tokens), held=same)) as reports:
                async for report in reports:
                    yield report
        except BaseException:
            release(fork)
            raise
        self._context, self._cached = fork, same

    def take_context(self) -> Context | None:
        """Return the context that holds prompt and answer, once; the caller then closes it."""
        context, self._context = self._context, None
        return context

    def prompt_usage(self) -> tuple[int, int]:
        """Return the number of the prompt's tokens, and of those computed before; known from the first event on."""
        if self.totals.prompt_tokens:
            return self.totals.prompt_tokens, self.totals.cached_tokens
        prompt = len(self.rendered.prompt.tokens) if self.rendered is not None else 0
        return prompt, self.run.cached_tokens() if self.run is not None else 0

    def context_full(self) -> bool:
        """Return whether the model's context, rather than the client's limit, ended the answer."""
        used = self.totals.prompt_tokens + self.totals.completion_tokens
        limit = self.request.generation.max_tokens
        full = used >= self.model.info.context_length
        return full and (limit is None or self.totals.completion_tokens < limit)
