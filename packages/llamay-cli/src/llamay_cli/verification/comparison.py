"""Comparing two observations, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Logits = npt.NDArray[np.float32]


@dataclass
class Observation:
    """One way's logits, float32 (vocabulary,), at named places, and the tokens that it chose."""

    logits: dict[str, Logits] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)

    def record(self, place: str, logits: Logits) -> None:
        """Keep a copy of the logits at `place`."""
        self.logits[place] = np.array(logits, np.float32, copy=True)


@dataclass(frozen=True)
class Difference:
    """The distance between two observations.

    `largest` is the largest absolute difference of a logit, infinite where they cannot be subtracted;
    `equal` says that every bit is the same; `places` counts what was compared.
    """

    equal: bool
    largest: float
    places: int
    detail: str = ""


def compare(expected: Observation, actual: Observation) -> Difference:
    """Compare everything. Nothing to compare, other shapes and logits that are not finite are differences."""
    if not expected.logits or expected.logits.keys() != actual.logits.keys():
        return Difference(False, float("inf"), 0, "the two ways did not see the same places")
    largest, unequal = 0.0, ""
    for place, want in expected.logits.items():
        got = actual.logits[place]
        if problem := _unusable(want) or _unusable(got):
            return Difference(False, float("inf"), len(expected.logits), f"{place}: {problem}")
        if want.shape != got.shape:
            return Difference(
                False, float("inf"), len(expected.logits), f"{place}: {want.shape} and {got.shape}"
            )
        if not np.array_equal(want.view(np.uint32), got.view(np.uint32)):
            apart = float(np.max(np.abs(want.astype(np.float64) - got.astype(np.float64))))
            if not unequal or apart > largest:
                unequal = (
                    f"{place}: logits differ by {apart:.3g}" if apart else f"{place}: a zero has another sign"
                )
            largest = max(largest, apart)
    if expected.tokens != actual.tokens:
        at = _first_difference(expected.tokens, actual.tokens)
        unequal = unequal or f"token {at} of what was generated differs"
    return Difference(not unequal, largest, len(expected.logits), unequal)


def _unusable(logits: Logits) -> str:
    if logits.size < 2 or logits.dtype != np.float32:
        return f"{logits.size} values of {logits.dtype} are no logits"
    if not np.isfinite(logits).all():
        return "a logit is not finite"
    if logits.min() == logits.max():
        return "all logits are the same"
    return ""


def _first_difference(a: Sequence[int], b: Sequence[int]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
