"""`Stepper`: one step of the engine. It reserves pages, runs the plan, chooses tokens and delivers them.

Everything that is known before the plan runs is laid out before, and the tokens of all rows are drawn in one native
call right after it: the time between two runs of the plan is the overhead of the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from llamay_models.backend import Begun
from llamay_models.engine.decoding.constraint_state import fill_all_masks
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.decoding.token_sampler import BatchedDraws
from llamay_models.engine.failures import wrapped
from llamay_models.engine.requests.channel import HeldWakes, wake_held
from llamay_models.engine.runner import Runner
from llamay_models.engine.scheduling.admission import Admission
from llamay_models.engine.scheduling.batch_entry import BatchEntry
from llamay_models.engine.scheduling.draw_layout import MaskThread, lay_out
from llamay_models.engine.scheduling.finishing import Finisher
from llamay_models.engine.scheduling.overlapped import OverlappedStep
from llamay_models.engine.scheduling.page_reservation import PageReservation
from llamay_models.engine.scheduling.prefill_budget import PrefillBudget
from llamay_models.engine.scheduling.step_counters import StepCounters
from llamay_models.engine.state.prefix_cache import PrefixCache
from llamay_models.engine.stats import Histograms, Stats
from llamay_models.errors import LlamayError
from llamay_models.plan.records import Floats


class Stepper:
    """Computes batches. Belongs to the engine's thread."""

    def __init__(
        self,
        admission: Admission,
        prefixes: PrefixCache | None,
        finisher: Finisher,
        stats: Stats,
        histograms: Histograms,
        page_lenders: Iterable[Callable[[], bool]] = (),
    ) -> None:
        self._admission = admission
        self._prefixes = prefixes
        self._finisher = finisher
        self._counters = StepCounters(stats, histograms)
        self._reservation = PageReservation(admission, finisher, page_lenders)
        self._masks = MaskThread()
        self.wakes: HeldWakes = {}
        """The waiting coroutines that are woken together, by event loop."""

    def close(self) -> None:
        """End the thread that computes masks."""
        self._masks.close()

    def step(
        self,
        entries: list[BatchEntry],
        runner: Runner,
        prefill_budget: PrefillBudget,
        overlapped: OverlappedStep,
    ) -> None:
        """Compute a batch, whose entries are in order of importance. May begin the next step."""
        batch: list[BatchEntry] = []
        for entry in entries:
            sequence = entry.sequence
            if (
                not sequence.preempted
                and sequence.channel.finish_reason is None
                and self._reservation.reserve(entry, batch)
            ):
                batch.append(entry)
        if batch:
            self._compute(batch, runner, prefill_budget, overlapped)

    def complete(self, overlapped: OverlappedStep, runner: Runner, prefill_budget: PrefillBudget) -> None:
        """Complete the step that has begun. May begin the next one."""
        batch, begun = overlapped.batch, overlapped.begun
        overlapped.batch, overlapped.begun = [], None
        self._compute(batch, runner, prefill_budget, overlapped, begun)

    def advance(self, sequence: EngineSequence) -> None:
        """Choose the next token of a sequence whose logits are known."""
        before = sequence.channel.completion_tokens
        logits = sequence.state.logits
        assert logits is not None
        try:
            sequence.choose(logits)
        except Exception as error:
            sequence.ending = ("error", wrapped(error))
        self._counters.count_tokens(sequence.channel, before, time.perf_counter())
        self._finisher.finish_if_ending(sequence)

    # -- the run, and the delivery of its tokens

    def _compute(
        self,
        batch: list[BatchEntry],
        runner: Runner,
        prefill_budget: PrefillBudget,
        overlapped: OverlappedStep | None = None,
        begun: Begun | None = None,
    ) -> None:
        """Compute a step, or the rest of one that has begun, and deliver its tokens."""
        wanted = 0
        for entry in batch:
            wanted += entry.wanted
        logits = runner.rows(wanted)
        draws = BatchedDraws()
        late = lay_out(batch, draws)
        followed = False
        masks = self._masks.fill(late) if late else None
        if self.wakes:
            wake_held(self.wakes)  # otherwise the callers would wait for the run
        try:
            if begun is None:
                tokens, errors = runner.step(batch, draws.work)
            else:
                flag, ends = overlapped.continuation_flag(batch) if overlapped is not None else (None, ())
                tokens, errors, followed = runner.finish(begun, draws.work, flag, ends)
        except Exception as error:  # one bad sequence must not take the others with it
            if begun is not None:
                begun.leave()
            for entry in batch:
                entry.commit(0)
            self._compute_apart(batch, error, runner, prefill_budget)
            return
        finally:
            if masks is not None:
                masks.result()
        now = time.perf_counter()
        if draws.work:
            draws.take(tokens, errors)
        if late:
            draws = BatchedDraws()
            for sampler, output, position, constraint in late:
                draws.add(sampler, output, position, constraint)
            draws.draw(logits, runner.backend.sample_batch, runner.threads)
        if followed and overlapped is not None:
            overlapped.begun, overlapped.batch = begun, batch
            self._emit_overlapped(batch, overlapped.take_drawn(batch), now, prefill_budget, overlapped)
            decode_rows, prefill_rows, depth = len(batch), 0, 0
        elif (
            overlapped is not None
            and len(tokens) == len(batch)
            and overlapped.may_overlap(batch, tokens, now)
        ):
            self._begin_next(batch, now, runner, prefill_budget, overlapped)
            decode_rows, prefill_rows, depth = len(batch), 0, 0
        else:
            decode_rows, prefill_rows, depth = self._deliver(batch, logits, now, runner)
        self._counters.count_rows(decode_rows + prefill_rows, runner.seconds)
        prefill_budget.observe(
            runner.seconds, decode_rows, prefill_rows, depth // prefill_rows if prefill_rows else 0
        )

    def _begin_next(
        self,
        batch: list[BatchEntry],
        now: float,
        runner: Runner,
        prefill_budget: PrefillBudget,
        overlapped: OverlappedStep,
    ) -> None:
        """Begin the next step, then emit the text of this step's tokens."""
        tokens = overlapped.take_drawn(batch)
        for entry in batch:
            entry.commit(1)
        if self._prefixes is not None and self._prefixes.windowed:
            for entry in batch:
                self._keep(entry.sequence)
        overlapped.begin(batch, runner, prefill_budget)
        self._emit_overlapped(batch, tokens, now, prefill_budget, overlapped)

    def _emit_overlapped(
        self,
        batch: list[BatchEntry],
        tokens: list[int],
        now: float,
        prefill_budget: PrefillBudget,
        overlapped: OverlappedStep,
    ) -> None:
        for entry in batch:
            self._admission.waiting.count_served(entry.sequence.state.tenant, 1)
            self._counters.count_tokens(
                entry.sequence.channel, entry.sequence.channel.completion_tokens - 1, now
            )
        overlapped.emit(batch, tokens, prefill_budget)

    def _deliver(
        self, batch: list[BatchEntry], logits: list[Floats], now: float, runner: Runner
    ) -> tuple[int, int, int]:
        """Deliver the tokens of the step.

        Returns the numbers of decode rows and of prompt rows, and the sum of the depths of the latter.
        """
        served = self._admission.waiting.count_served
        at, decode_rows, prefill_rows, depth = 0, 0, 0, 0
        constrained: list[EngineSequence] = []
        for entry in batch:
            sequence, n, tokens = entry.sequence, entry.n, entry.tokens
            if entry.overlapped and sequence.ending is not None:
                at += entry.wanted
                entry.commit(0)
                self._finisher.finish_if_ending(sequence)
                continue
            state, drafts = sequence.state, entry.drafts
            before = sequence.channel.completion_tokens
            decoding = entry.overlapped or (before > 0 and sequence.decoding)
            if entry.wanted:
                row, at = at, at + entry.wanted
                if sequence.ending is None:
                    try:
                        if drafts is None:
                            sequence.choose(logits[row], entry.begin + n)
                        else:
                            sequence.verify(logits[row:at], drafts)
                            n += sequence.used_rows - 1
                    except Exception as error:
                        sequence.ending = ("error", wrapped(error))
            entry.commit(n)
            if drafts is not None:
                self._counters.count_drafts(entry)
            if decoding:
                decode_rows += len(tokens)
            else:
                prefill_rows += n
                depth += n * (entry.begin + n // 2)
                self._counters.count_prefill(sequence, n)
            served(state.tenant, n)
            self._counters.count_tokens(sequence.channel, before, now)
            if self._prefixes is not None and (self._prefixes.windowed or not decoding):
                self._keep(sequence)
            if sequence.waits_for_mask:
                constrained.append(sequence)
            elif sequence.ending is not None:
                self._finisher.finish_if_ending(sequence)
        if constrained:
            self._end_complete(constrained, runner)
        return decode_rows, prefill_rows, depth

    def _end_complete(self, constrained: list[EngineSequence], runner: Runner) -> None:
        """Compute the next masks of sequences in one call, and end the texts that are complete."""
        due = [c for s in constrained if (c := s.constraint_state) is not None and c.stale]
        fill_all_masks(due, runner.threads)
        for sequence in constrained:
            try:
                sequence.end_if_complete()
            except Exception as error:
                sequence.ending = ("error", wrapped(error))
            if sequence.ending is not None:
                self._finisher.finish_if_ending(sequence)

    def _compute_apart(
        self, batch: list[BatchEntry], error: Exception, runner: Runner, prefill_budget: PrefillBudget
    ) -> None:
        """Compute the entries of a failed step one by one, so that only the sequence at fault ends."""
        for entry in batch:
            self._finisher.finish_if_ending(entry.sequence)
        batch = [entry for entry in batch if entry.sequence.ending is None]
        if len(batch) == 1:
            self._finisher.end(batch[0].sequence, LlamayError(f"a step of the model failed: {error}"))
            return
        for entry in batch:
            if not entry.sequence.preempted and self._reservation.reserve(entry, []):
                self._compute([entry], runner, prefill_budget)

    def _keep(self, sequence: EngineSequence) -> None:
        """Add the part of a sequence that no longer changes to the prefix cache.

        A text that decodes is added at its end only, except where a sliding window drops pages before.
        """
        prefixes = self._prefixes
        if prefixes is None or not sequence.reuse:
            return
        cache = sequence.state.kv
        size = prefixes.shareable_length(cache)
        if size > sequence.kept_tokens:
            prefixes.keep(cache, sequence.state.tenant, sequence.shared, up_to=size)
            sequence.kept_tokens = size
