"""Which rows a run of shapes.py measures, and how long each may take."""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass

SCALED = ("prefill", "decode")
BUDGET_FORMATS = ("Q4_K_M", "Q8_0", "Q4_0")
COST = {
    "prefill": 1.5,
    "decode": 1.5,
    "depth": 2.5,
    "prefill-long": 4.0,
    "streams": 2.0,
    "branches": 3.0,
    "start": 0.5,
    "around": 0.5,
}
"""Seconds of a round against one of another, about: a row's part of a budget is in proportion to it."""
LEAST_SIZE = 0.3e9
"""Models below so many bytes take no less time: processes start, limits are probed, idle threads fall asleep."""


def applies(measure: str, shape: str, kind: str, threads: int, options: argparse.Namespace) -> bool:
    """Whether a row is measured: with fewer threads only if it scales, within a budget only if the tables have it.

    Within a budget every shape is decoded and read in the three formats that are compared; unquantized weights, depth,
    length, several sequences, starts and memory are measured with the first shape (in its first format) and the real
    models.
    """
    if threads != max(options.threads) and measure not in SCALED:
        return False
    if not options.budget or kind == "file":
        return True
    first = options.shape and shape == options.shape[0]
    if first and kind == options.format[0]:
        return True
    if threads != max(options.threads) or measure not in SCALED:
        return False
    return bool(kind in BUDGET_FORMATS or first)


def weight(measure: str, threads: int, options: argparse.Namespace, size: int) -> float:
    """Return a row's part of the budget, not scaled."""
    fewer: float = max(options.threads) / threads
    return COST[measure] * fewer * math.pow(max(LEAST_SIZE, size), 0.75)


@dataclass
class Share:
    """The time of one row; without an end it has all that it wants."""

    end: float = 0.0

    def allows(self, seconds: float) -> bool:
        """Whether something that takes so long can be done before the end."""
        return not self.end or time.monotonic() + seconds <= self.end


class Budget:
    """Time that is divided among rows as they come: time that one row leaves is for the others."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds if seconds else 0.0
        self._left = 0.0

    def expect(self, weight: float) -> None:
        """Count a row that will come."""
        self._left += weight

    def share(self, weight: float) -> Share:
        """Return the time of a row that was expected."""
        part = weight / self._left if self._left else 1.0
        self._left -= weight
        now = time.monotonic()
        return Share(now + max(0.0, self.end - now) * part if self.end else 0.0)

    @property
    def over(self) -> bool:
        """Whether the whole time has passed."""
        return bool(self.end) and time.monotonic() > self.end
