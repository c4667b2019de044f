"""`Runner`: one step of the model over the rows of many contexts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import llamay_kernels as kernels
import llamay_kv as kv
from llamay_models.plan._records import Floats


@dataclass(slots=True)
class Rows:
    """The next rows of one context: a lease on their K/V, and how many of the last want logits."""

    lease: kv.Lease
    tokens: Sequence[int]
    position: int
    wanted: int


class Runner:
    """Lays the rows of a step out in arrays that are made once, and runs the plan over them.

    Not for several threads at a time: the arrays are shared.
    """

    def __init__(self, plan: kernels.Plan, threads: kernels.Threads) -> None:
        self.plan = plan
        self.threads = threads
        self.max_rows = plan.max_rows
        self.seconds = 0.0
        """How long the plan took, the last time."""
        self._tokens = np.zeros(self.max_rows, np.int32)
        self._positions = np.zeros(self.max_rows, np.int32)
        self._wanted = np.zeros(self.max_rows, np.int32)
        # Made as it is needed: a row of a large vocabulary takes a megabyte.
        self._out = np.zeros((0, plan.output_width), np.float32)
        self._rows: list[Floats] = []

    def rows(self, wanted: int) -> list[Floats]:
        """Return where the next run puts its outputs, if it wants so many: each float32 (output width,)."""
        if wanted > len(self._out):
            self._out = np.zeros((wanted, self.plan.output_width), np.float32)
            self._rows = list(self._out)
        return self._rows[:wanted]

    def run(self, batch: Sequence[Rows]) -> Floats:
        """Compute the rows' K/V, and the outputs that are wanted, in order: float32 (wanted, output width).

        The result is overwritten by the next run. Nothing is committed.
        """
        tokens: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        leases: list[Any] = []
        counts: list[int] = []
        for rows in batch:
            n, position = len(rows.tokens), rows.position
            tokens += rows.tokens
            if n == 1:
                positions.append(position)
            else:
                positions += range(position, position + n)
            if rows.wanted:
                wanted += range(len(tokens) - rows.wanted, len(tokens))
            leases.append(rows.lease)
            counts.append(n)
        size, last = len(tokens), len(wanted)
        self.rows(last)
        self._tokens[:size] = tokens
        self._positions[:size] = positions
        self._wanted[:last] = wanted
        out = self._out[:last]
        arrays = self._tokens[:size], self._positions[:size], self._wanted[:last]
        began = time.perf_counter()
        self.plan.run(arrays[0], arrays[1], leases, counts, arrays[2], out, self.threads)
        self.seconds = time.perf_counter() - began
        return out
