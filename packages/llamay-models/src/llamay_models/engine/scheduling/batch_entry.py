"""`BatchEntry`: the rows of one sequence in the batch of a step."""

from __future__ import annotations

import llamay_kv as kv
from llamay_models.engine.decoding.sequence import EngineSequence
from llamay_models.engine.runner import StepRows
from llamay_models.engine.state.checkpoints import Checkpoints


class BatchEntry(StepRows):
    """The rows of one sequence: its next `n` pending tokens, and drafts that are verified after them.

    The members of `StepRows` are set when memory for the rows is reserved.

    Attributes:
        begin: the position of the first row in its context.
        ids: the token ids that are committed.
        drafts: the drafted tokens; None for none.
        overlapped: whether the rows are computed before the text so far was decoded.
        earlier_ids: tokens before these rows whose K/V the same lease holds.
        spare_positions: how many positions the lease has after these rows.
        checkpoints: where recurrent layers keep states; None without such layers.
        skips_optional_states: whether the states that only save later computation are not written.
        has_followers: whether other sequences wait to continue from the end of these rows.

    """

    __slots__ = (
        "begin",
        "checkpoints",
        "drafts",
        "earlier_ids",
        "has_followers",
        "ids",
        "n",
        "overlapped",
        "sequence",
        "skips_optional_states",
        "spare_positions",
    )

    def __init__(self, sequence: EngineSequence, n: int, checkpoints: Checkpoints | None = None) -> None:
        self.sequence = sequence
        self.n = n
        self.checkpoints = checkpoints
        self.skips_optional_states = self.has_followers = False
        self.drafts: list[int] | None = None
        self.overlapped = False
        self.earlier_ids: list[int] = []
        self.spare_positions = 0
        self.inputs = None

    def reserve(self, room: int = 0) -> None:
        """Reserve positions for the rows, and `room` more. Raises what `kv.Context.reserve` and `State.describe` do."""
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
        if state.has_vectors:
            self.tokens, self.position, self.inputs = state.describe(self.ids)
        else:
            self.tokens, self.position = self.ids, self.begin
        if self.checkpoints is None:
            self.lease = state.kv.reserve(size)
        else:
            self.lease = state.kv.reserve(size, states=self._states(self.checkpoints, self.begin, size))
        self.spare_positions = room

    def _states(self, checkpoints: Checkpoints, begin: int, size: int) -> list[int]:
        """Return the rows, beside the last, after which recurrent layers write a state."""
        if self.drafts is not None or size > self.n:  # the context may end after any of them
            return list(range(1, size))
        return (
            []
            if self.skips_optional_states
            else checkpoints.within(begin, begin + size, self.sequence.checkpoint_positions)
        )

    def advance(self, token: int) -> None:
        """Become the entry of the next row, in the same lease."""
        self.earlier_ids += self.ids
        self.tokens = self.ids = [token]
        self.position += 1
        self.begin += 1
        self.inputs = None
        self.spare_positions -= 1

    def commit(self, n: int) -> None:
        """Commit the earlier rows and the first n of these to the context; the other positions are given back."""
        ids = self.ids if n == len(self.ids) else self.ids[:n]
        if self.earlier_ids:
            ids = [*self.earlier_ids, *ids]
        assert self.lease is not None
        if self.checkpoints is None:
            self.lease.commit(ids)
        else:
            self._commit(self.checkpoints, self.lease, ids)
        self.sequence.mark_committed(len(ids))

    def _commit(self, checkpoints: Checkpoints, lease: kv.Lease, ids: list[int]) -> None:
        """Commit, and keep the states at the positions where checkpoints are due."""
        prefill = self.drafts is None and len(lease) == self.n
        begin = lease.begin
        lease.commit(ids, checkpoints=prefill)
        if ids:
            cache = self.sequence.state.kv
            end = len(cache)
            due = checkpoints.due(begin, end, within=prefill and not self.skips_optional_states)
            if due or self.has_followers or end in self.sequence.checkpoint_positions:
                cache.checkpoint()
