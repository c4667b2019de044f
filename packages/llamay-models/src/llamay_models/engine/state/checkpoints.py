"""`Checkpoints`: where states of recurrent layers are kept, so that a text can go back there and another begin there.

K/V of attention can be cut anywhere; a state stands for one length. A step that may keep fewer rows than it computes
(drafts, a step that follows by itself) writes the state after each row. Beside that states are kept one token before a
prompt ends, where the same prompt and every longer one can begin; where a prompt parts from those that are known, which
are the ends of system prompts; at the end of what is everybody's and of each turn; and every so many tokens. Pan et al.
2024, "Marconi: Prefix Caching for the Era of Hybrid LLMs", https://arxiv.org/abs/2411.19379, keep states at places of
the first two kinds. The pool bounds the bytes of a context's states, the prefix tree those of all that it has.
"""

from __future__ import annotations

from collections.abc import Iterable

import llamay_kv as kv

# Between states that are kept for their place alone there are so many tokens that a token costs at most so many bytes:
# about as much as K/V of a small model.
_BYTES_PER_TOKEN = 16 << 10
_LEAST_STRIDE = 64  # chunks of the disk cache end at its multiples
_ROOM_BYTES = (
    64 << 20
)  # of states that steps of all texts may have ahead, to follow one another by themselves


class Checkpoints:
    """The states that texts of one pool keep. `of` gives None for a pool without recurrent layers."""

    def __init__(self, pool: kv.Pool, state_bytes: int) -> None:
        self.state_bytes = state_bytes
        self.stride = _LEAST_STRIDE
        while self.stride * _BYTES_PER_TOKEN < state_bytes:
            self.stride *= 2
        self._page = pool.page_tokens

    @classmethod
    def of(cls, pool: kv.Pool) -> Checkpoints | None:
        """Return what is to be kept in a pool; None where all layers can be cut anywhere."""
        sizes = [
            size
            for size, group in zip(pool.page_bytes, pool.layout.groups, strict=True)
            if group.kind == "state"
        ]
        return cls(pool, sum(sizes)) if sizes else None

    def positions(
        self, begin: int, end: int, *, shared: int = 0, parting: int = 0, chunk: int = 0
    ) -> tuple[int, ...]:
        """Return the lengths at which a prompt's states are kept while it is read from `begin` to `end`.

        `shared` tokens are everybody's, rounded down to pages; `parting` is where it parts from what is known; `chunk`
        what the disk cache stores at a time, 0 where there is none.
        """
        wanted = {end - 1, shared // self._page * self._page, parting}
        if chunk:
            wanted.add((end - 1) // chunk * chunk)
        return tuple(sorted(n for n in wanted if begin < n < end))

    def within(self, begin: int, end: int, positions: Iterable[int]) -> list[int]:
        """Return after which of the rows from `begin` to `end` states are kept, the last left out."""
        kept = {n for n in positions if begin < n < end}
        kept.update(range((begin // self.stride + 1) * self.stride, end, self.stride))
        return sorted(n - begin for n in kept)

    def due(self, begin: int, end: int, *, within: bool) -> bool:
        """Whether the state after rows from `begin` to `end` is kept; `within` says that those of `within` are."""
        return end % self.stride == 0 if within else begin // self.stride < end // self.stride

    def room(self, texts: int) -> int:
        """For how many rows ahead so many texts may have states."""
        return _ROOM_BYTES // (self.state_bytes * max(1, texts))
