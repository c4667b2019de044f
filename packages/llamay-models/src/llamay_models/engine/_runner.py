"""`Runner`: one step of the model over the rows of many contexts."""

from __future__ import annotations

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
        self._tokens = np.zeros(self.max_rows, np.int32)
        self._positions = np.zeros(self.max_rows, np.int32)
        self._wanted = np.zeros(self.max_rows, np.int32)
        self._counting = np.arange(self.max_rows, dtype=np.int32)
        # Made as it is needed: a row of a large vocabulary takes a megabyte.
        self._out = np.zeros((0, plan.output_width), np.float32)

    def run(self, batch: Sequence[Rows]) -> Floats:
        """Compute the rows' K/V, and the logits that are wanted, in order: float32 (wanted, vocabulary).

        The result is overwritten by the next run. Nothing is committed.
        """
        at = wanted = 0
        leases: list[Any] = []
        counts: list[int] = []
        for rows in batch:
            n = len(rows.tokens)
            self._tokens[at : at + n] = rows.tokens
            self._positions[at : at + n] = self._counting[:n] + rows.position if n > 1 else rows.position
            at += n
            for row in range(at - rows.wanted, at):
                self._wanted[wanted] = row
                wanted += 1
            leases.append(rows.lease)
            counts.append(n)
        if wanted > len(self._out):
            self._out = np.zeros((wanted, self.plan.output_width), np.float32)
        out = self._out[:wanted]
        self.plan.run(
            self._tokens[:at], self._positions[:at], leases, counts, self._wanted[:wanted], out, self.threads
        )
        return out
