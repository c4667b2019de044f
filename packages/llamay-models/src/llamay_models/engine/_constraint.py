"""The hook through which a grammar, or anything else, decides which tokens may come next."""

from __future__ import annotations

import time
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from llamay_models.errors import ConstraintError

Mask = npt.NDArray[np.uint32]

# A mask that takes longer than this, in seconds, is computed while the plan runs.
_SLOW = 3e-4


@runtime_checkable
class TokenConstraint(Protocol):
    """Version 1 of the interface `token_constraint`, as much of it as the engine needs.

    The engine calls it from threads of its own, one call at a time. A mask has one bit a token, token `t` in bit
    `t % 32` of word `t // 32`, set where the token may come next. End tokens are tokens like others: they are
    allowed exactly where the text may end. Where nothing else is allowed, the engine ends the text without
    choosing one.

    Where it has them, the engine also uses `fork()`, which returns an independent constraint at the same
    position, for branches; and `forced_tokens(limit)`, tokens that are likely or certain to come next, which
    are then computed in one step. What is forced is sampled like any token, so a wrong one only costs time.
    """

    def fill_mask(self, out: Mask, /) -> None:
        """Write the mask of the next token into `out`, uint32 of shape (ceil(vocab / 32),)."""

    def accept(self, token: int, /) -> None:
        """Take the token that was chosen, one that the mask allows."""


class Bounds:
    """A constraint at work, and its mask for the next token, computed when it is first needed."""

    def __init__(self, constraint: TokenConstraint, vocab: int, ends: frozenset[int]) -> None:
        self._constraint = constraint
        self._vocab = vocab
        self._taken = 0
        self._stale = True
        self._seconds = 0.0
        self._mask: Mask = np.zeros((vocab + 31) // 32, np.uint32)
        self._error: Exception | None = None
        self._end_tokens = ends
        self._ends = np.zeros_like(self._mask)
        for token in ends:
            self._ends[token // 32] |= np.uint32(1 << token % 32)

    def accept(self, token: int) -> None:
        """Take a token."""
        self._constraint.accept(token)
        self._taken += 1
        self._stale = True

    @property
    def mask(self) -> Mask:
        """Of the next token. Raises ConstraintError if nothing may follow, or what the constraint raised."""
        self.fill()
        if self._error is not None:
            raise self._error
        return self._mask

    @property
    def slow(self) -> bool:
        """Whether the next mask is not there yet, and would take long."""
        return self._stale and self._seconds > _SLOW

    @property
    def finished(self) -> bool:
        """Whether only an end token may come next."""
        return not (self.mask & ~self._ends).any()

    def fill(self) -> None:
        """Compute the mask if it is not there; what goes wrong is told to whoever asks for it."""
        if not self._stale:
            return
        began = time.perf_counter()
        try:
            self._constraint.fill_mask(self._mask)
            self._error = None
            if not self._mask.any():
                raise ConstraintError(f"the constraint allows no token after {self._taken} of its text")
        except Exception as error:  # other people's code
            self._error = error
        self._stale = False
        self._seconds += 0.3 * (time.perf_counter() - began - self._seconds)

    def forced(self, limit: int) -> list[int]:
        """Return the run of tokens that must come next, at most `limit`, where the mask leaves no choice."""
        tokens = getattr(self._constraint, "forced_tokens", None)
        if tokens is None or self._stale or np.count_nonzero(self._mask) != 1:
            return []
        (word,) = self._mask[self._mask.nonzero()]
        return list(tokens(limit))[:limit] if int(word).bit_count() == 1 else []

    def fork(self) -> Bounds:
        """Return the same with a constraint of its own. Raises ConstraintError if the constraint cannot fork."""
        fork = getattr(self._constraint, "fork", None)
        if fork is None:
            raise ConstraintError(
                f"a {type(self._constraint).__name__} cannot fork, so its text cannot branch"
            )
        twin = Bounds(fork(), self._vocab, self._end_tokens)
        twin._taken = self._taken
        return twin
