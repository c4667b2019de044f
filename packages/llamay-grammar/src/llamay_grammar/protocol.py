"""The interface between a grammar and an engine."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

__all__ = ["TokenConstraint"]


@runtime_checkable
class TokenConstraint(Protocol):
    """A position in a document, as an engine sees it: the interface ``token_constraint`` 1.0.

    An engine that wants to work without the GIL takes the C struct of ``llamay/token_constraint.h`` from the capsule
    that `__llamay_token_constraint__` returns; the methods here do the same from Python.
    """

    def fill_mask(self, out: npt.NDArray[np.uint32]) -> None:
        """Set bit ``t % 32`` of ``out[t // 32]`` for every token ``t`` that may come next, clear all others."""

    def accept(self, token: int) -> None:
        """Move past a token, or raise and stay."""

    def rollback(self, n: int) -> None:
        """Take back the last n tokens."""

    def fork(self) -> TokenConstraint:
        """Return an independent constraint at the same position, in constant time."""

    def forced_tokens(self, limit: int = ...) -> list[int]:
        """Return the run of tokens each of which is the only one allowed."""

    @property
    def is_complete(self) -> bool:
        """Whether the document may end here."""

    def __llamay_token_constraint__(self) -> object:
        """Return a capsule ``llamay.token_constraint.v1``."""
