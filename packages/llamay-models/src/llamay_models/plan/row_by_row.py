"""`RowByRow`: one text of a program, a row at a time, with the kept values that its operations state.

It is the smallest backend: it computes with the `keep` and `step` of each operation, and tests compare its outputs with
those of `meaning` for whole texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from llamay_models.errors import PlanError
from llamay_models.plan.records import Doubles, Program
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Call, Kept, Memory
from llamay_models.plan.table import call_of, memories, operation, whole_text


class RowByRow:
    """A text that grows row by row, in float64, from position 0.

    Raises PlanError for a program whose texts must be one step, or in which two operations keep one layer.
    """

    def __init__(self, program: Program) -> None:
        if whole_text(program):
            raise PlanError("a text of this program must be one step, so it cannot be read row by row")
        memories(program)
        self.program = program
        self.length = 0
        self._calls: list[tuple[Call, Memory | None]] = []
        for record in program.records:
            call = call_of(program, record)
            self._calls.append((call, operation(record.op).memory(call)))
        self._kept: dict[int, Kept] = {}

    def read(
        self,
        token: int = 0,
        *,
        vector: npt.ArrayLike | None = None,
        position: int | Sequence[int] | None = None,
        type: int = 0,  # noqa: A002
    ) -> Doubles:
        """Return the output for one more row, float64 (output width,): of a token, or of a vector in place of it.

        Raises PlanError for what `Rows` or an operation refuses; the text then stays as it was.
        """
        at: Any = self.length if position is None else position
        rows = Rows(
            [token],
            positions=[at],
            types=[type],
            vectors={} if vector is None else {0: vector},
        )
        values: dict[int, Doubles] = {}
        kept_after: dict[int, Kept] = {}
        for index, (call, memory) in enumerate(self._calls):
            kind, args = operation(call.op), [values[a.id] for a in call.args]
            if memory is None or kind.step is None:
                outs = kind.meaning(rows, args, call.weights, call.attrs)
            else:
                kept = self._before(index, call, memory, args)
                kept_after[index], outs = kind.step(kept, args, call.weights, call.attrs)
            values.update(zip((v.id for v in call.outs), outs, strict=True))
        self._kept.update(kept_after)
        self.length += 1
        output: Doubles = values[self._calls[-1][0].outs[-1].id][0]
        return output

    def _before(self, index: int, call: Call, memory: Memory, args: Sequence[Doubles]) -> Kept:
        """Return the kept values that an operation's step takes: a state, or rows with this row's at the end."""
        if memory.kind == "state":
            return self._kept.get(index) or (np.zeros(memory.k_dim + memory.v_dim),)
        keep = operation(call.op).keep
        if keep is None:
            raise PlanError(f"{call.op} keeps a row at each position, but does not say which")
        own = [row[None] for row in keep(args, call.attrs)]
        if index not in self._kept:
            return tuple(own)
        return tuple(np.concatenate(pair) for pair in zip(self._kept[index], own, strict=True))
