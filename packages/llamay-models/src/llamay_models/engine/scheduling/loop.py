"""`Loop`: the one thread that computes for a model.

A step gathers a batch, the next row of each sequence that decodes and a chunk of the prompts in prefill, runs the plan
once, then chooses and delivers tokens. Sequences join and leave between steps (continuous batching). The arithmetic
makes the result of a row independent of the other rows of the step, so nothing here changes a result, only the time at
which it is computed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

import llamay_kv as kv
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.failures import described
from llamay_models.engine.requests.channel import Channel, HeldWakes, hold_wakes, wake_held
from llamay_models.engine.runner import Runner
from llamay_models.engine.scheduling.admission import Admission
from llamay_models.engine.scheduling.finishing import Finisher
from llamay_models.engine.scheduling.overlapped import OverlappedStep
from llamay_models.engine.scheduling.pending_call import PendingCall
from llamay_models.engine.scheduling.prefill_budget import PrefillBudget, Stall
from llamay_models.engine.scheduling.replay import Replays
from llamay_models.engine.scheduling.scheduler import Scheduler
from llamay_models.engine.scheduling.step import Stepper
from llamay_models.engine.state.checkpoints import Checkpoints
from llamay_models.engine.state.context_state import State
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.engine.stats import Histograms, Stats
from llamay_models.errors import ContextError, EngineClosedError, LlamayError, QueueFullError

T = TypeVar("T")


def _nothing() -> None:
    return None


class Loop:
    """Runs the sequences of one model. `add`, `call` and `close` may be used from any thread.

    `Admission` decides which sequences run, `Scheduler` how many rows of a step each gets, `Stepper` computes the step,
    and `Finisher` ends sequences.
    """

    def __init__(
        self,
        runner: Runner,
        pool: kv.Pool,
        max_sequences: int,
        max_queue: int,
        prefixes: PrefixCache | None = None,
        name: str = "model",
        vocabulary: object = None,
        stall: Stall | None = None,
        page_lenders: Iterable[Callable[[], bool]] = (),
    ) -> None:
        self.stats = Stats()
        self.histograms = Histograms()
        self.wake = threading.Event()
        self._runner: Runner | None = runner
        self._pool = pool
        self._max_queue = max_queue
        self._prefill_budget = PrefillBudget(runner.max_rows, stall)
        self._prefixes = prefixes
        self._inbox: deque[EngineSequence] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._replays = Replays(vocabulary if prefixes is not None else None)
        self._replaying: EngineSequence | None = None
        checkpoints = Checkpoints.of(pool)
        self._finisher = Finisher(self.stats, prefixes, self._replays)
        self._admission = Admission(
            pool,
            runner.max_rows,
            max_sequences,
            prefixes,
            self._finisher,
            self._prefill_budget,
            self.stats,
            self.histograms,
            self.wake.set,
            checkpoints,
        )
        self._stepper = Stepper(
            self._admission,
            prefixes,
            self._finisher,
            self.stats,
            self.histograms,
            page_lenders,
        )
        self._scheduler = Scheduler(
            self._admission,
            prefixes,
            pool.page_tokens,
            runner.max_rows,
            self._finisher,
            self._stepper.advance,
            checkpoints,
        )
        self._overlapped = OverlappedStep(
            self._admission,
            self._finisher,
            self._scheduler.add_drafts,
            self._others_wait,
            pool.page_tokens,
            runner.backend.flag(),
            checkpoints,
        )
        self._order = 0
        self._closed = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._loop, name=f"llamay engine: {name}", daemon=True)
        self._thread.start()

    @property
    def runner(self) -> Runner:
        """The runner of the plan. Raises EngineClosedError."""
        if self._runner is None:
            raise EngineClosedError("the model was closed; load it again")
        return self._runner

    @property
    def queued(self) -> int:
        """The number of sequences that wait for admission."""
        return len(self._admission.waiting) + len(self._inbox)

    @property
    def active(self) -> int:
        """The number of sequences that are admitted."""
        return self._admission.active

    @property
    def spare_rows(self) -> int:
        """Rows that other work may compute between two steps without delaying a generation for too long."""
        return self._prefill_budget.rows(sum(s.generation is not None for s in self._admission.running))

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def add(self, sequence: EngineSequence) -> None:
        """Hand a sequence to the engine. Raises EngineClosedError, QueueFullError."""
        with self._lock:
            if self._closed:
                raise EngineClosedError("the model was closed; load it again")
            if self.queued >= self._max_queue:
                self.stats.refused += 1
                raise QueueFullError(f"{self.queued} requests wait for this model already; try again later")
            self._order += 1
            sequence.channel.engine_thread = self._thread.ident
            sequence.order = self._order
            self._inbox.append(sequence)
            self._overlapped.flag.set()
        self.wake.set()

    @property
    def is_current(self) -> bool:
        """Whether the engine's own thread asks, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def check_thread(self) -> None:
        """Raise ContextError on the engine's own thread, before work that it would wait for."""
        if self.is_current:
            raise ContextError(
                "a constraint, which runs on the engine's thread, cannot wait for this model: it would wait for itself"
            )

    def find(self, channel: Channel) -> EngineSequence | None:
        """Return the sequence that a channel belongs to, on the engine's thread."""
        sequences = (*self._admission.running, *self._admission.waiting, *self._inbox)
        return next((s for s in sequences if s.channel is channel and not s.finished), None)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the engine's thread between two steps, and return its result.

        Functions that touch a context which may be at work are run so. Raises what the function raises, or
        EngineClosedError.
        """
        if self.is_current:
            return function()
        pending = PendingCall(function)
        with self._lock:
            if self._closed:
                raise EngineClosedError("the model was closed; load it again")
            self._calls.append(pending.run)
            self._overlapped.flag.set()
        self.wake.set()
        return pending.result()

    def close(self) -> None:
        """End every sequence as cancelled, and the thread, which this waits for. A second call does nothing."""
        with self._lock:
            self._closed = True
            self._overlapped.flag.set()
        self.wake.set()
        if not self.is_current:
            self._thread.join()

    # -- the thread

    def _loop(self) -> None:
        wakes = self._stepper.wakes = hold_wakes()
        while not self._closed:
            try:
                self._turn(wakes)
            except BaseException as error:
                # The thread must outlive every error, or all callers would wait for ever.
                self._end_all(LlamayError(f"the engine failed: {described(error)}"))
        try:
            self._shut_down()
        finally:
            wake_held(wakes)

    def _turn(self, wakes: HeldWakes) -> None:
        """Take what other threads have handed in, then compute a step, or wait where there is nothing to compute."""
        admission = self._admission
        if self._overlapped.begun is None:  # else the contexts are at work
            if self._calls or self._inbox:
                self._take_requests()
            admission.admit_waiting()
        if wakes:
            wake_held(wakes)
        if not admission.active and self._replay():
            return
        if not admission.running:
            # A sequence whose prefix is loaded from the disk may meanwhile be cancelled, or run out of time.
            self.wake.wait(0.05 if admission.loading else None)
            self.wake.clear()
            return
        began = time.perf_counter()
        try:
            self._step()
        except Exception as error:  # those that wait are not concerned
            self._end_running(LlamayError(f"the engine failed: {described(error)}"))
        if wakes:
            wake_held(wakes)
        seconds = time.perf_counter() - began
        self.stats.busy_seconds += seconds
        self.histograms.step.add(seconds)

    def _end_running(self, error: LlamayError, *, cancelled: bool = False) -> None:
        """Give up the step that has begun, and end every sequence that runs."""
        self._abandon_step()
        for sequence in self._admission.running:
            self._finisher.end(sequence, error, cancelled=cancelled)
        self._admission.remove_finished()

    def _abandon_step(self) -> None:
        """Give up the step that has begun, if one has: no context is at work after it."""
        with contextlib.suppress(BaseException):  # the error that is being handled may occur here again
            self._overlapped.abandon()

    def _end_all(self, error: LlamayError, *, cancelled: bool = False) -> None:
        """End every sequence, those that wait included."""
        self._end_running(error, cancelled=cancelled)
        for sequence in self._admission.remove_all():
            self._finisher.end(sequence, error, cancelled=cancelled)

    def _shut_down(self) -> None:
        """End every sequence as cancelled, and free the plan and the weights, even while this object is referenced."""
        self._finisher.keeps_prefixes = False
        self._abandon_step()  # before the calls of other threads, which may touch any context
        self._take_requests()
        self._end_all(EngineClosedError("the model was closed while this was running"), cancelled=True)
        self._replaying = None
        self._stepper.close()
        try:
            if self._prefixes is not None:
                self._prefixes.close()
        finally:
            self._admission.remove_all()  # what was still loaded from the disk
            self._runner = None

    def _others_wait(self) -> bool:
        """Return whether another thread waits for the engine."""
        return bool(self._calls or self._inbox or self._closed)

    def _take_requests(self) -> None:
        """Run the calls, and enqueue the requests, of other threads since the last step."""
        while self._calls:
            self._calls.popleft()()
        if self._replaying is not None and self._inbox:
            self._replaying.channel.cancelled = True  # the prefix cache keeps its computed tokens
        while self._inbox:
            self._admission.enqueue(self._inbox.popleft())

    def _step(self) -> None:
        self.stats.steps += 1
        ended = self._finisher.count
        if self._overlapped.begun is not None:
            self._stepper.complete(self._overlapped, self.runner, self._prefill_budget)
        else:
            entries = self._scheduler.schedule(self._prefill_budget, self.stats.steps)
            self._stepper.step(entries, self.runner, self._prefill_budget, self._overlapped)
        if self._finisher.count != ended:
            self._admission.remove_finished()

    def _replay(self) -> bool:
        """Prefill a text that a client is likely to send, while there is nothing else to do.

        Returns whether there was one.
        """
        self._replaying = None
        found = self._replays.take()
        if found is None:
            return False
        tokens, tenant = found
        if self._admission.page_demand(0, len(tokens)) > self._admission.free_bytes():
            return True  # kept prefixes are worth more
        state = State(self._pool.context(), tenant)
        state.append(tokens)
        self._replaying = EngineSequence(state, Channel(), None, _nothing, owns_context=True)
        self._replaying.background = True
        now = time.perf_counter()
        self._replaying.channel.started = now
        self._admission.enqueue(self._replaying)
        self._admission.admit(self._replaying, now)
        return True
