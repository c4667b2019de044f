"""`Loop`: the one thread that computes for a model.

A step gathers what is ready, the next row of each sequence that writes and a chunk of the prompts that are
read, runs the plan once, then chooses and delivers tokens. Sequences join and leave between steps.
Arithmetic makes the result of a row independent of what else is in the step, so nothing here can change
what is computed, only when.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import llamay_kv as kv
from llamay_models.engine._generation import Channel, FinishReason, hold_wakes, wake_held
from llamay_models.engine._memory import Need
from llamay_models.engine._pace import Pace
from llamay_models.engine._prefixes import Prefixes
from llamay_models.engine._queue import Queue
from llamay_models.engine._replay import Replays
from llamay_models.engine._runner import Rows, Runner
from llamay_models.engine._sampler import Chooser, draw_ahead
from llamay_models.engine._sequence import Sequence
from llamay_models.engine._speculation import MOST, ModelDrafter
from llamay_models.engine._state import State
from llamay_models.engine._stats import Histograms, Stats
from llamay_models.errors import ConstraintError, EngineClosed, LlamayError, OutOfMemory, QueueFull
from llamay_models.plan._records import Floats

T = TypeVar("T")
_REPLAY_ROWS = 64  # of a step that nobody waits for: who comes meanwhile waits for no more than these


def _nothing() -> None:
    return None


@dataclass(slots=True)
class Share:
    """What a sequence gets of a step: its next `n` pending tokens, and guesses that are checked after them."""

    sequence: Sequence
    n: int
    drafts: list[int] = field(default_factory=list)


class Loop:
    """Runs the sequences of one model. `add`, `call` and `close` may be used from any thread."""

    def __init__(
        self,
        runner: Runner,
        pool: kv.Pool,
        max_sequences: int,
        max_queue: int,
        prefixes: Prefixes | None = None,
        name: str = "model",
        vocabulary: object = None,
    ) -> None:
        self.stats = Stats()
        self.histograms = Histograms()
        self.wake = threading.Event()
        self._runner: Runner | None = runner
        self._pool = pool
        self._max_sequences = max_sequences
        self._max_queue = max_queue
        self._pace = Pace(runner.max_rows)
        self._page_tokens = pool.page_tokens
        self._prefixes = prefixes
        self._chunk = (prefixes and prefixes.chunk) or runner.max_rows
        self._need = Need(pool, runner.max_rows)
        self._spills = bool(pool.spill_counters())
        self._inbox: deque[Sequence] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._waiting = Queue()
        self._blocked: int | None = None  # bytes that were used when the next one found no room
        self._running: list[Sequence] = []
        self._away: set[Sequence] = set()  # those whose prefix is being read from the disk
        self._back: deque[tuple[Sequence, kv.Context]] = deque()
        self._replays = Replays(vocabulary if prefixes is not None else None)
        self._replaying: Sequence | None = None
        self._order = 0
        self._aside: ThreadPoolExecutor | None = None
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
    def pace(self) -> Pace:
        """What steps have been seen to take."""
        return self._pace

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
        """Hand a sequence to the engine. Raises EngineClosed, QueueFull."""
        with self._lock:
            if self._closed:
                raise EngineClosed("the model was closed; load it again")
            if self.queued >= self._max_queue:
                self.stats.refused += 1
                raise QueueFull(f"{self.queued} requests wait for this model already; try again later")
            self._order += 1
            sequence.order = self._order
            self._inbox.append(sequence)
        self.wake.set()

    def find(self, channel: Channel) -> Sequence | None:
        """Return the sequence that a channel belongs to, on the engine's thread."""
        everybody = (*self._running, *self._waiting, *self._inbox)
        return next((s for s in everybody if s.channel is channel and not s.finished), None)

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
            if not self._running and not self._away and self._replay():
                continue
            if not self._running:
                # What is being read from the disk may meanwhile be cancelled, or run out of time.
                self.wake.wait(0.05 if self._away else None)
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
            wake_held()
            seconds = time.perf_counter() - began
            self.stats.busy_seconds += seconds
            self.histograms.step.add(seconds)
        if self._prefixes is not None:
            self._prefixes.close()
        if self._aside is not None:
            self._aside.shutdown()
        self._take()
        for sequence in [*self._running, *self._waiting]:
            self._end(sequence, EngineClosed("the model was closed while this was running"), cancelled=True)
        self._running.clear()
        self._waiting = Queue()
        self._replaying = None
        self._runner = None  # with it go the plan and the weights, whoever still holds on to this object

    def _take(self) -> None:
        """Everything that other threads asked for since the last step."""
        while self._calls:
            self._calls.popleft()()
        if self._inbox and self._replaying is not None:
            self._replaying.channel.cancelled = True  # what it has read stays
        while self._inbox:
            self._waiting.push(self._inbox.popleft(), self._tenants)
        while self._back:
            sequence, found = self._back.popleft()
            self._away.remove(sequence)
            self._begin_with(sequence, found)
            self._running.append(sequence)
        now = time.perf_counter()
        for sequence in [s for s in self._running if self._is_over(s, now)]:
            self._running.remove(sequence)
        for sequence in [s for s in self._waiting if self._is_over(s, now)]:
            self._waiting.remove(sequence)
        while len(self._waiting) and self.active < self._max_sequences and not self._closed:
            sequence = self._waiting.peek(now)
            if not self._admit(sequence, now):
                break

    def _replay(self) -> bool:
        """Read ahead what a client is going to send, while there is nothing else to do."""
        found = self._replays.take()
        if found is None:
            return False
        tokens, tenant = found
        if self._need(0, len(tokens)) > self._pool.budget_bytes - self._pool.used_bytes:
            return True  # not at the expense of what was kept
        state = State(self._pool.context(), tenant)
        state.append(tokens)
        self._replaying = Sequence(state, Channel(), None, _nothing, owned=True)
        self._replaying.background = True
        now = time.perf_counter()
        self._replaying.channel.started = now
        self._waiting.push(self._replaying, self._tenants)
        self._admit(self._replaying, now)
        return True

    def _is_over(self, sequence: Sequence, now: float) -> bool:
        """End a sequence that was cancelled, or whose time is up."""
        if sequence.channel.cancelled:
            self._end(sequence, None, cancelled=True)
        elif sequence.deadline is not None and now >= sequence.deadline:
            self.stats.timed_out += 1
            sequence.ending = ("timeout", None)
            self._settle(sequence)
        return sequence.finished

    def _tenants(self) -> set[str]:
        return {s.state.tenant for s in (*self._running, *self._away)}

    # -- who gets a place

    def _admit(self, sequence: Sequence, now: float) -> bool:
        """Give a sequence a place, and the longest prefix of its prompt that is known.

        False, and it stays where it was, if there is no memory for its prompt before somebody else ends.
        """
        busy = bool(self._running or self._away)
        if busy and self._blocked is not None and self._pool.used_bytes >= self._blocked:
            return False
        state, prefixes = sequence.state, self._prefixes
        wanted = len(state.pending) - 1  # the last token is computed in any case, for its logits
        # A context that has an owner or a marking keeps its own pages.
        fresh = len(state.kv) == 0 and state.kv.owner is None and state.kv.marking is None
        found = None
        if prefixes is not None and sequence.reuse and wanted > 0 and fresh:
            found = prefixes.match(state.pending[:-1], state.tenant)
        if busy and not self._has_room(sequence, found):
            self._blocked = self._pool.used_bytes
            if found is not None:
                found.close()
            return False
        self._blocked = None
        self._waiting.pop(sequence, now)
        sequence.suspended = False
        if not sequence.channel.started:
            sequence.channel.started = now
            self.histograms.queue.add(now - sequence.channel.submitted)
        if found is None:
            self._running.append(sequence)
        elif prefixes is not None and prefixes.may_load(wanted, len(found)):
            self._away.add(sequence)
            prefixes.load(
                state.pending[:-1],
                state.tenant,
                found,
                self._pace.row_seconds,
                self._returning(sequence, found),
            )
        else:
            self._begin_with(sequence, found)
            self._running.append(sequence)
        return True

    def _has_room(self, sequence: Sequence, found: kv.Context | None) -> bool:
        """Whether its prompt finds pages beside those that the prompts being read have yet to take."""
        state = sequence.state
        if self._spills:
            # What is not at work makes room by itself; what is must fit as a whole.
            working = sum(self._need(0, len(s.state)) for s in (sequence, *self._running))
            return working <= self._pool.budget_bytes or self._need(
                0, len(state)
            ) + self._pool.used_bytes <= (self._pool.budget_bytes)
        need = self._need(len(found if found is not None else state.kv), len(state))
        for other in self._running:
            if not other.decoding:
                need += self._need(len(other.state.kv), len(other.state))
        short = need + self._pool.used_bytes - self._pool.budget_bytes
        if short > 0 and self._prefixes is not None:
            short -= self._prefixes.tree.reclaim(short)
        return short <= 0

    def _returning(self, sequence: Sequence, found: kv.Context) -> Callable[[kv.Context], None]:
        def done(longest: kv.Context) -> None:
            if longest is not found:
                found.close()
            self._back.append((sequence, longest))
            self.wake.set()

        return done

    def _begin_with(self, sequence: Sequence, found: kv.Context) -> None:
        if not sequence.background:
            self.stats.cached_tokens += len(found) - len(sequence.state.kv)
        sequence.begin_with(found)

    # -- a step

    def _step(self) -> None:
        self.stats.steps += 1
        batch: list[tuple[Share, Rows]] = []
        # The more important ones take their pages first, so that nobody loses his to a less important one.
        for share in sorted(self._share(), key=lambda s: (-s.sequence.priority, s.sequence.order)):
            if share.sequence.suspended or share.sequence.finished:
                continue
            rows = self._reserve(share, batch)
            if rows is not None:
                batch.append((share, rows))
        if batch:
            self._compute(batch)
        self._running = [s for s in self._running if not s.finished]

    def _share(self) -> list[Share]:
        """Decide who gets how many rows: writers one each, and more for guesses; readers share the rest."""
        shares: list[Share] = []
        readers: list[Sequence] = []
        for sequence in self._running:
            if sequence.ready:
                logits = sequence.state.logits
                assert logits is not None
                self._advance(sequence, lambda s=sequence, x=logits: s.choose(x))  # type: ignore[misc]
                if sequence.finished:
                    continue
            if sequence.decoding:
                shares.append(Share(sequence, 1))
            else:
                readers.append(sequence)
        if readers:
            self._share_reading(readers, shares)
        if shares:
            self._guess(shares)
        return shares

    def _share_reading(self, readers: list[Sequence], shares: list[Share]) -> None:
        """Readers by priority, then the tenant that was given least, then in turn.

        Of several that stand at the same place of the same prompt one reads, and the others take what it has read.
        """
        readers.sort(key=lambda s: (-s.priority, self._waiting.share(s.state.tenant), s.turn, s.order))
        budget = self._pace.budget(len(shares), max(len(s.state.kv) for s in readers))
        leaders: set[tuple[str, int, tuple[int, ...]]] = set()
        for sequence in readers:
            state = sequence.state
            if self._prefixes is not None and sequence.reuse and len(state.pending) > self._page_tokens:
                if sequence.passed is not None:
                    self._catch_up(sequence)
                place = (state.tenant, len(state.kv), tuple(state.pending[: self._page_tokens]))
                if place in leaders and sequence.passed != len(state.kv):
                    sequence.passed = len(state.kv)
                    continue
                leaders.add(place)
            n = min(budget, self._chunk, len(state.pending))
            if sequence.background:
                n = min(n, _REPLAY_ROWS)
            if n == 0:
                break
            if n < len(state.pending):
                # Up to the end of a page if it can be: whole pages are what others can use.
                over = (len(state.kv) + n) % self._page_tokens
                n = n - over if over < n else n
            sequence.turn = self.stats.steps
            shares.append(Share(sequence, n))
            budget -= n

    def _catch_up(self, sequence: Sequence) -> None:
        """Take what another sequence has meanwhile read of the same prompt."""
        state, prefixes = sequence.state, self._prefixes
        assert prefixes is not None
        if state.kv.owner is not None or state.kv.marking is not None:
            return
        found = prefixes.match(state.tokens[:-1], state.tenant)
        if len(found) > len(state.kv):
            self._begin_with(sequence, found)
        else:
            found.close()

    def _guess(self, shares: list[Share]) -> None:
        """Guess what comes next where a guess that is right would save a step."""
        room = self.runner.max_rows - sum(s.n for s in shares)
        cost = self._pace.row_share(len(shares))
        asks: list[tuple[Share, ModelDrafter, int]] = []
        for share in shares:
            sequence = share.sequence
            writing = sequence.writing
            if writing is None or not sequence.decoding or share.n != 1:
                continue
            most = min(room, writing.limit - sequence.channel.completion_tokens - 1)
            if most < 1:
                continue
            try:
                if writing.bounds is not None:
                    share.drafts = writing.bounds.forced(min(most, 4 * MOST))
            except Exception as error:
                self._fault(sequence, error)
                continue
            drafter = writing.drafter
            if drafter is not None and not share.drafts:
                most = min(most, drafter.length(cost))
                if most and (drafts := drafter.look_up(most)):
                    share.drafts = drafts
                elif most and drafter.model is not None:
                    asks.append((share, drafter.model, most))
            room -= len(share.drafts)
        if asks and room >= sum(most for _, _, most in asks):
            model = asks[0][1].draft
            for (share, _, _), drafts in zip(asks, model.propose([(m, n) for _, m, n in asks]), strict=True):
                share.drafts = drafts

    def _reserve(self, share: Share, batch: list[tuple[Share, Rows]]) -> Rows | None:
        """Take the pages for some rows; where there are none, those of who is least important."""
        sequence = share.sequence
        state = sequence.state
        while True:
            try:
                lease = state.kv.reserve(share.n + len(share.drafts))
                break
            except kv.PagesLost as error:
                self._end(sequence, LlamayError(f"K/V of this text cannot be read back: {error}"))
                return None
            except kv.OutOfPages as error:
                if share.drafts:
                    share.drafts = []
                    continue
                taken = {s.sequence for s, _ in batch}
                others = [s for s in self._running if s not in taken and not s.suspended and not s.finished]
                victim = max(others, key=lambda s: (-s.priority, s.order))
                if victim is sequence and not taken and len(others) == 1:
                    self._end(sequence, OutOfMemory(f"no K/V memory is left for this text: {error}"))
                    return None
                self._suspend(victim)
                if victim is sequence:
                    return None
        last = share.n == len(state.pending)
        tokens = [*state.pending[: share.n], *share.drafts]
        return Rows(lease, tokens, len(state.kv), 1 + len(share.drafts) if last else 0)

    def _suspend(self, sequence: Sequence) -> None:
        """Take a sequence's memory away. It waits, first in its line, and goes on where it was, to the same bits."""
        self.stats.suspended += 1
        self._running.remove(sequence)
        sequence.suspended = sequence.resumed = True
        if not self._spills:
            self._drop(sequence)
        self._waiting.push(sequence, self._tenants, first=True)
        self._blocked = self._pool.used_bytes

    def _drop(self, sequence: Sequence) -> None:
        """Give up what a sequence has computed; its tokens are to be read again."""
        state = sequence.state
        self.stats.recomputed_tokens += len(state.kv)
        if self._prefixes is not None and sequence.reuse:
            # What nobody needs more urgently will be there when it goes on.
            self._prefixes.keep(state.kv, state.tenant, sequence.shared)
        empty = self._pool.context()
        empty.owner = state.kv.owner
        if state.kv.marking is not None:
            empty.marking = state.kv.marking
        tokens = state.tokens
        state.kv.close()
        state.kv, state.pending, state.logits = empty, tokens, None
        sequence.kept, sequence.passed = 0, None

    def _compute(self, batch: list[tuple[Share, Rows]]) -> None:
        masks = self._fill_masks(batch)
        began = time.perf_counter()
        try:
            out = self.runner.run([rows for _, rows in batch])
        except Exception as error:  # one bad sequence must not take the others with it
            for _, rows in batch:
                rows.lease.release()
            self._compute_apart(batch, error)
            return
        finally:
            if masks is not None:
                masks.result()
        now = time.perf_counter()
        seconds = now - began
        hold_wakes()
        self._draw_ahead(batch, out)
        stats, at, writing, reading, depth = self.stats, 0, 0, 0, 0
        for share, rows in batch:
            sequence, n = share.sequence, share.n
            decoding = sequence.decoding and sequence.channel.completion_tokens > 0
            before = sequence.channel.completion_tokens
            if rows.wanted:
                logits = out[at : at + rows.wanted]
                at += rows.wanted
                self._guarded(sequence, lambda s=sequence, x=logits, d=share.drafts: s.verify(x, d))  # type: ignore[misc]
                n += sequence.used - 1
            rows.lease.commit(rows.tokens[:n])
            sequence.took(n)
            if share.drafts:
                self._learn(share, sequence.used - 1)
            if decoding:
                writing += len(rows.tokens)
            else:
                reading += n
                depth += n * (rows.position + n // 2)
                if sequence.background:
                    stats.replayed_tokens += n
                elif not sequence.resumed:
                    stats.prompt_tokens += n
            self._waiting.served(sequence.state.tenant, n)
            self._count_tokens(sequence, before, now)
            self._keep(sequence, reading=not decoding)
            self._settle(sequence)
        stats.rows += writing + reading
        stats.run_seconds += seconds
        self._pace.observe(seconds, writing, reading, depth // reading if reading else 0)

    def _fill_masks(self, batch: list[tuple[Share, Rows]]) -> Future[None] | None:
        """Have another thread compute the masks that this step's choices need, while the plan runs."""
        slow = [
            s.sequence.writing.bounds
            for s, rows in batch
            if rows.wanted and s.sequence.writing is not None and s.sequence.writing.bounds is not None
        ]
        slow = [bounds for bounds in slow if bounds.slow]
        if not slow:
            return None
        if self._aside is None:
            self._aside = ThreadPoolExecutor(1, "llamay masks")

        def fill() -> None:
            for bounds in slow:
                bounds.fill()

        return self._aside.submit(fill)

    def _draw_ahead(self, batch: list[tuple[Share, Rows]], out: Floats) -> None:
        """Draw the next tokens of all who write freely in one call; `choose` then takes what was drawn."""
        ready: list[tuple[Chooser, Floats, int]] = []
        at = 0
        for share, rows in batch:
            sequence = share.sequence
            writing = sequence.writing
            free = rows.wanted and writing is not None and writing.constraint is None
            if free and writing is not None and sequence.channel.completion_tokens < writing.limit:
                ready.append((writing.chooser, out[at], len(sequence.state)))
            at += rows.wanted
        draw_ahead(ready, self.runner.threads)

    def _compute_apart(self, batch: list[tuple[Share, Rows]], error: Exception) -> None:
        """After a step has failed: each of its sequences by itself, so that only the one at fault ends."""
        if len(batch) == 1:
            self._end(batch[0][0].sequence, LlamayError(f"a step of the model failed: {error}"))
            return
        for share, _ in batch:
            again = None if share.sequence.suspended else self._reserve(share, [])
            if again is not None:
                self._compute([(share, again)])

    def _learn(self, share: Share, right: int) -> None:
        self.stats.drafted_tokens += len(share.drafts)
        self.stats.accepted_tokens += right
        writing = share.sequence.writing
        if writing is not None and writing.drafter is not None:
            writing.drafter.learn(len(share.drafts), right)

    def _count_tokens(self, sequence: Sequence, before: int, now: float) -> None:
        """Of the tokens that a step gave a text, and the time since those before them."""
        channel = sequence.channel
        n = channel.completion_tokens - before
        if n:
            self.stats.generated_tokens += n
            if before:
                self.histograms.between_tokens.add(now - channel.last)
            else:
                self.histograms.first_token.add(now - channel.submitted)
            channel.last = now

    def _keep(self, sequence: Sequence, *, reading: bool) -> None:
        """Let others find the whole pages that were computed.

        Of a text that is being written this waits for the end, except where pages are dropped on the way.
        """
        prefixes, size, page = self._prefixes, len(sequence.state.kv), self._page_tokens
        if prefixes is None or not sequence.reuse or size // page <= sequence.kept // page:
            return
        if prefixes.windowed or reading:
            prefixes.keep(sequence.state.kv, sequence.state.tenant, sequence.shared, whole_pages=True)
            sequence.kept = size

    def _advance(self, sequence: Sequence, step: Callable[[], None]) -> None:
        """Let a sequence go on outside of a step."""
        before = sequence.channel.completion_tokens
        self._guarded(sequence, step)
        self._count_tokens(sequence, before, time.perf_counter())
        self._settle(sequence)

    def _guarded(self, sequence: Sequence, step: Callable[[], None]) -> None:
        """What goes wrong in a sequence ends it alone."""
        try:
            step()
        except Exception as error:
            sequence.ending = ("error", _wrapped(error))

    def _settle(self, sequence: Sequence) -> None:
        """End a sequence that said so."""
        if sequence.ending is None:
            return
        reason, error = sequence.ending
        if error is not None:
            self._end(sequence, error)
            return
        self.stats.finished += not sequence.background
        try:
            self._finish(sequence, reason)
        except Exception as failed:  # decoders are other people's code
            self._end(sequence, _wrapped(failed))

    def _fault(self, sequence: Sequence, error: Exception) -> None:
        self._end(sequence, _wrapped(error))

    def _finish(self, sequence: Sequence, reason: FinishReason, error: LlamayError | None = None) -> None:
        """End a sequence, and keep what it computed."""
        state, prefixes = sequence.state, self._prefixes
        self._blocked = None
        if prefixes is not None and sequence.reuse and not sequence.finished and not self._closed:
            prefixes.keep(state.kv, state.tenant, sequence.shared, whole_pages=not sequence.owned)
            prefixes.save(state.kv, state.tenant)
        if sequence.background:
            self._replaying = None
        elif self._comes_back(sequence, reason):
            self._replays.note(state.tokens, sequence.channel.completion_tokens, state.tenant)
        sequence.finish(reason, error)

    def _comes_back(self, sequence: Sequence, reason: FinishReason) -> bool:
        """Whether a client may send this text back, as a turn of a longer prompt."""
        kept = self._prefixes is not None and sequence.reuse and sequence.state.kv.marking is None
        return kept and sequence.writing is not None and reason in ("stop", "length")

    def _end(self, sequence: Sequence, error: LlamayError | None, *, cancelled: bool = False) -> None:
        if sequence.background:
            pass
        elif cancelled:
            self.stats.cancelled += 1
        else:
            self.stats.failed += 1
        try:
            self._finish(sequence, "cancelled" if cancelled else "error", error)
        except Exception as again:  # not even its text can be finished
            sequence.channel.finish("error", LlamayError(f"ending a text failed: {again}"))


def _wrapped(error: Exception) -> LlamayError:
    if isinstance(error, LlamayError):
        return error
    # Constraints and decoders are other people's code.
    wrapped = ConstraintError(f"choosing the next token failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
