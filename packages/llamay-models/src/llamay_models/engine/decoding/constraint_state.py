"""`ConstraintState`: a token constraint at work on one text, and the mask of its next token."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from llamay_models.backend import FillMasks, Threads
from llamay_models.engine.failures import described
from llamay_models.engine.requests.token_constraint import Mask, TokenConstraint
from llamay_models.errors import ConstraintError

# A mask that takes longer is computed while the plan runs.
_SLOW_SECONDS = 3e-4
# Masks that together take less are computed before another thread has woken up.
_THREAD_SECONDS = 5e-5


class ConstraintState:
    """A constraint at work, and its mask for the next token, computed when it is first needed.

    `fill_masks` is the backend's, for constraints that offer the C interface.

    Attributes:
        stale: whether the mask of the next token is not computed yet.
        mask_seconds: the time that recent masks took, averaged.

    """

    def __init__(
        self, constraint: TokenConstraint, vocab: int, ends: frozenset[int], fill_masks: FillMasks
    ) -> None:
        self._constraint = constraint
        self._fill_masks = fill_masks
        self._vocab = vocab
        self._accepted = 0
        self.stale = True
        self.mask_seconds = 0.0
        self._mask: Mask = np.zeros((vocab + 31) // 32, np.uint32)
        self._error: Exception | None = None
        self._end_tokens = ends
        self._ends = _bits(ends, len(self._mask))
        self._allowed = self._allowed_text = 0
        # Looked up once, and each in a call: a property may raise anything, too.
        self._fill_mask = _call(lambda: constraint.fill_mask)
        self._accept = _call(lambda: constraint.accept)
        self._forced_tokens = _call(getattr, constraint, "forced_tokens", None)
        offer = _call(getattr, constraint, "__llamay_token_constraint__", None)
        self._capsule: object = None if offer is None else _call(offer)  # shares the position in the text

    def accept(self, token: int) -> None:
        """Let the constraint accept the chosen token. Raises what the constraint raises."""
        _call(self._accept, token)
        self._accepted += 1
        self.stale = True

    @property
    def mask(self) -> Mask:
        """The mask of the next token. Raises ConstraintError if no token may follow, or what the constraint raised."""
        if self.stale:
            fill_all_masks([self])
        if self._error is not None:
            raise self._error
        return self._mask

    @property
    def stale_and_slow(self) -> bool:
        """Whether the next mask is not computed yet, and would take long."""
        return self.stale and self.slow

    @property
    def slow(self) -> bool:
        """Whether recent masks took long."""
        return self.mask_seconds > _SLOW_SECONDS

    @property
    def finished(self) -> bool:
        """Whether only an end token may come next. Raises as `mask` does."""
        if self.stale or self._error is not None:
            _ = self.mask
        return not self._allowed_text

    def check_unused(self) -> None:
        """Raise ConstraintError if the constraint came here at its end, as one does that served another text."""
        counts = _call(hasattr, self._constraint, "__len__")
        if self._accepted == 0 and counts and (n := _call(len, self._constraint)):
            raise ConstraintError(
                f"the constraint has ended already, after {n} tokens of another text; a constraint serves one text: "
                f"make one for each"
            )

    @property
    def allows_text(self) -> bool:
        """Whether the mask is known, and allows more text. Never raises."""
        return not self.stale and self._error is None and self._allowed_text > 0

    def forced_tokens(self, limit: int) -> list[int]:
        """Return the tokens that must come next, at most `limit`, where the mask leaves no choice."""
        if self.stale or self._allowed != 1:
            return []
        forced = self._forced_tokens
        return [] if forced is None else _call(lambda: [int(token) for token in forced(limit)][:limit])

    def _fill(self) -> None:
        """Have the constraint fill the mask, through Python."""
        began = time.perf_counter()
        allowed = allowed_text = 0
        error: Exception | None = None
        try:
            _call(self._fill_mask, self._mask.view())  # a view: the array itself could be made shorter
            allowed = int(np.bitwise_count(self._mask).sum())
            allowed_text = int(np.bitwise_count(self._mask & ~self._ends).sum())
        except Exception as raised:
            error = raised
        self._set_mask(allowed, allowed_text, time.perf_counter() - began, error)

    def _set_mask(self, allowed: int, allowed_text: int, seconds: float, error: Exception | None) -> None:
        if error is None and not allowed:
            error = ConstraintError(f"the constraint allows no token after {self._accepted} of its text")
        self._allowed, self._allowed_text, self._error = allowed, allowed_text, error
        self.stale = False
        self.mask_seconds += 0.3 * (seconds - self.mask_seconds)

    def fork(self) -> ConstraintState:
        """Return the same with a constraint of its own. Raises ConstraintError if the constraint cannot fork."""
        fork = _call(getattr, self._constraint, "fork", None)
        if fork is None:
            raise ConstraintError(
                f"a {type(self._constraint).__name__} cannot fork, so its text cannot branch"
            )
        twin = ConstraintState(_call(fork), self._vocab, self._end_tokens, self._fill_masks)
        twin._accepted = self._accepted
        return twin


def _call(method: Callable[..., Any], *arguments: object) -> Any:
    """Call a method of a constraint, which may raise anything.

    An interruption, such as SystemExit, becomes a ConstraintError: it ends this text, and not the engine's thread.
    """
    try:
        return method(*arguments)
    except Exception:
        raise
    except BaseException as raised:
        raise ConstraintError(f"the constraint raised {described(raised)}") from raised


def fill_all_masks(states: Sequence[ConstraintState], threads: Threads | None = None) -> None:
    """Compute the masks of several constraints; an error is raised when its mask is asked for.

    Those that offer the C interface of `abi/llamay/token_constraint.h` are filled in one call, with the help of threads
    where that pays.
    """
    native = [constraint for constraint in states if constraint._capsule is not None]
    for constraint in states:
        if constraint._capsule is None:
            constraint._fill()
    if not native:
        return
    helped = threads if sum(constraint.mask_seconds for constraint in native) > _THREAD_SECONDS else None
    rows = [(constraint._capsule, constraint._mask) for constraint in native]
    try:
        told = native[0]._fill_masks(rows, native[0]._ends, helped)
    except (
        TypeError,
        ValueError,
    ):  # one of the masks does not fit: the constraint's own method raises the reason
        for constraint in native:
            constraint._fill()
        return
    for constraint, (allowed, allowed_text, seconds) in zip(native, told, strict=True):
        error = (
            None
            if allowed >= 0
            else ConstraintError(f"the constraint cannot say what may come next{_STATUS.get(-allowed, '')}")
        )
        constraint._set_mask(max(0, allowed), allowed_text, seconds, error)


_STATUS = {3: ": it is out of memory, or over a budget"}


def _bits(tokens: frozenset[int], words: int) -> Mask:
    bits = np.zeros(words, np.uint32)
    for token in tokens:
        if token < 32 * words:
            bits[token // 32] |= np.uint32(1 << token % 32)
    return bits
