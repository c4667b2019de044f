"""`Scheduler`: how many rows of a step each sequence gets.

A sequence that decodes gets one row, and more for drafts; sequences in prefill share the rest.
"""

from __future__ import annotations

from collections.abc import Callable

from llamay_models.engine.decoding.draft_model import DraftModelContext
from llamay_models.engine.decoding.drafter import MAX_DRAFT
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.failures import wrapped
from llamay_models.engine.scheduling.admission import Admission
from llamay_models.engine.scheduling.batch_entry import BatchEntry
from llamay_models.engine.scheduling.finishing import Finisher
from llamay_models.engine.scheduling.prefill_budget import PrefillBudget
from llamay_models.engine.state.checkpoints import Checkpoints
from llamay_models.engine.state.prefix_cache import PrefixCache

_REPLAY_ROWS = 64  # of a replay step: a request that arrives meanwhile waits for no more than these


class Scheduler:
    """Makes the batch of a step. Belongs to the engine's thread.

    `advance` is called with a sequence whose logits are known, so that it needs no row.
    """

    def __init__(
        self,
        admission: Admission,
        prefixes: PrefixCache | None,
        page_tokens: int,
        max_rows: int,
        finisher: Finisher,
        advance: Callable[[EngineSequence], None],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._admission = admission
        self._prefixes = prefixes
        self._chunk = (prefixes and prefixes.chunk) or max_rows
        self._page_tokens = page_tokens
        self._max_rows = max_rows
        self._finisher = finisher
        self._advance = advance

    def schedule(self, prefill_budget: PrefillBudget, step: int) -> list[BatchEntry]:
        """Return the batch, the most important sequence first, so that none loses its pages to a less important one."""
        entries: list[BatchEntry] = []
        prefilling: list[EngineSequence] = []
        drafting = False
        for sequence in self._admission.running:
            state, generation = sequence.state, sequence.generation
            if not state.pending and state.logits is not None:
                self._advance(sequence)
                if sequence.ending is not None:
                    continue
            if generation is not None and len(state.pending) == 1:
                entries.append(BatchEntry(sequence, 1, self._checkpoints))
                drafting = (
                    drafting or generation.drafter is not None or generation.constraint_state is not None
                )
            else:
                prefilling.append(sequence)
        if prefilling:
            self._add_prefill(prefilling, entries, prefill_budget, step)
            entries.sort(key=lambda s: (-s.sequence.priority, s.sequence.order))
        if drafting:
            self.add_drafts(entries, prefill_budget)
        return entries

    def _add_prefill(
        self,
        prefilling: list[EngineSequence],
        entries: list[BatchEntry],
        prefill_budget: PrefillBudget,
        step: int,
    ) -> None:
        """Give prompt rows by priority, then to the tenant with the fewest rows so far, then in turn.

        Of several sequences at the same position of equal prompts only one, the leader, gets rows; the others adopt the
        prefix that it computes.
        """
        served = self._admission.waiting.served_rows
        prefilling.sort(key=lambda s: (-s.priority, served(s.state.tenant), s.last_prefill_step, s.order))
        budget = prefill_budget.rows(len(entries), max(len(s.state.kv) for s in prefilling))
        leaders: dict[tuple[str, int, tuple[int, ...]], BatchEntry] = {}
        for sequence in prefilling:
            state, place = sequence.state, None
            if self._prefixes is not None and sequence.reuse and len(state.pending) > self._page_tokens:
                if sequence.deferred_at is not None:
                    self._admission.adopt_shared_prefix(sequence)
                place = (state.tenant, len(state.kv), tuple(state.pending[: self._page_tokens]))
                if place in leaders and sequence.deferred_at != len(state.kv):
                    sequence.deferred_at = len(state.kv)
                    leaders[place].has_followers = True
                    continue
            n = min(budget, self._chunk, len(state.pending))
            if sequence.background:
                n = min(n, _REPLAY_ROWS)
            if n == 0:
                break
            if n < len(state.pending):
                # Up to the end of a page where that is possible: other sequences can share whole pages only.
                over = (len(state.kv) + n) % self._page_tokens
                n = n - over if over < n else n
            sequence.last_prefill_step = step
            entries.append(entry := BatchEntry(sequence, n, self._checkpoints))
            if place is not None:
                leaders[place] = entry
            budget -= n

    def add_drafts(self, entries: list[BatchEntry], prefill_budget: PrefillBudget) -> None:
        """Add drafts to the entries where a right draft would save more than its rows cost."""
        room = self._max_rows - sum(s.n for s in entries)
        cost = prefill_budget.row_cost_share(len(entries))
        asks: list[tuple[BatchEntry, DraftModelContext, int]] = []
        for entry in entries:
            sequence = entry.sequence
            generation = sequence.generation
            if generation is None or entry.n != 1 or len(sequence.state.pending) != 1:
                continue
            most = min(room, generation.limit - sequence.channel.completion_tokens - 1)
            if most < 1:
                continue
            if generation.constraint_state is not None:
                try:
                    entry.drafts = generation.constraint_state.forced_tokens(min(most, 4 * MAX_DRAFT)) or None
                except Exception as error:
                    self._finisher.end(sequence, wrapped(error))
                    continue
            drafter = generation.drafter
            if drafter is not None and entry.drafts is None:
                most = min(most, drafter.length(cost))
                if most and (drafts := drafter.look_up(most)):
                    entry.drafts = drafts
                elif most and drafter.model is not None:
                    asks.append((entry, drafter.model, most))
            if entry.drafts is not None:
                room -= len(entry.drafts)
        if asks and room >= sum(most for _, _, most in asks):
            model = asks[0][1].draft
            for (entry, _, _), drafts in zip(asks, model.propose([(m, n) for _, m, n in asks]), strict=True):
                entry.drafts = drafts or None
