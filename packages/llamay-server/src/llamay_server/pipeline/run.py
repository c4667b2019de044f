"""From a prompt to events: admission, forks for several choices, the race of choices, and the numbers of it all."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from llamay_server.engine.protocol import (
    Context,
    Generation,
    Model,
    Progress,
    PromptTooLong,
    UnsupportedConstraint,
    Work,
)
from llamay_server.http.answers import in_thread, release, watched
from llamay_server.http.call import Call
from llamay_server.http.errors import ApiError, from_engine
from llamay_server.observability.metrics import Metrics, Spread
from llamay_server.observability.tracing import note
from llamay_server.pipeline.sampling import Bound

if TYPE_CHECKING:
    from llamay_server.engine.protocol import TokenScore, Usage

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Delta:
    """Text of one choice, and the tokens that made it."""

    index: int
    text: str
    tokens: tuple[int, ...] = ()
    scores: tuple[TokenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """A choice is complete: "stop" (the model or a stop string ended it) or "length"."""

    index: int
    reason: str
    stop_sequence: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a prompt of `total` tokens is read, `cached` of them without computing, after `seconds`."""

    index: int
    total: int
    cached: int
    processed: int
    seconds: float


@dataclass(slots=True)
class Spec:
    """What to run: a prompt of ids or a context to go on from, how often, and how."""

    prompt: Sequence[int] | Context
    sampling: dict[str, Any]
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    bound: Bound | None = None
    ignore_eos: bool = False
    logprobs: int | None = None
    reuse: bool = True
    tenant: str = ""
    priority: int = 0
    timeout: float | None = None
    """Seconds for all of it, also where it is submitted in parts."""
    deadline: float | None = None
    """When those are over, set with the first submission."""
    special: tuple[str, ...] = ()
    """Control tokens that are to be visible in the text."""
    include_stop: bool = False
    """Write the stop string that ends a text, too."""
    progress: bool = False
    """Tell with `Reading` how far the prompt is read."""
    first_index: int = 0
    cached: int | None = None
    """Where contexts are given: how many of their tokens were computed before this request."""
    contexts: list[Context] | None = None
    """One context for each choice, the caller's own, to go on from in place; `prompt` is then the first of them."""


@dataclass(slots=True)
class Totals:
    """The numbers of one request, over all its prompts and choices. Times are seconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    """Of the prompt, those that were computed and can be found by later requests."""
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    load: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    started: float = field(default_factory=time.monotonic)


class Admission:
    """How many generations run and wait, and when one more is too many."""

    def __init__(self, max_queue: int, max_streams: int, metrics: Metrics) -> None:
        self.max_queue, self.max_streams, self.metrics = max_queue, max_streams, metrics
        self.waiting = self.running = 0

    def check(self, n: int) -> None:
        """Refuse what would overfill the queue."""
        if self.waiting + n > self.max_queue:
            self.metrics.refused.labels("queue").inc()
            raise ApiError(
                "busy",
                f"The queue is full ({self.waiting} of {self.max_queue} requests wait); try again later.",
            )
        if self.max_streams and self.waiting + self.running + n > self.max_streams:
            self.metrics.refused.labels("streams").inc()
            raise ApiError("busy", f"{self.max_streams} generations run already; try again later.")

    def wait(self, n: int) -> None:
        """Count waiting generations (negative when they are gone)."""
        self.waiting += n
        self.metrics.waiting.set(self.waiting)

    def run(self, n: int) -> None:
        """Count running generations."""
        self.running += n
        self.metrics.running.set(self.running)


class Run:
    """One spec on its way through an engine."""

    def __init__(
        self, model: Model, spec: Spec, call: Call, admission: Admission, totals: Totals | None = None
    ) -> None:
        self.model, self.spec, self.call, self.admission = model, spec, call, admission
        self.totals = totals if totals is not None else Totals()
        self.metrics = admission.metrics
        self.generations: list[Generation] = []
        self._owned: list[Context] = []
        self._waiting = self._running = 0
        self._prefill = 0.0
        self._began = self._last = time.monotonic()
        self._gaps: Spread | None = None
        self._shape: Callable[[Delta], bytes] | None = None

    def shape(self, shape: Callable[[Delta], bytes]) -> None:
        """Say how a stream writes a piece of the one choice, so that pieces need not pass through `steps` for it.

        They do only while the client takes them as they come; all others `steps` gives as ever, and in order.
        """
        self._shape = shape

    def _take(self, text: str, tokens: tuple[int, ...], scores: tuple[TokenScore, ...]) -> bool:
        body, shape, gaps = self.call.body, self._shape, self._gaps
        if body is None or shape is None or gaps is None or body.blocked:
            return False
        now = time.monotonic()
        if frame := shape(Delta(self.spec.first_index, text, tokens, scores)):
            body.write(frame, now)
        gaps.add(now - self._last)
        self._last = now
        return True

    def events(self) -> AsyncGenerator[Delta | End, None]:
        """`steps` of a spec that does not ask for progress."""
        return cast("AsyncGenerator[Delta | End, None]", self.steps())

    async def steps(self) -> AsyncGenerator[Delta | End | Reading, None]:
        """Events of all choices as they happen; each choice ends with `End`. Closing this frees everything."""
        spec, call = self.spec, self.call
        length = len(spec.prompt)
        room = self.model.info.context_length - length
        if room < 0 or (room == 0 and spec.max_tokens != 0):
            raise PromptTooLong(length, self.model.info.context_length)
        self.admission.check(spec.n)
        self.admission.wait(spec.n)
        self._waiting = spec.n
        name = self.model.info.name
        began = self._began = time.monotonic()
        try:
            constraints = await self._compile()
            if spec.progress and spec.contexts is None:
                async with contextlib.aclosing(self._read()) as readings:
                    async for reading in readings:
                        yield reading
            call.phase = "queue"
            prompts = await self._prompts()
            now = time.monotonic()
            if spec.timeout is not None and spec.deadline is None:
                spec.deadline = now + spec.timeout
            left = None if spec.deadline is None else max(0.0, spec.deadline - now)
            for i, prompt in enumerate(prompts):
                work = Work(
                    prompt=prompt,
                    sampling=spec.sampling | {"seed": _wrap(spec.sampling.get("seed", 0) + i)},
                    max_tokens=room if spec.max_tokens is None else min(spec.max_tokens, max(room, 0)),
                    stop=spec.stop,
                    constraint=constraints[i],
                    ignore_eos=spec.ignore_eos,
                    logprobs=spec.logprobs,
                    reuse=spec.reuse,
                    tenant=spec.tenant,
                    priority=spec.priority,
                    timeout=left,
                    special=spec.special,
                )
                self.generations.append(self.model.submit(work))
            call.phase = "prefill"
            first = True
            last = [began] * spec.n
            gaps = self._gaps = self.metrics.between(name)
            alone = len(self.generations) == 1
            async with contextlib.aclosing(self._choice(0) if alone else self._merge()) as merged:
                async for event in merged:
                    now = time.monotonic()
                    slot = event.index - spec.first_index
                    if first:
                        first = False
                        call.phase = "decode"
                        self._prefill = now - began
                        self.totals.prefill += self._prefill
                        self.metrics.first_token.labels(name).observe(now - call.started)
                        if alone and self._shape is not None:
                            self.generations[0].divert(self._take)
                    elif isinstance(event, Delta):
                        gaps.add(now - (max(last[slot], self._last) if alone else last[slot]))
                    last[slot] = now
                    if spec.include_stop and isinstance(event, End) and event.stop_sequence:
                        yield Delta(event.index, event.stop_sequence)
                    yield event
            self._account(began)
            # Nothing is left to interrupt: a client that leaves now got all it asked for.
            call.phase = None
        finally:
            for generation in self.generations:
                if generation.finish_reason is None:
                    generation.cancel()
                self.metrics.generations.labels(name, generation.finish_reason or "cancelled").inc()
            for context in self._owned:
                release(context)
            self.admission.wait(-self._waiting)
            self.admission.run(-self._running)
            self._waiting = self._running = 0
            self.metrics.end_to_end.labels(name).observe(time.monotonic() - call.started)

    def cached_tokens(self) -> int:
        """Tokens of the prompt that were found computed."""
        if self.spec.cached is not None:
            return self.spec.cached
        if self._owned:
            return self._owned[0].cached_tokens
        return self.generations[0].usage.cached_tokens if self.generations else 0

    def totals_now(self) -> Totals:
        """The numbers as far as it has come."""
        usages = [generation.usage for generation in self.generations]
        return Totals(
            prompt_tokens=usages[0].prompt_tokens if usages else 0,
            cached_tokens=self.cached_tokens(),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            prefill=self._prefill,
            decode=max(0.0, time.monotonic() - self._began - self._prefill),
        )

    def settle(self) -> Usage:
        """The first choice's numbers as they are now."""
        return self.generations[0].usage

    def cancel(self) -> None:
        """End all choices, from outside."""
        for generation in self.generations:
            generation.cancel()

    async def _compile(self) -> list[Any]:
        bound, n = self.spec.bound, self.spec.n
        if bound is None:
            return [None] * n
        self.call.phase = "compile"
        try:
            made = await in_thread(
                lambda _: [self.model.constraint(bound.kind, bound.value) for _ in range(n)]
            )
        except UnsupportedConstraint as e:
            message = f"{bound.param}: {e}"
            raise ApiError("invalid", message, param=bound.param, code="unsupported_constraint") from e
        if warnings := getattr(made[0], "warnings", ()):
            self.call.warn(f"{bound.param}: not enforced: {'; '.join(warnings)}")
        return made

    async def _prompts(self) -> Sequence[Sequence[int] | Context]:
        """One prompt per choice; several choices fork one context, so that the prompt is read once."""
        spec = self.spec
        if spec.contexts is not None:
            return spec.contexts
        if spec.n == 1:
            return [spec.prompt]
        if not isinstance(spec.prompt, list | tuple):
            raise TypeError("several choices from a context need one fork each, in `contexts`")
        self.call.phase = "prefill"
        return self._branches(await in_thread(self._reader(spec.prompt)))

    def _reader(self, tokens: Sequence[int]) -> Callable[[Progress], Context]:
        tenant = reading_tenant(self.spec.tenant, reuse=self.spec.reuse)
        return lambda progress: self.model.context(tokens, tenant=tenant, progress=progress)

    def _branches(self, base: Context) -> list[Context]:
        self._owned.append(base)
        if self.spec.n == 1:
            return [base]
        forks = base.fork(self.spec.n)
        self._owned += forks
        return forks

    async def _read(self) -> AsyncGenerator[Reading, None]:
        """Read the prompt ahead of its generations, which then go on from it, and tell how far it is."""
        spec = self.spec
        if not isinstance(spec.prompt, list | tuple):
            raise TypeError("a context's prompt is read already")
        self.call.phase = "prefill"
        made: list[Context] = []
        async with contextlib.aclosing(
            read_watched(self._reader(spec.prompt), made, len(spec.prompt), index=spec.first_index)
        ) as readings:
            async for reading in readings:
                yield reading
        spec.contexts = self._branches(made[0])
        spec.cached = made[0].cached_tokens

    async def _merge(self) -> AsyncGenerator[Delta | End, None]:
        queue: asyncio.Queue[Delta | End | BaseException] = asyncio.Queue()

        async def pump(slot: int) -> None:
            try:
                async for event in self._choice(slot):
                    queue.put_nowait(event)
            except Exception as e:
                queue.put_nowait(e)

        tasks = [asyncio.ensure_future(pump(slot)) for slot in range(len(self.generations))]
        try:
            left = len(tasks)
            while left:
                item = await queue.get()
                if isinstance(item, BaseException):
                    raise item
                left -= isinstance(item, End)
                yield item
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _choice(self, slot: int) -> AsyncGenerator[Delta | End, None]:
        generation, index = self.generations[slot], slot + self.spec.first_index
        first = True
        async for piece in generation:
            if first:
                first = False
                self._started()
            yield Delta(index, piece.text, piece.tokens, piece.logprobs)
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
                yield End(
                    index, "length" if reason in ("length", "timeout") else "stop", generation.stop_sequence
                )

    def _started(self) -> None:
        self._waiting -= 1
        self._running += 1
        self.admission.wait(-1)
        self.admission.run(1)

    def _account(self, began: float) -> None:
        totals, name = self.totals, self.model.info.name
        usages = [generation.usage for generation in self.generations]
        prompt = len(self.spec.prompt) if self.spec.contexts is None else usages[0].prompt_tokens
        cached = self.cached_tokens()
        made = sum(usage.completion_tokens for usage in usages)
        totals.prompt_tokens += prompt
        totals.cached_tokens += cached
        totals.written_tokens += prompt - cached if self.spec.reuse else 0
        totals.completion_tokens += made
        totals.decode = max(0.0, time.monotonic() - began - totals.prefill)
        decode = max(0.0, time.monotonic() - began - self._prefill)
        self.metrics.prompt_seconds.labels(name).inc(self._prefill)
        self.metrics.generated_seconds.labels(name).inc(decode)
        longest = prompt + max((usage.completion_tokens for usage in usages), default=0)
        self.metrics.most_tokens = max(self.metrics.most_tokens, longest)
        self.metrics.prompt_tokens.labels(name).inc(prompt)
        self.metrics.cached_tokens.labels(name).inc(cached)
        self.metrics.generated_tokens.labels(name).inc(made)
        note(
            request__model=name,
            usage__input_tokens=prompt,
            usage__cache_read__input_tokens=cached,
            usage__output_tokens=made,
        )


def reading_tenant(tenant: str, *, reuse: bool) -> str:
    """Whose a prompt is read as: what may not use what was computed before is read for one who has nothing yet."""
    return tenant if reuse else f"{tenant}\x00{secrets.token_hex(16)}"


async def read_watched(
    work: Callable[[Progress], T], made: list[T], total: int, *, held: int = 0, index: int = 0
) -> AsyncGenerator[Reading, None]:
    """Read a prompt of which `held` tokens are there, and tell how far it is; what the work gave is in `made`."""
    began = time.monotonic()
    cached, told = -1, -1
    async with contextlib.aclosing(watched(work, made)) as reports:
        async for done, _ in reports:
            if cached < 0:
                cached = held + done
            if held + done > told:
                told = held + done
                yield Reading(index, total, cached, told, time.monotonic() - began if told > cached else 0.0)


def in_order(runs: Sequence[Run]) -> AsyncGenerator[Delta | End | Reading, None]:
    """Several runs at once, their events merged."""
    return runs[0].steps() if len(runs) == 1 else _merged(runs)


async def _merged(runs: Sequence[Run]) -> AsyncGenerator[Delta | End | Reading, None]:
    queue: asyncio.Queue[Delta | End | Reading | BaseException | None] = asyncio.Queue()

    async def pump(run: Run) -> None:
        try:
            async with contextlib.aclosing(run.steps()) as events:
                async for event in events:
                    queue.put_nowait(event)
        except Exception as e:
            queue.put_nowait(e)
        queue.put_nowait(None)

    tasks = [asyncio.ensure_future(pump(run)) for run in runs]
    try:
        left = len(tasks)
        while left:
            item = await queue.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_through(admission: Admission, call: Call, work: Callable[[Progress], T]) -> T:
    """Blocking work of the engine on whole texts: counted as one generation, given up when the client leaves."""
    admission.check(1)
    admission.run(1)
    call.phase = "prefill"
    try:
        return await in_thread(work)
    except (ApiError, OSError):
        raise
    except Exception as e:
        raise from_engine(e) from e
    finally:
        admission.run(-1)


def _wrap(seed: int) -> int:
    """A seed as int64: the choice after the greatest one is the least, not an error."""
    return (seed + 2**63) % 2**64 - 2**63
