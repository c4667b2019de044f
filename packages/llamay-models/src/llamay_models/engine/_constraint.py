"""The hook through which a grammar, or anything else, decides which tokens may come next."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]


@runtime_checkable
class TokenConstraint(Protocol):
    """Version 1 of the interface `token_constraint`.

    The engine calls it from its own thread, one call at a time.

    A mask has one bit a token, token `t` in bit `t % 32` of word `t // 32`, set where the token may come
    next. End tokens are tokens like others: they are allowed exactly where the text may end.
    """

    def fill_mask(self, mask: Mask) -> None:
        """Write the mask of the next token into `mask`, uint32 of shape (ceil(vocab / 32),)."""

    def accept(self, token: int) -> None:
        """Take the token that was chosen, one that the mask allows."""

    def fork(self) -> TokenConstraint:
        """Return a constraint in the same state that goes its own way."""

    @property
    def finished(self) -> bool:
        """Whether nothing but an end token could follow: the engine then ends the text by itself."""


def mask_words(vocab: int) -> int:
    """How many words a mask of this vocabulary has."""
    return (vocab + 31) // 32
