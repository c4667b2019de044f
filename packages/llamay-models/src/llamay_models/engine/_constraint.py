"""The hook through which a grammar, or anything else, decides which tokens may come next."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from llamay_models.errors import ConstraintError

Mask = npt.NDArray[np.uint32]


@runtime_checkable
class TokenConstraint(Protocol):
    """Version 1 of the interface `token_constraint`, as much of it as the engine uses.

    The engine calls it from its own thread, one call at a time. A mask has one bit a token, token `t` in bit `t % 32`
    of word `t // 32`, set where the token may come next. End tokens are tokens like others: they are allowed
    exactly where the text may end. Where nothing else is allowed, the engine ends the text without choosing one.
    """

    def fill_mask(self, out: Mask, /) -> None:
        """Write the mask of the next token into `out`, uint32 of shape (ceil(vocab / 32),)."""

    def accept(self, token: int, /) -> None:
        """Take the token that was chosen, one that the mask allows."""


class Bounds:
    """A constraint at work: its mask for the next token, always up to date."""

    def __init__(self, constraint: TokenConstraint, vocab: int, ends: frozenset[int]) -> None:
        self._constraint = constraint
        self._taken = 0
        self.mask: Mask = np.zeros((vocab + 31) // 32, np.uint32)
        self._ends = np.zeros_like(self.mask)
        for token in ends:
            self._ends[token // 32] |= np.uint32(1 << token % 32)
        self._fill()

    def accept(self, token: int) -> None:
        """Take a token. Raises ConstraintError if nothing may follow it."""
        self._constraint.accept(token)
        self._taken += 1
        self._fill()

    @property
    def finished(self) -> bool:
        """Whether only an end token may come next."""
        return not (self.mask & ~self._ends).any()

    def _fill(self) -> None:
        self._constraint.fill_mask(self.mask)
        if not self.mask.any():
            raise ConstraintError(f"the constraint allows no token after {self._taken} of its text")
