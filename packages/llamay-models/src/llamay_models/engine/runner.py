"""`Runner`: one step of the model over the rows of many contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import llamay_kv as kv
from llamay_models.backend import Backend, Begun, Draw, Flag, Given, Inputs, Plan, Threads
from llamay_models.plan._records import Floats


@dataclass(slots=True)
class StepRows:
    """The next rows of one context: a lease on their K/V, and how many of the last want logits.

    `lease` is None where the plan keeps nothing; `inputs` is what the rows are beside tokens.
    """

    lease: kv.Lease | None
    tokens: Sequence[int]
    position: int
    wanted: int
    inputs: Inputs | None = None

    def commit_all(self) -> None:
        """Make the rows part of the context."""
        if self.lease is not None:
            self.lease.commit(self.tokens, checkpoints=True)

    def release(self) -> None:
        """Give the rows up: nothing of them counts."""
        if self.lease is not None:
            self.lease.release()


class Runner:
    """Runs the plan over the rows of a step, and keeps what it writes to.

    Not for several threads at a time: the outputs are shared.
    """

    def __init__(self, backend: Backend, plan: Plan, threads: Threads) -> None:
        self.backend = backend
        self.plan = plan
        self.threads = threads
        self.max_rows = plan.max_rows
        self.seconds = 0.0
        """How long the plan took, the last time."""
        # Made as it is needed: a row of a large vocabulary takes a megabyte.
        self._out = np.zeros((0, plan.output_width), np.float32)
        self._rows: list[Floats] = []
        self._run, self._begin = plan.run_rows, plan.begin_rows

    def rows(self, wanted: int) -> list[Floats]:
        """Return where the next run puts its outputs, if it wants so many: each float32 (output width,)."""
        if wanted > len(self._out):
            self._out = np.zeros((wanted, self.plan.output_width), np.float32)
            self._rows = list(self._out)
        return self._rows[:wanted]

    def run(self, batch: Sequence[StepRows]) -> Floats:
        """Compute the rows' K/V, and the outputs that are wanted, in order: float32 (wanted, output width).

        The result is overwritten by the next run. Nothing is committed.
        """
        wanted = sum(rows.wanted for rows in batch)
        self.rows(wanted)
        self.step(batch, ())
        return self._out[:wanted]

    def step(self, batch: Sequence[StepRows], draws: Sequence[Draw]) -> tuple[list[int], dict[int, str]]:
        """Compute the rows' K/V and outputs, then draw tokens from these; `rows` was asked for enough of them.

        Returns the tokens, -1 where none can be drawn, and what was wrong there.
        """
        self.seconds, tokens, errors = self._run(_given(batch), self._out, self.threads, draws)
        return tokens, errors

    def begin(self, batch: Sequence[StepRows]) -> Begun:
        """Have the other threads begin a step, which `finish` completes. Nothing else can run before.

        `rows` was asked for enough rows. Where nobody wants the outputs any more, `leave` it.
        """
        return self._begin(_given(batch), self._out, self.threads)

    def finish(
        self,
        begun: Begun,
        draws: Sequence[Draw],
        flag: Flag | None = None,
        ends: Sequence[int] = (),
    ) -> tuple[list[int], dict[int, str], bool]:
        """Complete a step that has begun, and return what `step` does, and whether the one after has begun.

        That it may do, with the tokens that are drawn, where there is a flag that is not set, a position reserved
        for each, and no end among them.
        """
        self.seconds, tokens, errors, followed = begun.finish(draws, flag, ends)
        return tokens, errors, followed


def _given(batch: Sequence[StepRows]) -> list[Given]:
    return [
        (r.lease, r.tokens, r.position, r.wanted)
        if r.inputs is None
        else (r.lease, r.tokens, r.position, r.wanted, r.inputs)
        for r in batch
    ]
