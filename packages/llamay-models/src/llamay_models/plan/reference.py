"""`Reference` and `Watch`: the meanings of the vocabulary that compute, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamay_models.plan.evaluation import apply
from llamay_models.plan.records import Doubles, Value
from llamay_models.plan.rows import Rows, as_rows
from llamay_models.plan.trace import Trace


@dataclass(frozen=True, slots=True)
class Computed(Value):
    """A value with its numbers: float64 of shape (rows, width)."""

    array: Doubles

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.array, dtype, copy=copy)


class Reference(Trace):
    """Computes each operation as it is called, in float64, for texts from their beginning.

    `rows` are the rows of a step or the tokens of one text; `wanted` are the rows that `select` keeps, None for all.
    The returned value has its numbers in `.array`.
    """

    def __init__(self, rows: Rows | Sequence[int], wanted: Sequence[int] | None = None) -> None:
        super().__init__()
        self._rows = as_rows(rows, wanted)

    def _record(
        self,
        op: str,
        outs: Sequence[tuple[int, str]],
        args: Sequence[Value] = (),
        weights: Sequence[int] = (),
        /,
        **attrs: Any,
    ) -> tuple[Value, ...]:
        values = super()._record(op, outs, args, weights, **attrs)
        arrays = [a.array for a in args if isinstance(a, Computed)]
        made = apply(self.records[-1], self._rows, arrays, [self.tensors[i] for i in weights])
        return tuple(
            Computed(v.id, v.width, v.name, a, owner=v.owner) for v, a in zip(values, made, strict=True)
        )


class Watch(Reference):
    """A Reference that keeps every value under its name: `watch.values["blk.3.attn_q.rope"]`.

    It shows the first layer that differs from another implementation.
    """

    def __init__(self, rows: Rows | Sequence[int], wanted: Sequence[int] | None = None) -> None:
        super().__init__(rows, wanted)
        self.values: dict[str, Doubles] = {}

    def _record(
        self,
        op: str,
        outs: Sequence[tuple[int, str]],
        args: Sequence[Value] = (),
        weights: Sequence[int] = (),
        /,
        **attrs: Any,
    ) -> tuple[Value, ...]:
        values = super()._record(op, outs, args, weights, **attrs)
        for value in values:
            if isinstance(value, Computed):
                # A tied table makes two values: the second is named after the operation too.
                key = value.name if value.name not in self.values else f"{value.name}.{op}"
                self.values[key] = value.array
        return values
