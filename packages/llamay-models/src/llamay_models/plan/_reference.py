"""`Reference` and `Watch`: the meanings of the vocabulary that compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamay_models.plan._records import Doubles, Value
from llamay_models.plan._semantics import MEANINGS, Rows
from llamay_models.plan._trace import Trace


@dataclass(frozen=True, slots=True)
class Computed(Value):
    """A value with its numbers: float64 of shape (rows, width)."""

    array: Doubles

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.array, dtype, copy=copy)


class Reference(Trace):
    """Computes each operation as it is called, in float64 (see `_semantics`), for a context from position 0.

    `tokens` are the context's tokens; `wanted` the rows that `select` keeps, all where it is None. What
    the architecture returns has its numbers in `.array`.
    """

    def __init__(self, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> None:
        super().__init__()
        self._rows = Rows(tokens, wanted)

    def _emit(
        self,
        op: str,
        width: int,
        name: str,
        args: tuple[Value, ...],
        weights: tuple[int, ...] = (),
        **attrs: Any,
    ) -> Value:
        value = super()._emit(op, width, name, args, weights, **attrs)
        arrays = [a.array for a in args if isinstance(a, Computed)]
        (array,) = MEANINGS[op](self._rows, arrays, [self.tensors[i] for i in weights], attrs)
        return Computed(value.id, value.width, value.name, array)


class Watch(Reference):
    """A Reference that keeps every value under its name: `watch.values["blk.3.attn_q.rope"]`.

    For finding the first layer that differs from another implementation.
    """

    def __init__(self, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> None:
        super().__init__(tokens, wanted)
        self.values: dict[str, Doubles] = {}

    def _emit(
        self,
        op: str,
        width: int,
        name: str,
        args: tuple[Value, ...],
        weights: tuple[int, ...] = (),
        **attrs: Any,
    ) -> Value:
        value = super()._emit(op, width, name, args, weights, **attrs)
        if isinstance(value, Computed):
            # A tied table makes two values: the second is named after the operation too.
            key = value.name if value.name not in self.values else f"{value.name}.{op}"
            self.values[key] = value.array
        return value
