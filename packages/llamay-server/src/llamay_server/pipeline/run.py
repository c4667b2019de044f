"""One request on its way through an engine: constraint, prefill, the choices decoded together, and their numbers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from llamay_models.errors import PromptTooLongError
from llamay_server.engine.blocking import in_thread, release
from llamay_server.engine.constraint import UnsupportedConstraintError
from llamay_server.http.errors import ApiError
from llamay_server.http.refusals import from_engine
from llamay_server.observability.tracing import note
from llamay_server.pipeline.events import ChoiceEnd, PrefillProgress, TextDelta
from llamay_server.pipeline.merge import merged
from llamay_server.pipeline.prefill import forks, prefill_tenant, watched_prefill
from llamay_server.pipeline.totals import Totals

if TYPE_CHECKING:
    from llamay_models import Generation, Request, TokenScore, Usage
    from llamay_server.engine.protocol import Context, Model, Progress
    from llamay_server.http.exchange import Exchange
    from llamay_server.observability.metrics import GapHistogram
    from llamay_server.pipeline.admission import AdmissionControl
    from llamay_server.pipeline.delivery import Delivery

RunEvent = TextDelta | ChoiceEnd | PrefillProgress


class Run:
    """A request on its way through an engine.

    Args:
        model: the engine.
        request: the generation. Its prompt are token ids, or a context, which is then continued in place.
        delivery: the number of choices, and their delivery.
        exchange: the HTTP exchange, whose `phase` is kept up to date.
        admission: admits the choices, and has the metrics.
        totals: the record to which the numbers are added; a new one by default.
        contexts: for each choice a context of the caller's own, to be continued in place; the request's prompt is the
            first of them.
        cached: with `contexts`, how many of their tokens were computed before this request.

    """

    def __init__(
        self,
        model: Model,
        request: Request,
        delivery: Delivery,
        exchange: Exchange,
        admission: AdmissionControl,
        totals: Totals | None = None,
        *,
        contexts: Sequence[Context] | None = None,
        cached: int | None = None,
    ) -> None:
        self.model, self.request, self.delivery = model, request, delivery
        self.exchange, self.admission = exchange, admission
        self.totals = totals if totals is not None else Totals()
        self.metrics = admission.metrics
        self.generations: list[Generation] = []
        self.deadline: float | None = None
        """When the request's time is over, in `time.monotonic()` seconds; known from the submission on."""
        self._contexts, self._cached = contexts, cached
        self._owned: list[Context] = []
        self._waiting = self._running = 0
        self._decoding = False
        self._prefill_seconds = 0.0
        self._began = self._last = time.monotonic()
        self._last_of: list[float] = []
        self._gaps: GapHistogram | None = None
        self._write: Callable[[TextDelta], bytes] | None = None
        self._diverted = False

    def write_with(self, write: Callable[[TextDelta], bytes]) -> None:
        """Set the function that makes a stream's frame of a text delta.

        With a single choice, all deltas but the first are then written to the connection, past `events`, as long as the
        client reads them as fast as they come; `events` yields all others, in order. That holds for deltas that wait
        in the generation, too: a server that is behind would otherwise take the longer way and stay behind.
        """
        self._write = write

    def _take(self, text: str, tokens: tuple[int, ...], scores: tuple[TokenScore, ...]) -> bool:
        """Write a piece to the connection at once. False leaves the piece to `events`."""
        body, write, gaps = self.exchange.body, self._write, self._gaps
        if body is None or write is None or gaps is None or body.blocked:
            return False
        now = time.monotonic()
        if frame := write(TextDelta(self.delivery.first_index, text, tokens, scores)):
            body.write(frame, now)
        gaps.add(now - self._last)
        self._last = now
        return True

    async def events(self) -> AsyncGenerator[RunEvent, None]:
        """Yield the events of all choices as they happen; each ends with `ChoiceEnd`. Closing this frees everything.

        `PrefillProgress` comes only where the delivery asks for it.
        """
        request, delivery, exchange = self.request, self.delivery, self.exchange
        length, limit = len(request.prompt), self.model.info.context_length
        room = limit - length
        if room < 0 or (room == 0 and request.max_tokens != 0):
            raise PromptTooLongError(length, limit)
        self.admission.check(delivery.choices)
        self.admission.wait(delivery.choices)
        self._waiting = delivery.choices
        name = self.model.info.name
        began = self._began = time.monotonic()
        try:
            constraints = await self._compile()
            if delivery.progress and self._contexts is None:
                async with contextlib.aclosing(self._prefill_ahead()) as progress:
                    async for report in progress:
                        yield report
            exchange.phase = "queue"
            self._submit(await self._prompts(), constraints, room)
            exchange.phase = "prefill"
            self._gaps, self._last_of = self.metrics.gaps(name), [began] * delivery.choices
            choices = [self._choice(i) for i in range(len(self.generations))]
            async with contextlib.aclosing(choices[0] if len(choices) == 1 else merged(choices)) as events:
                async for event in events:
                    self._observe(event)
                    if delivery.include_stop and isinstance(event, ChoiceEnd) and event.stop_sequence:
                        yield TextDelta(event.index, event.stop_sequence)
                    yield event
            self._account()
            # The answer is complete: a client that leaves now interrupts nothing.
            exchange.phase = None
        finally:
            self._note_spent()
            for generation in self.generations:
                if generation.finish_reason is None:
                    generation.cancel()
                self.metrics.generations.labels(name, generation.finish_reason or "cancelled").inc()
            for context in self._owned:
                release(context)
            self.admission.wait(-self._waiting)
            self.admission.run(-self._running)
            self._waiting = self._running = 0
            self.metrics.end_to_end.labels(name).observe(time.monotonic() - exchange.started)

    def text_events(self) -> AsyncGenerator[TextDelta | ChoiceEnd, None]:
        """Return the `events` of a delivery without progress."""
        return cast("AsyncGenerator[TextDelta | ChoiceEnd, None]", self.events())

    # -- numbers

    def cached_tokens(self) -> int:
        """Return the number of the prompt's tokens that were computed before."""
        if self._cached is not None:
            return self._cached
        if self._owned:
            return self._owned[0].cached_tokens
        return self.generations[0].usage.cached_tokens if self.generations else 0

    def totals_now(self) -> Totals:
        """Return the numbers so far."""
        usages = [generation.usage for generation in self.generations]
        return Totals(
            prompt_tokens=usages[0].prompt_tokens if usages else 0,
            cached_tokens=self.cached_tokens(),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            prefill=self._prefill_seconds,
            decode=max(0.0, time.monotonic() - self._began - self._prefill_seconds),
        )

    def usage(self) -> Usage:
        """Return the first choice's token counts so far."""
        return self.generations[0].usage

    def cancel(self) -> None:
        """Cancel all choices, from outside."""
        for generation in self.generations:
            generation.cancel()

    def _account(self) -> None:
        """Add the numbers of a run that is complete to the totals, the metrics and the trace."""
        totals, name, began = self.totals, self.model.info.name, self._began
        usages = [generation.usage for generation in self.generations]
        prompt = len(self.request.prompt) if self._contexts is None else usages[0].prompt_tokens
        cached = self.cached_tokens()
        generated = sum(usage.completion_tokens for usage in usages)
        totals.prompt_tokens += prompt
        totals.cached_tokens += cached
        totals.written_tokens += prompt - cached if self.request.reuse else 0
        totals.completion_tokens += generated
        totals.decode = max(0.0, time.monotonic() - began - totals.prefill)
        decode = max(0.0, time.monotonic() - began - self._prefill_seconds)
        self.metrics.prompt_seconds.labels(name).inc(self._prefill_seconds)
        self.metrics.generated_seconds.labels(name).inc(decode)
        longest = prompt + max((usage.completion_tokens for usage in usages), default=0)
        self.metrics.most_tokens = max(self.metrics.most_tokens, longest)
        self.metrics.prompt_tokens.labels(name).inc(prompt)
        self.metrics.cached_tokens.labels(name).inc(cached)
        self.metrics.generated_tokens.labels(name).inc(generated)
        note(
            request__model=name,
            usage__input_tokens=prompt,
            usage__cache_read__input_tokens=cached,
            usage__output_tokens=generated,
        )

    def _note_spent(self) -> None:
        """Add what the generations took, also those that are cut short, to the exchange."""
        if self.generations:
            now, spent = self.totals_now(), self.exchange.spent
            spent.prompt_tokens += now.prompt_tokens
            spent.cached_tokens += now.cached_tokens
            spent.completion_tokens += now.completion_tokens

    # -- before the generations

    async def _compile(self) -> list[Any]:
        """Return a token constraint for each choice."""
        wanted, n = self.delivery.constraint, self.delivery.choices
        if wanted is None:
            return [None] * n
        self.exchange.phase = "compile"

        def compile_all(_: Progress) -> tuple[tuple[str, ...], list[Any]]:
            compiled = self.model.compile(wanted)
            return compiled.warnings, [compiled.matcher() for _ in range(n)]

        try:
            warnings, matchers = await in_thread(compile_all)
        except UnsupportedConstraintError as e:
            message = f"{wanted.param}: {e}"
            raise ApiError("invalid", message, param=wanted.param, code="unsupported_constraint") from e
        if warnings:
            self.exchange.warn(f"{wanted.param}: not enforced: {'; '.join(warnings)}")
        return matchers

    async def _prompts(self) -> Sequence[Sequence[int] | Context]:
        """Return a prompt for each choice. Several choices fork one context, so that their prompt is computed once."""
        if self._contexts is not None:
            return self._contexts
        prompt = self.request.prompt
        if self.delivery.choices == 1:
            return [cast("Sequence[int]", prompt)]
        self.exchange.phase = "prefill"
        return self._branches(await in_thread(self._prefill(self._prompt_tokens())))

    def _prompt_tokens(self) -> Sequence[int]:
        prompt = self.request.prompt
        if not isinstance(prompt, list | tuple):
            raise TypeError(
                "a context has been prefilled; several choices from it need one fork each, in `contexts`"
            )
        return prompt

    def _prefill(self, tokens: Sequence[int]) -> Callable[[Progress], Context]:
        tenant = prefill_tenant(self.request.tenant, reuse=self.request.reuse)
        return lambda progress: self.model.context(tokens, tenant=tenant, progress=progress)

    def _branches(self, base: Context) -> list[Context]:
        self._owned.append(base)
        if self.delivery.choices == 1:
            return [base]
        branches = forks(base, self.delivery.choices)
        self._owned += branches
        return branches

    async def _prefill_ahead(self) -> AsyncGenerator[PrefillProgress, None]:
        """Prefill the prompt before its generations are submitted, which then continue it, and yield the progress."""
        tokens = self._prompt_tokens()
        self.exchange.phase = "prefill"
        made: list[Context] = []
        async with contextlib.aclosing(
            watched_prefill(self._prefill(tokens), made, len(tokens), index=self.delivery.first_index)
        ) as progress:
            async for report in progress:
                yield report
        self._contexts = self._branches(made[0])
        self._cached = made[0].cached_tokens

    def _submit(self, prompts: Sequence[Any], constraints: Sequence[Any], room: int) -> None:
        """Submit one generation for each choice: the request with the choice's prompt, seed and constraint."""
        request, now = self.request, time.monotonic()
        if request.timeout is not None:
            self.deadline = now + request.timeout
        sampling = request.sampling
        assert sampling is not None
        wanted = room if request.max_tokens is None else request.max_tokens
        for i, (prompt, constraint) in enumerate(zip(prompts, constraints, strict=True)):
            one = replace(
                request,
                prompt=prompt,
                tenant=request.tenant if isinstance(prompt, list | tuple) else "",  # a context has its own
                sampling=replace(sampling, seed=((sampling.seed or 0) + i) % 2**64),
                max_tokens=min(wanted, max(room, 0)),
                constraint=constraint,
            )
            self.generations.append(self.model.submit(one))

    # -- while they run

    def _observe(self, event: TextDelta | ChoiceEnd) -> None:
        """Observe when an event comes: the first one ends the prefill, the others have a time since the one before."""
        now, exchange = time.monotonic(), self.exchange
        slot = event.index - self.delivery.first_index
        alone = len(self.generations) == 1
        if not self._decoding:
            self._decoding = True
            exchange.phase = "decode"
            self._prefill_seconds = now - self._began
            if exchange.spent.first_token is None:
                exchange.spent.first_token = now
            self.totals.prefill += self._prefill_seconds
            self.metrics.first_token.labels(self.model.info.name).observe(now - exchange.started)
            if alone and self._write is not None:
                self._diverted = True
                self.generations[0].divert(self._take)
        elif isinstance(event, TextDelta) and self._gaps is not None:
            self._gaps.add(now - (max(self._last_of[slot], self._last) if alone else self._last_of[slot]))
        self._last_of[slot] = now

    async def _choice(self, slot: int) -> AsyncGenerator[TextDelta | ChoiceEnd, None]:
        generation, index = self.generations[slot], slot + self.delivery.first_index
        first = True
        async for piece in generation:
            if first:
                first = False
                self._started()
            # This runs when all earlier events have been sent, so that a piece may be written behind them.
            if self._diverted and self._take(piece.text, piece.tokens, piece.logprobs):
                continue
            yield TextDelta(index, piece.text, piece.tokens, piece.logprobs)
        match generation.finish_reason:
            case "error":
                raise from_engine(generation.error or RuntimeError("the engine gave no reason"))
            case "cancelled":
                raise ApiError(
                    "conflict", "The generation was ended because its context is gone.", retry=False
                )
            case reason:
                if first:
                    self._started()
                by = "length" if reason in ("length", "timeout") else "stop"
                yield ChoiceEnd(index, by, generation.stop_sequence)

    def _started(self) -> None:
        """Count a choice as running, which has waited until now."""
        self._waiting -= 1
        self._running += 1
        self.admission.wait(-1)
        self.admission.run(1)


def merged_events(runs: Sequence[Run]) -> AsyncGenerator[RunEvent, None]:
    """Return the events of several runs at once, as they happen."""
    return runs[0].events() if len(runs) == 1 else merged([run.events() for run in runs])
