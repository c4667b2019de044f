"""The hook through which a grammar, or anything else, decides which tokens may come next."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]


@runtime_checkable
class TokenConstraint(Protocol):
    """Version 1 of the interface `token_constraint`, as much of it as the engine needs.

    The engine calls it from threads of its own, one call at a time. A mask has one bit a token, token `t` in bit
    `t % 32` of word `t // 32`, set where the token may come next. End tokens are tokens like others: they are
    allowed exactly where the text may end. Where nothing else is allowed, the engine ends the text without
    choosing one.

    Where it has them, the engine also uses `fork()`, which returns an independent constraint at the same
    position, for branches; and `forced_tokens(limit)`, tokens that are likely or certain to come next, which
    are then computed in one step. Forced tokens are sampled like any token, so a wrong one only costs time. By
    `vocabulary`, which has a length and `bytes_of(token)`, the engine refuses a constraint that was compiled for the
    tokens of another model; by `len()`, the number of tokens accepted so far, one whose text has ended already. A
    constraint with the method `__llamay_token_constraint__` of `abi/llamay/token_constraint.h` has its masks filled
    natively, those of all texts in one call.
    """

    def fill_mask(self, out: Mask, /) -> None:
        """Write the mask of the next token into `out`, uint32 of shape (ceil(vocab / 32),)."""

    def accept(self, token: int, /) -> None:
        """Take the token that was chosen, one that the mask allows."""
