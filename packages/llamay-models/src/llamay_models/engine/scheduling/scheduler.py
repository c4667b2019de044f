"""`Scheduler`: who gets how many rows of a step. Writers one each, and more for guesses; readers share the rest."""

from __future__ import annotations

from collections.abc import Callable

import llamay_kv as kv
from llamay_models.engine.decoding.sequence import Sequence
from llamay_models.engine.decoding.speculation import MOST, ModelDrafter
from llamay_models.engine.runner import Rows
from llamay_models.engine.scheduling.admission import Admission
from llamay_models.engine.scheduling.finishing import Endings, wrapped
from llamay_models.engine.scheduling.prefill_budget import PrefillBudget
from llamay_models.engine.state.checkpoints import Checkpoints
from llamay_models.engine.state.prefix_cache import Prefixes

_REPLAY_ROWS = 64  # of a step that nobody waits for: who comes meanwhile waits for no more than these


class Share(Rows):
    """What a sequence gets of a step: its next `n` pending tokens, and guesses that are checked after them.

    What the rows are is known once memory for them is reserved. `begin` is the place of the first in its context, and
    `ids` is what is committed. `overlapped` says that they are computed before the text
    so far was looked at. `done` are tokens before these whose K/V the same lease has, and `room` for how many after
    these it has positions. `checkpoints` says where recurrent layers keep states, `spare` that the prompt is read
    without those that could be done without, and `company` that others wait to go on from here.
    """

    __slots__ = (
        "begin",
        "checkpoints",
        "company",
        "done",
        "drafts",
        "ids",
        "n",
        "overlapped",
        "room",
        "sequence",
        "spare",
    )

    def __init__(self, sequence: Sequence, n: int, checkpoints: Checkpoints | None = None) -> None:
        self.sequence = sequence
        self.n = n
        self.checkpoints = checkpoints
        self.spare = self.company = False
        self.drafts: list[int] | None = None
        self.overlapped = False
        self.done: list[int] = []
        self.room = 0
        self.inputs = None

    def reserve(self, room: int = 0) -> None:
        """Take memory for the rows, and for `room` more. Raises what `kv.Context.reserve` and `State.describe` do."""
        state, n, drafts = self.sequence.state, self.n, self.drafts
        pending = state.pending
        self.wanted = 1 if n == len(pending) else 0
        if drafts is None:
            self.ids = pending[:n]
            size = n + room
        else:
            self.ids = [*pending[:n], *drafts]
            self.wanted += len(drafts)
            size = n + len(drafts)
        self.begin = len(state.kv)
        if state.mixed:
            self.tokens, self.position, self.inputs = state.describe(self.ids)
        else:
            self.tokens, self.position = self.ids, self.begin
        if self.checkpoints is None:
            self.lease = state.kv.reserve(size)
        else:
            self.lease = state.kv.reserve(size, states=self._states(self.checkpoints, self.begin, size))
        self.room = room

    def _states(self, checkpoints: Checkpoints, begin: int, size: int) -> list[int]:
        """After which of the rows, beside the last, recurrent layers leave a state."""
        if self.drafts is not None or size > self.n:  # it may end after any of them
            return list(range(1, size))
        return (
            [] if self.spare else checkpoints.within(begin, begin + size, self.sequence.checkpoint_positions)
        )

    def go_on(self, token: int) -> None:
        """Be the row after this one, in the same lease."""
        self.done += self.ids
        self.tokens = self.ids = [token]
        self.position += 1
        self.begin += 1
        self.inputs = None
        self.room -= 1

    def commit(self, n: int) -> None:
        """Make the first n rows, and those before, part of the context; what else was reserved is given back."""
        ids = self.ids if n == len(self.ids) else self.ids[:n]
        if self.done:
            ids = [*self.done, *ids]
        assert self.lease is not None
        if self.checkpoints is None:
            self.lease.commit(ids)
        else:
            self._commit(self.checkpoints, self.lease, ids)
        self.sequence.took(len(ids))

    def _commit(self, checkpoints: Checkpoints, lease: kv.Lease, ids: list[int]) -> None:
        """Commit, and keep the states that are worth it."""
        reads = self.drafts is None and len(lease) == self.n
        begin = lease.begin
        lease.commit(ids, checkpoints=reads)
        if ids:
            cache = self.sequence.state.kv
            end = len(cache)
            due = checkpoints.due(begin, end, within=reads and not self.spare)
            if due or self.company or end in self.sequence.checkpoint_positions:
                cache.checkpoint()


class Scheduler:
    """Decides what is computed in a step. Belongs to the engine's thread.

    `advance` is called with a sequence that can go on without computing anything.
    """

    def __init__(
        self,
        admission: Admission,
        prefixes: Prefixes | None,
        page_tokens: int,
        max_rows: int,
        endings: Endings,
        advance: Callable[[Sequence], None],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._checkpoints = checkpoints
        self._admission = admission
        self._prefixes = prefixes
        self._chunk = (prefixes and prefixes.chunk) or max_rows
        self._page_tokens = page_tokens
        self._max_rows = max_rows
        self._endings = endings
        self._advance = advance

    def shares(self, prefill_budget: PrefillBudget, step: int) -> list[Share]:
        """Return what is to be computed, the most important first: nobody loses pages to a less important one."""
        shares: list[Share] = []
        readers: list[Sequence] = []
        guessing = False
        for sequence in self._admission.running:
            state, generation = sequence.state, sequence.generation
            if not state.pending and state.logits is not None:
                self._advance(sequence)
                if sequence.ending is not None:
                    continue
            if generation is not None and len(state.pending) == 1:
                shares.append(Share(sequence, 1, self._checkpoints))
                guessing = (
                    guessing or generation.drafter is not None or generation.constraint_state is not None
                )
            else:
                readers.append(sequence)
        if readers:
            self._share_reading(readers, shares, prefill_budget, step)
            shares.sort(key=lambda s: (-s.sequence.priority, s.sequence.order))
        if guessing:
            self.guess(shares, prefill_budget)
        return shares

    def _share_reading(
        self, readers: list[Sequence], shares: list[Share], prefill_budget: PrefillBudget, step: int
    ) -> None:
        """Readers by priority, then the tenant that was given least, then in turn.

        Of several that stand at the same place of the same prompt one reads, and the others take what it has read.
        """
        served = self._admission.waiting.share
        readers.sort(key=lambda s: (-s.priority, served(s.state.tenant), s.last_prefill_step, s.order))
        budget = prefill_budget.rows(len(shares), max(len(s.state.kv) for s in readers))
        leaders: dict[tuple[str, int, tuple[int, ...]], Share] = {}
        for sequence in readers:
            state, place = sequence.state, None
            if self._prefixes is not None and sequence.reuse and len(state.pending) > self._page_tokens:
                if sequence.passed is not None:
                    self._admission.adopt_shared_prefix(sequence)
                place = (state.tenant, len(state.kv), tuple(state.pending[: self._page_tokens]))
                if place in leaders and sequence.passed != len(state.kv):
                    sequence.passed = len(state.kv)
                    leaders[place].company = True
                    continue
            n = min(budget, self._chunk, len(state.pending))
            if sequence.background:
                n = min(n, _REPLAY_ROWS)
            if n == 0:
                break
            if n < len(state.pending):
                # Up to the end of a page if it can be: whole pages are what others can use.
                over = (len(state.kv) + n) % self._page_tokens
                n = n - over if over < n else n
            sequence.last_prefill_step = step
            shares.append(share := Share(sequence, n, self._checkpoints))
            if place is not None:
                leaders[place] = share
            budget -= n

    def guess(self, shares: list[Share], prefill_budget: PrefillBudget) -> None:
        """Guess what comes next where a guess that is right would save a step."""
        room = self._max_rows - sum(s.n for s in shares)
        cost = prefill_budget.row_cost_share(len(shares))
        asks: list[tuple[Share, ModelDrafter, int]] = []
        for share in shares:
            sequence = share.sequence
            generation = sequence.generation
            if generation is None or share.n != 1 or len(sequence.state.pending) != 1:
                continue
            most = min(room, generation.limit - sequence.channel.completion_tokens - 1)
            if most < 1:
                continue
            if generation.constraint_state is not None:
                try:
                    share.drafts = generation.constraint_state.forced_tokens(min(most, 4 * MOST)) or None
                except Exception as error:
                    self._endings.end(sequence, wrapped(error))
                    continue
            drafter = generation.drafter
            if drafter is not None and share.drafts is None:
                most = min(most, drafter.length(cost))
                if most and (drafts := drafter.look_up(most)):
                    share.drafts = drafts
                elif most and drafter.model is not None:
                    asks.append((share, drafter.model, most))
            if share.drafts is not None:
                room -= len(share.drafts)
        if asks and room >= sum(most for _, _, most in asks):
            model = asks[0][1].draft
            for (share, _, _), drafts in zip(asks, model.propose([(m, n) for _, m, n in asks]), strict=True):
                share.drafts = drafts or None
