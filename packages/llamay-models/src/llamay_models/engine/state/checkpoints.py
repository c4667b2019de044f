"""`Checkpoints`: the positions at which states of recurrent layers are kept.

A context can be truncated to them, and prefixes be shared up to them: K/V of attention can be cut anywhere, but a
state belongs to one length. A step that may commit fewer rows than it computes
(with drafts, or followed by a step that begins by itself) writes the state after each row. Beside that states are kept

- one token before a prompt ends, from where the same prompt and every longer one can continue,
- where a prompt departs from the known ones, which is the end of a system prompt,
- at the end of the tokens that belong to no tenant, and of each turn,
- at the multiples of a stride.

Pan et al. 2024, "Marconi: Prefix Caching for the Era of Hybrid LLMs", https://arxiv.org/abs/2411.19379, keep states at
positions of the first two kinds. The pool bounds the bytes of a context's states, the prefix tree those of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

import llamay_kv as kv

# The stride is so long that a token costs at most so many bytes of states: about as much as K/V of a small model.
_BYTES_PER_TOKEN = 16 << 10
_LEAST_STRIDE = 64  # chunks of the disk cache end at its multiples
# The most bytes of states that all texts may have reserved for steps that begin by themselves.
_ROOM_BYTES = 64 << 20


class Checkpoints:
    """The positions of the states in the contexts of one pool."""

    def __init__(self, pool: kv.Pool, state_bytes: int) -> None:
        self.state_bytes = state_bytes
        self.stride = _LEAST_STRIDE
        while self.stride * _BYTES_PER_TOKEN < state_bytes:
            self.stride *= 2
        self._page = pool.page_tokens

    @classmethod
    def of(cls, pool: kv.Pool) -> Checkpoints | None:
        """Return the checkpoints of a pool; None where all layers can be cut anywhere."""
        sizes = [
            size
            for size, group in zip(pool.page_bytes, pool.layout.groups, strict=True)
            if group.kind == "state"
        ]
        return cls(pool, sum(sizes)) if sizes else None

    def positions(
        self, begin: int, end: int, *, shared: int = 0, parting: int = 0, chunk: int = 0
    ) -> tuple[int, ...]:
        """Return the lengths at which a prompt's states are kept during its prefill from `begin` to `end`.

        The first `shared` tokens, rounded down to pages, belong to no tenant; `parting` is the length at which the
        prompt departs from the known ones; `chunk` is the number of tokens that the disk cache stores together, 0
        without one.
        """
        wanted = {end - 1, shared // self._page * self._page, parting}
        if chunk:
            wanted.add((end - 1) // chunk * chunk)
        return tuple(sorted(n for n in wanted if begin < n < end))

    def within(self, begin: int, end: int, positions: Iterable[int]) -> list[int]:
        """Return the rows from `begin` to `end`, without the last, after which states are kept."""
        kept = {n for n in positions if begin < n < end}
        kept.update(range((begin // self.stride + 1) * self.stride, end, self.stride))
        return sorted(n - begin for n in kept)

    def due(self, begin: int, end: int, *, within: bool) -> bool:
        """Return whether the state after the rows from `begin` to `end` is kept.

        `within` says that the states of the method `within` are kept as well.
        """
        return end % self.stride == 0 if within else begin // self.stride < end // self.stride

    def room(self, texts: int) -> int:
        """Return how many rows each of `texts` texts may have states reserved for."""
        return _ROOM_BYTES // (self.state_bytes * max(1, texts))
