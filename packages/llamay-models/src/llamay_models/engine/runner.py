"""`Runner`: one step of the model over the rows of many contexts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import llamay_kv as kv
from llamay_models.backend import Backend, Begun, Draw, Flag, Given, Plan, RowInputs, Threads
from llamay_models.plan.records import Floats


@dataclass(slots=True)
class StepRows:
    """The next rows of one context: a lease on their K/V, and how many of the last rows want an output.

    `lease` is None where the plan keeps nothing; `inputs` are the inputs of the rows other than tokens.
    """

    lease: kv.Lease | None
    tokens: Sequence[int]
    position: int
    wanted: int
    inputs: RowInputs | None = None

    def commit_all(self) -> None:
        """Commit all rows to the context."""
        if self.lease is not None:
            self.lease.commit(self.tokens, checkpoints=True)

    def release(self) -> None:
        """Give the rows up, and their positions back."""
        if self.lease is not None:
            self.lease.release()


class Runner:
    """Runs the plan over the rows of a step, and keeps the memory of the outputs.

    One thread at a time may use it: the outputs are shared.
    """

    def __init__(self, backend: Backend, plan: Plan, threads: Threads) -> None:
        self.backend = backend
        self.plan = plan
        self.threads = threads
        self.max_rows = plan.max_rows
        self.seconds = 0.0
        """The time that the last run of the plan took."""
        # Allocated as needed: a row of a large vocabulary takes a megabyte.
        self._out = np.zeros((0, plan.output_width), np.float32)
        self._rows: list[Floats] = []
        self._run, self._begin = plan.run_rows, plan.begin_rows

    def rows(self, wanted: int) -> list[Floats]:
        """Return the rows into which a run with `wanted` outputs writes: each float32 (output width,)."""
        if wanted > len(self._out):
            self._out = np.zeros((wanted, self.plan.output_width), np.float32)
            self._rows = list(self._out)
        return self._rows[:wanted]

    def run(self, batch: Sequence[StepRows]) -> Floats:
        """Compute the rows' K/V, and return the wanted outputs in order: float32 (wanted, output width).

        The result is overwritten by the next run. Nothing is committed.
        """
        wanted = sum(rows.wanted for rows in batch)
        self.rows(wanted)
        self.step(batch, ())
        return self._out[:wanted]

    def step(self, batch: Sequence[StepRows], draws: Sequence[Draw]) -> tuple[list[int], dict[int, str]]:
        """Compute the rows' K/V and outputs, then draw tokens from the outputs. Call `rows` before, for enough of them.

        Returns the tokens, -1 where none can be drawn, and the errors by the number of the draw.
        """
        self.seconds, tokens, errors = self._run(_given(batch), self._out, self.threads, draws)
        return tokens, errors

    def begin(self, batch: Sequence[StepRows]) -> Begun:
        """Begin a step on the other threads, which `finish` completes. No other step can run before.

        Call `rows` before, for enough outputs. `Begun.leave` gives the step up.
        """
        return self._begin(_given(batch), self._out, self.threads)

    def finish(
        self,
        begun: Begun,
        draws: Sequence[Draw],
        flag: Flag | None = None,
        ends: Sequence[int] = (),
    ) -> tuple[list[int], dict[int, str], bool]:
        """Complete a step that has begun. Return what `step` returns, and whether the next step has begun.

        The next step begins by itself, with the drawn tokens, where there is a flag that is not set, a position
        reserved for each token, and none of `ends` among them.
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
