"""`Loop`: the one thread that computes for a model.

A step gathers what is ready, one row of each sequence that writes and a chunk of the prompts that are
read, runs the plan once, then chooses and delivers tokens. Sequences join and leave between steps.
Arithmetic makes the result of a row independent of what else is in the step, so nothing here can change
what is computed, only when.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import llamay_kv as kv
from llamay_models.engine._generation import FinishReason
from llamay_models.engine._pace import Pace
from llamay_models.engine._prefixes import Prefixes
from llamay_models.engine._runner import Rows, Runner
from llamay_models.engine._sampler import Chooser, draw_ahead
from llamay_models.engine._sequence import Sequence
from llamay_models.errors import ConstraintError, EngineClosed, LlamayError, OutOfMemory
from llamay_models.plan._records import Floats

T = TypeVar("T")


@dataclass(slots=True)
class Stats:
    """Counters since the engine began.

    Seconds are its thread's wall time: in all, and inside the plan. Prompt tokens are those that were
    computed, cached tokens those that need not be.
    """

    steps: int = 0
    rows: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    failed: int = 0
    cancelled: int = 0
    busy_seconds: float = 0.0
    run_seconds: float = 0.0


class Loop:
    """Runs the sequences of one model. `add`, `call` and `close` may be used from any thread."""

    def __init__(
        self,
        runner: Runner,
        max_sequences: int,
        page_tokens: int,
        prefixes: Prefixes | None = None,
        name: str = "model",
    ) -> None:
        self.stats = Stats()
        self.wake = threading.Event()
        self._runner: Runner | None = runner
        self._max_sequences = max_sequences
        self._pace = Pace(runner.max_rows)
        self._page_tokens = page_tokens
        self._inbox: deque[Sequence] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._prefixes = prefixes
        self._chunk = (prefixes and prefixes.chunk) or runner.max_rows
        self._away: set[Sequence] = set()  # those whose prefix is being read from the disk
        self._back: deque[tuple[Sequence, kv.Context]] = deque()
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name=f"llamay engine: {name}", daemon=True)
        self._thread.start()

    @property
    def runner(self) -> Runner:
        """What runs the plan. Raises EngineClosed."""
        if self._runner is None:
            raise EngineClosed("the model was closed; load it again")
        return self._runner

    @property
    def queued(self) -> int:
        """Sequences that wait for a place."""
        return len(self._waiting) + len(self._inbox)

    @property
    def active(self) -> int:
        """Sequences that have one."""
        return len(self._running) + len(self._away)

    @property
    def room(self) -> int:
        """Rows that something else may compute between two steps, so that no stream waits too long for it."""
        return self._pace.budget(sum(s.writing is not None for s in self._running))

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def add(self, sequence: Sequence) -> None:
        """Hand a sequence to the engine. Raises EngineClosed."""
        with self._lock:
            if self._closed:
                raise EngineClosed("the model was closed; load it again")
            self._inbox.append(sequence)
        self.wake.set()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the engine's thread between two steps, and returns what it returns.

        For what touches a context that may be at work. Raises what the function raises, or EngineClosed.
        """
        if threading.current_thread() is self._thread:
            return function()
        done = threading.Event()
        result: list[T] = []
        error: list[BaseException] = []

        def run() -> None:
            try:
                result.append(function())
            except BaseException as e:  # delivered to the caller, who waits
                error.append(e)
            finally:
                done.set()

        with self._lock:
            if self._closed:
                raise EngineClosed("the model was closed; load it again")
            self._calls.append(run)
        self.wake.set()
        done.wait()
        if error:
            raise error[0]
        return result[0]

    def close(self) -> None:
        """End every sequence as cancelled, and the thread. Waits for it. Closing twice is nothing."""
        with self._lock:
            self._closed = True
        self.wake.set()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- the thread

    def _loop(self) -> None:
        while not self._closed:
            self._take()
            if not self._running:
                self.wake.wait()
                self.wake.clear()
                continue
            began = time.perf_counter()
            try:
                self._step()
            except (
                Exception
            ) as error:  # the thread must outlive whatever went wrong, or every caller would wait for ever
                for sequence in self._running:
                    self._end(sequence, LlamayError(f"the engine failed: {type(error).__name__}: {error}"))
                self._running.clear()
            self.stats.busy_seconds += time.perf_counter() - began
        if self._prefixes is not None:
            self._prefixes.close()
        self._take()
        for sequence in [*self._running, *self._waiting]:
            self._end(sequence, EngineClosed("the model was closed while this was running"), cancelled=True)
        self._running.clear()
        self._waiting.clear()
        self._runner = None  # with it go the plan and the weights, whoever still holds on to this object

    def _take(self) -> None:
        """Everything that other threads asked for since the last step."""
        while self._calls:
            self._calls.popleft()()
        while self._inbox:
            self._waiting.append(self._inbox.popleft())
        while self._back:
            self._return(*self._back.popleft())
        for group in (self._running, self._waiting):
            for sequence in [s for s in group if s.channel.cancelled]:
                self._end(sequence, None, cancelled=True)
                group.remove(sequence)
        while self._waiting and self.active < self._max_sequences and not self._closed:
            self._admit(self._waiting.popleft())

    def _admit(self, sequence: Sequence) -> None:
        """Give a sequence a place, and the longest prefix of its prompt that is known."""
        sequence.channel.started = time.perf_counter()
        state, prefixes = sequence.state, self._prefixes
        wanted = len(state.pending) - 1  # the last token is computed in any case, for its logits
        # A context that has an owner or a marking keeps its own pages.
        fresh = len(state.kv) == 0 and state.kv.owner is None and state.kv.marking is None
        if prefixes is None or not sequence.reuse or wanted < 1 or not fresh:
            self._running.append(sequence)
            return
        tokens = state.pending[:-1]
        found = prefixes.match(tokens, state.tenant)
        if not prefixes.may_load(wanted, len(found)):
            self._begin_with(sequence, found)
            return

        def done(longest: kv.Context) -> None:
            if longest is not found:
                found.close()
            self._back.append((sequence, longest))
            self.wake.set()

        self._away.add(sequence)
        prefixes.load(tokens, state.tenant, found, self._pace.row_seconds, done)

    def _return(self, sequence: Sequence, found: kv.Context) -> None:
        self._away.remove(sequence)
        self._begin_with(sequence, found)

    def _begin_with(self, sequence: Sequence, found: kv.Context) -> None:
        self.stats.cached_tokens += len(found)
        sequence.begin_with(found)
        self._running.append(sequence)

    def _step(self) -> None:
        batch: list[tuple[Sequence, Rows]] = []
        for sequence, n in self._share():
            rows = self._reserve(sequence, n)
            if rows is not None:
                batch.append((sequence, rows))
        if batch:
            self._compute(batch)
        self._running = [s for s in self._running if not s.finished]

    def _share(self) -> list[tuple[Sequence, int]]:
        """Decide who gets how many rows: writers one each, then readers.

        Readers take turns, so that a long prompt does not keep a short one waiting.
        """
        shares: list[tuple[Sequence, int]] = []
        readers: list[Sequence] = []
        for sequence in self._running:
            if sequence.ready:
                logits = sequence.state.logits
                assert logits is not None
                self._advance(sequence, partial(sequence.choose, logits))
                if sequence.finished:
                    continue
            if sequence.writing is not None and len(sequence.state.pending) == 1:
                shares.append((sequence, 1))
            else:
                readers.append(sequence)
        budget = self._pace.budget(len(shares))
        for sequence in readers:
            n = min(budget, self._chunk, len(sequence.state.pending))
            if n == 0:
                break
            if n < len(sequence.state.pending):
                # Up to the end of a page if it can be: whole pages are what others can use.
                over = (len(sequence.state.kv) + n) % self._page_tokens
                n = n - over if over < n else n
            shares.append((sequence, n))
            budget -= n
            if n < len(sequence.state.pending):
                # Next time the others come first.
                self._running.remove(sequence)
                self._running.append(sequence)
        return shares

    def _reserve(self, sequence: Sequence, n: int) -> Rows | None:
        state = sequence.state
        try:
            lease = state.kv.reserve(n)
        except kv.OutOfPages as error:
            self._end(sequence, OutOfMemory(f"no K/V memory is left for this text: {error}"))
            return None
        last = n == len(state.pending)
        return Rows(lease, state.pending[:n], len(state.kv), 1 if last else 0)

    def _compute(self, batch: list[tuple[Sequence, Rows]]) -> None:
        began = time.perf_counter()
        try:
            out = self.runner.run([rows for _, rows in batch])
        except Exception as error:  # one bad sequence must not take the others with it
            for _, rows in batch:
                rows.lease.release()
            self._compute_apart(batch, error)
            return
        seconds = time.perf_counter() - began
        self._draw_ahead(batch, out)
        at = reading = 0
        for sequence, rows in batch:
            rows.lease.commit(rows.tokens)
            self._keep(sequence)
            n = len(rows.tokens)
            if n > 1:
                reading += n
            self._took(sequence, n, out[at] if rows.wanted else None)
            at += rows.wanted
        stats, total = self.stats, sum(len(rows.tokens) for _, rows in batch)
        stats.steps, stats.rows, stats.run_seconds = (
            stats.steps + 1,
            stats.rows + total,
            stats.run_seconds + seconds,
        )
        self._pace.observe(seconds, total - reading, reading)

    def _draw_ahead(self, batch: list[tuple[Sequence, Rows]], out: Floats) -> None:
        """Draw the tokens of all who write freely in one call; `choose` then takes what was drawn."""
        rows: list[tuple[Chooser, Floats, int]] = []
        wanted = [sequence for sequence, step in batch if step.wanted]
        for logits, sequence in zip(out, wanted, strict=True):
            writing = sequence.writing
            if writing is None or writing.constraint is not None:
                continue
            if sequence.channel.completion_tokens < writing.limit:
                rows.append((writing.chooser, logits, len(sequence.state)))
        draw_ahead(rows, self.runner.threads)

    def _compute_apart(self, batch: list[tuple[Sequence, Rows]], error: Exception) -> None:
        """After a step has failed: each of its sequences by itself, so that only the one at fault ends."""
        if len(batch) == 1:
            self._end(batch[0][0], LlamayError(f"a step of the model failed: {error}"))
            return
        for sequence, rows in batch:
            again = self._reserve(sequence, len(rows.tokens))
            if again is not None:
                self._compute([(sequence, again)])

    def _took(self, sequence: Sequence, n: int, logits: Floats | None) -> None:
        if not sequence.channel.completion_tokens:
            self.stats.prompt_tokens += n
        self._advance(sequence, partial(sequence.took, n, logits))

    def _advance(self, sequence: Sequence, step: Callable[[], None]) -> None:
        """Let a sequence go on; what goes wrong in it ends it alone."""
        before = sequence.channel.completion_tokens
        try:
            step()
            if sequence.ending is not None:
                self._finish(sequence, *sequence.ending)
        except Exception as error:
            self._fault(sequence, error)
        self.stats.generated_tokens += sequence.channel.completion_tokens - before

    def _keep(self, sequence: Sequence) -> None:
        """Let others find the whole pages that were computed.

        Of a text that is being written this waits for the end, except where pages are dropped on the way.
        """
        prefixes, size = self._prefixes, len(sequence.state.kv)
        if (
            prefixes is None
            or not sequence.reuse
            or size // self._page_tokens <= sequence.kept // self._page_tokens
        ):
            return
        if prefixes.windowed or not sequence.channel.completion_tokens:
            prefixes.keep(sequence.state.kv, sequence.state.tenant, sequence.shared, whole_pages=True)
            sequence.kept = size

    def _finish(self, sequence: Sequence, reason: FinishReason, error: LlamayError | None = None) -> None:
        """End a sequence, and keep what it computed."""
        state, prefixes = sequence.state, self._prefixes
        if prefixes is not None and sequence.reuse and not sequence.finished and not self._closed:
            prefixes.keep(state.kv, state.tenant, sequence.shared, whole_pages=not sequence.owned)
            prefixes.save(state.kv, state.tenant)
        sequence.finish(reason, error)

    def _fault(self, sequence: Sequence, error: Exception) -> None:
        if isinstance(error, LlamayError):
            self._end(sequence, error)
        else:
            # Constraints and decoders are other people's code.
            wrapped = ConstraintError(f"choosing the next token failed: {type(error).__name__}: {error}")
            wrapped.__cause__ = error
            self._end(sequence, wrapped)

    def _end(self, sequence: Sequence, error: LlamayError | None, *, cancelled: bool = False) -> None:
        if cancelled:
            self.stats.cancelled += 1
        else:
            self.stats.failed += 1
        try:
            self._finish(sequence, "cancelled" if cancelled else "error", error)
        except Exception as again:  # not even its text can be finished
            sequence.channel.finish("error", LlamayError(f"ending a text failed: {again}"))
