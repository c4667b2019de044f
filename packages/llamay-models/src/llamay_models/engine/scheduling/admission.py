"""`Admission`: which sequences run, which wait, and which are preempted where memory is short."""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from collections.abc import Callable

import llamay_kv as kv
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.failures import described
from llamay_models.engine.scheduling.finishing import Finisher
from llamay_models.engine.scheduling.prefill_budget import PrefillBudget
from llamay_models.engine.scheduling.waiting_queue import WaitingQueue
from llamay_models.engine.state.checkpoints import Checkpoints
from llamay_models.engine.state.page_demand import PageDemand
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.engine.stats import Histograms, Stats
from llamay_models.errors import LlamayError


class Admission:
    """The sequences of one engine. Belongs to its thread.

    Attributes:
        running: the admitted sequences, the most important one first.
        waiting: the sequences that are not admitted.
        loading: the admitted sequences whose prefix is being loaded from the disk.
        page_demand: the bytes of pages that positions take.

    """

    def __init__(
        self,
        pool: kv.Pool,
        chunk: int,
        max_sequences: int,
        prefixes: PrefixCache | None,
        finisher: Finisher,
        prefill_budget: PrefillBudget,
        stats: Stats,
        histograms: Histograms,
        wake: Callable[[], None],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self.running: list[EngineSequence] = []
        self.waiting = WaitingQueue()
        self.loading: set[EngineSequence] = set()
        self.page_demand = PageDemand(pool, chunk)
        self._pool = pool
        self._max_sequences = max_sequences
        self._prefixes = prefixes
        self._finisher = finisher
        self._prefill_budget = prefill_budget
        self._stats = stats
        self._histograms = histograms
        self._wake = wake
        self._spills = bool(pool.spill_counters())
        self._loaded: deque[tuple[EngineSequence, kv.Context]] = deque()
        # The bytes that were used, and the number of finished sequences, when the next sequence found no memory.
        self._full_since: tuple[int, int] | None = None

    @property
    def active(self) -> int:
        """The number of admitted sequences."""
        return len(self.running) + len(self.loading)

    @property
    def steady(self) -> bool:
        """Whether every sequence is running, so that none joins the batch or leaves it by itself."""
        return self.waiting.empty and not self.loading and not self._loaded

    def enqueue(self, sequence: EngineSequence, *, first: bool = False) -> None:
        """Put a sequence at the end of its waiting line, or in front."""
        self.waiting.push(sequence, self._tenants, first=first)

    def admit_waiting(self) -> None:
        """Work between two steps: end sequences that are over, begin those that are loaded or can be admitted."""
        if self._loaded:
            self.begin_loaded()
        over = [s for s in self.running if s.channel.cancelled or s.deadline is not None]
        if not over and self.waiting.empty:
            return
        now = time.perf_counter()
        for sequence in over:
            if self._finisher.end_if_over(sequence, now):
                self.running.remove(sequence)
        if self.waiting.empty:
            return
        for sequence in [s for s in self.waiting if self._finisher.end_if_over(s, now)]:
            self.waiting.remove(sequence)
        while len(self.waiting) and self.active < self._max_sequences:
            sequence = self.waiting.peek(now)
            try:
                if not self.admit(sequence, now):
                    break
            except Exception as error:  # one bad sequence must not take the others with it
                self._fail(sequence, error)

    def begin_loaded(self) -> None:
        """Begin the sequences whose prefix was loaded from the disk."""
        while self._loaded:
            sequence, found = self._loaded.popleft()
            if sequence not in self.loading:  # it has ended meanwhile
                found.close()
                continue
            self.loading.remove(sequence)
            try:
                self._begin(sequence, found)
            except Exception as error:
                self._fail(sequence, error)

    def admit(self, sequence: EngineSequence, now: float) -> bool:
        """Admit a sequence, with the longest known prefix of its prompt.

        Return False, and leave the sequence waiting, if there is no memory for its prompt until another one ends.
        """
        busy = self.active > 0
        if busy and self._full_since is not None:
            used, ended = self._full_since
            if self._pool.used_bytes >= used and self._finisher.count == ended:
                return False
        state, prefixes = sequence.state, self._prefixes
        wanted = len(state.pending) - 1  # the last token is always computed, for its logits
        fresh = len(state.kv) == 0
        # A context that has an owner or a marking keeps its own pages.
        keeps_own_pages = state.kv.owner is not None or state.kv.marking is not None
        found = None
        if prefixes is not None and sequence.reuse and wanted > 0 and not keeps_own_pages:
            found = prefixes.match(state.tokens[:-1], state.tenant)
            if not fresh and len(found) <= len(state.kv):
                found.close()
                found = None
        if busy and not self._has_room(sequence, found):
            self._note_full()
            if found is not None:
                found.close()
            return False
        self._full_since = None
        self.waiting.pop(sequence, now)
        sequence.preempted = False
        if not sequence.channel.started:
            sequence.channel.started = now
            self._histograms.queue.add(now - sequence.channel.submitted)
        if found is not None and prefixes is not None and fresh and prefixes.may_load(wanted, len(found)):
            self.loading.add(sequence)
            prefixes.load(
                state.pending[:-1],
                state.tenant,
                found,
                self._prefill_budget.row_seconds,
                self._on_loaded(sequence, found),
            )
        else:
            self._begin(sequence, found)
        return True

    def adopt_shared_prefix(self, sequence: EngineSequence) -> None:
        """Adopt the prefix that another sequence with an equal prompt has meanwhile computed."""
        state, prefixes = sequence.state, self._prefixes
        if prefixes is None or state.kv.owner is not None or state.kv.marking is not None:
            return
        found = prefixes.match(state.tokens[:-1], state.tenant)
        if len(found) > len(state.kv):
            self._adopt(sequence, found)
        else:
            found.close()

    def preempt(self, sequence: EngineSequence) -> None:
        """Take a sequence's pages. It waits first in its line, and later continues where it was, with the same bits."""
        self._stats.preempted += 1
        self.running.remove(sequence)
        sequence.preempted = sequence.was_preempted = True
        if not self._spills:
            self._release_pages(sequence)
        self.enqueue(sequence, first=True)
        self._note_full()

    def free_bytes(self) -> int:
        """Return the bytes of the budget that no page uses."""
        return self._pool.budget_bytes - self._pool.used_bytes

    def remove_finished(self) -> None:
        """Remove the sequences that have ended."""
        self.running = [s for s in self.running if not s.finished]

    def remove_all(self) -> list[EngineSequence]:
        """Remove all sequences, and return them."""
        while self._loaded:
            _, found = self._loaded.popleft()
            found.close()
        sequences = [*self.running, *self.loading, *self.waiting]
        self.running.clear()
        self.loading.clear()
        self.waiting = WaitingQueue()
        return sequences

    def _fail(self, sequence: EngineSequence, error: Exception) -> None:
        """End a sequence that cannot be admitted, and remove it from wherever it is."""
        if sequence in self.running:
            self.running.remove(sequence)
        self.loading.discard(sequence)
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self._finisher.end(sequence, LlamayError(f"admission failed: {described(error)}"))

    def _tenants(self) -> set[str]:
        return {s.state.tenant for s in (*self.running, *self.loading)}

    def _note_full(self) -> None:
        self._full_since = (self._pool.used_bytes, self._finisher.count)

    def _begin(self, sequence: EngineSequence, found: kv.Context | None) -> None:
        if found is not None:
            self._adopt(sequence, found)
        if self._checkpoints is not None:
            sequence.checkpoint_positions = self._checkpoint_positions(sequence, self._checkpoints)
        insort(self.running, sequence, key=_importance)

    def _checkpoint_positions(self, sequence: EngineSequence, checkpoints: Checkpoints) -> tuple[int, ...]:
        """Return the positions in its prompt at which a sequence keeps states, for itself and for others."""
        state, prefixes = sequence.state, self._prefixes
        begin, end = len(state.kv), len(state)
        if prefixes is None or not sequence.reuse or end - begin < 2:
            return checkpoints.positions(begin, end)
        parting = prefixes.parting(state.tokens[:-1], state.tenant)
        return checkpoints.positions(
            begin, end, shared=sequence.shared, parting=parting, chunk=prefixes.chunk_on_disk
        )

    def _adopt(self, sequence: EngineSequence, found: kv.Context) -> None:
        if not sequence.background:
            self._stats.cached_tokens += len(found) - len(sequence.state.kv)
        sequence.adopt_prefix(found)

    def _has_room(self, sequence: EngineSequence, found: kv.Context | None) -> bool:
        """Return whether there are pages for a prompt beside those that the prompts in prefill have yet to take."""
        state, need = sequence.state, self.page_demand
        if self._spills:
            # Contexts that are not at work are spilled when pages are needed; those at work must fit together.
            working = sum(need(0, len(s.state)) for s in (sequence, *self.running))
            return working <= self._pool.budget_bytes or need(0, len(state)) <= self.free_bytes()
        wanted = need(len(found if found is not None else state.kv), len(state))
        for other in self.running:
            if not other.decoding:
                wanted += need(len(other.state.kv), len(other.state))
        short = wanted - self.free_bytes()
        if short > 0 and self._prefixes is not None:
            short -= self._prefixes.tree.reclaim(short)
        return short <= 0

    def _on_loaded(self, sequence: EngineSequence, found: kv.Context) -> Callable[[kv.Context], None]:
        def done(longest: kv.Context) -> None:
            if longest is not found:
                found.close()
            self._loaded.append((sequence, longest))
            self._wake()

        return done

    def _release_pages(self, sequence: EngineSequence) -> None:
        """Give up the pages of a sequence; its tokens become pending, to be computed again."""
        state = sequence.state
        self._stats.recomputed_tokens += len(state.kv)
        if self._prefixes is not None and sequence.reuse:
            # Pages that are not needed more urgently are still there when the sequence continues.
            self._prefixes.keep(state.kv, state.tenant, sequence.shared)
        empty = self._pool.context()
        empty.owner = state.kv.owner
        if state.kv.marking is not None:
            empty.marking = state.kv.marking
        tokens = state.tokens
        state.kv.close()
        state.kv, state.pending, state.logits = empty, tokens, None
        sequence.kept_tokens, sequence.deferred_at = 0, None


def _importance(sequence: EngineSequence) -> tuple[int, int]:
    return -sequence.priority, sequence.order
