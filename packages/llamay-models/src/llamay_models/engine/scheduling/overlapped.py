"""`OverlappedStep`: overlapped scheduling, the next step begins before the text of this one is decoded.

Between two runs of the plan only the tokens are needed. So where the tokens alone decide how every sequence continues,
the other threads begin the next step at once, while this thread decodes text, searches for stop strings and delivers.
A text that turns out to have ended gives back the positions that were reserved for its next token: its context is then
as if that step had not begun.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import llamay_kv as kv
from llamay_models.backend import Begun, Flag
from llamay_models.engine.decoding.constraint_state import fill_all_masks
from llamay_models.engine.decoding.generation_state import GenerationState
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.failures import wrapped
from llamay_models.engine.runner import Runner
from llamay_models.engine.scheduling.admission import Admission
from llamay_models.engine.scheduling.batch_entry import BatchEntry
from llamay_models.engine.scheduling.finishing import Finisher
from llamay_models.engine.state.checkpoints import Checkpoints

if TYPE_CHECKING:
    from llamay_models.engine.scheduling.prefill_budget import PrefillBudget


class OverlappedStep:
    """The step that has begun, if one has. Belongs to the engine's thread.

    `add_drafts` adds drafts to entries; `others_wait` returns whether another thread waits for the engine. While one
    does, and whenever a sequence may join or leave, no step is begun early.
    """

    def __init__(
        self,
        admission: Admission,
        finisher: Finisher,
        add_drafts: Callable[[list[BatchEntry], PrefillBudget], None],
        others_wait: Callable[[], bool],
        page_tokens: int,
        flag: Flag,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self.flag = flag
        """A flag that is set whenever `others_wait` becomes true: then no step begins by itself."""
        self.begun: Begun | None = None
        self.batch: list[BatchEntry] = []
        self._admission = admission
        self._finisher = finisher
        self._add_drafts = add_drafts
        self._others_wait = others_wait
        self._page_tokens = page_tokens
        self._ends: tuple[int, ...] = ()

    def may_overlap(self, batch: list[BatchEntry], tokens: list[int], now: float) -> bool:
        """Return whether every sequence continues with one more token, independent of its text."""
        admission = self._admission
        if len(batch) != len(admission.running) or self._others_wait() or not admission.steady:
            return False
        for entry, token in zip(batch, tokens, strict=True):
            sequence = entry.sequence
            channel, generation, deadline = sequence.channel, sequence.generation, sequence.deadline
            if (
                generation is None
                or token < 0
                or token in generation.ends
                or generation.sampler.scores
                or (
                    (generation.make_constraint_state or generation.constraint_state) is not None
                    and not self._mask_is_quick(generation)
                )
                or entry.drafts is not None
                or entry.n != 1
                or not 0 < channel.completion_tokens < generation.limit - 1
                or channel.cancelled
                or sequence.ending is not None
                or (deadline is not None and now >= deadline)
            ):
                return False
        return True

    def continuation_flag(self, batch: list[BatchEntry]) -> tuple[Flag | None, tuple[int, ...]]:
        """Return the flag that keeps the backend from beginning another step by itself, and the tokens that end a text.

        The flag is None where no step may begin by itself.
        """
        # Cleared before `others_wait` is asked: a thread that comes later sets it again.
        self.flag.set(False)
        if self._others_wait() or len(batch) != len(self._admission.running) or not self._admission.steady:
            return None, ()
        for entry in batch:
            sequence = entry.sequence
            if (
                not entry.spare_positions  # there is none after the last allowed token either
                or sequence.ending is not None
                or sequence.deadline is not None
                or sequence.channel.cancelled
            ):
                return None, ()
        return self.flag, self._ends

    def take_drawn(self, batch: list[BatchEntry]) -> list[int]:
        """Take the tokens that were drawn with a step. Its logits may be overwritten already by the next step."""
        tokens = []
        for entry in batch:
            tokens.append(token := entry.sequence.take_drawn(entry.begin + 1))
            if self.begun is not None:
                entry.advance(token)
        return tokens

    def begin(self, batch: list[BatchEntry], runner: Runner, prefill_budget: PrefillBudget) -> None:
        """Begin the next step of the same sequences.

        Where that is impossible no step begins, and the next regular step meets the same error and handles it.
        """
        entries = [BatchEntry(entry.sequence, 1, self._checkpoints) for entry in batch]
        free = [s for s in entries if s.sequence.constraint_state is None]
        drafting = any(
            s.sequence.generation is not None and s.sequence.generation.drafter is not None for s in free
        )
        if drafting:
            self._add_drafts(free, prefill_budget)
        taken = 0
        try:
            for entry in entries:
                entry.reserve(
                    0 if drafting or len(free) < len(entries) else self._spare_positions(entry, len(entries))
                )
                entry.overlapped = True
                taken += 1
            runner.rows(sum(entry.wanted for entry in entries))
            self.begun = runner.begin(entries)
        except (kv.OutOfPagesError, kv.PagesLostError, ValueError, MemoryError):
            for entry in entries[:taken]:
                entry.release()
            return
        self.batch = entries
        self._ends = tuple(
            {end for s in entries if s.sequence.generation is not None for end in s.sequence.generation.ends}
        )

    def _spare_positions(self, entry: BatchEntry, texts: int) -> int:
        """Return how many further positions cost no memory: those left on the page of the next one.

        With recurrent layers each position costs a state until the step is committed.
        """
        sequence = entry.sequence
        assert sequence.generation is not None
        left = sequence.generation.limit - sequence.channel.completion_tokens - 1
        most = self._page_tokens - 1 - len(sequence.state.kv) % self._page_tokens
        if self._checkpoints is not None:
            most = min(most, self._checkpoints.room(texts))
        return min(most, max(0, left))

    @staticmethod
    def _mask_is_quick(generation: GenerationState) -> bool:
        """Return whether the next mask takes too little time to be worth another thread."""
        constraint, drafter = generation.constraint_state, generation.drafter
        return constraint is not None and not constraint.slow and (drafter is None or drafter.model is None)

    def emit(self, batch: list[BatchEntry], tokens: list[int], prefill_budget: PrefillBudget) -> None:
        """Emit the text of tokens that were taken. A text that ends by that finishes after the begun step."""
        for entry, token in zip(batch, tokens, strict=True):
            try:
                entry.sequence.emit(token)
            except Exception as error:  # a decoder may raise anything
                entry.sequence.ending = ("error", wrapped(error))
        constrained = [s.sequence for s in batch if s.sequence.constraint_state is not None]
        if constrained and self._fill_next_masks(constrained, prefill_budget.row_cost_share(len(batch))):
            self.abandon()
        if all(s.sequence.ending is not None or s.sequence.channel.cancelled for s in batch):
            self.abandon()
        if self.begun is None:
            for entry in batch:
                self._finisher.finish_if_ending(entry.sequence)

    def _fill_next_masks(self, constrained: list[EngineSequence], row_cost_share: float) -> bool:
        """Compute the next masks of sequences, and return whether one of them could now have drafts."""
        due = [c for s in constrained if (c := s.constraint_state) is not None and c.stale]
        fill_all_masks(due)  # by this thread alone: the other threads compute the step
        more = False
        for sequence in constrained:
            if sequence.ending is not None:
                continue
            try:
                sequence.end_if_complete()
                more = more or (sequence.ending is None and self._can_draft_now(sequence, row_cost_share))
            except Exception as error:  # a constraint may raise anything
                sequence.ending = ("error", wrapped(error))
        return more

    @staticmethod
    def _can_draft_now(sequence: EngineSequence, row_cost_share: float) -> bool:
        """Return whether there is a draft, which could not be made before the constraint had accepted the token."""
        generation = sequence.generation
        if (
            generation is None
            or generation.constraint_state is None
            or generation.limit - sequence.channel.completion_tokens < 2
        ):
            return False
        if generation.constraint_state.forced_tokens(1):
            return True
        drafter = generation.drafter
        return drafter is not None and bool(drafter.pays(row_cost_share) and drafter.look_up(1))

    def abandon(self) -> None:
        """Give up the begun step, and the positions that were reserved for it."""
        if self.begun is None:
            return
        self.begun.leave()
        self.begun = None
        for entry in self.batch:
            entry.commit(0)
        self.batch = []
