"""`Recorder`: the base of the vocabulary's methods, which records operations and checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llamay_models.errors import PlanError
from llamay_models.plan.records import Floats, Part, Record, Shaped, Tensor, Value, shape_text
from llamay_models.plan.schema import Call, Operation


class Recorder:
    """The base of the families of operations. `Trace` is all families together."""

    table: ClassVar[Mapping[str, Operation]] = {}

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.widths: list[int] = []
        self.names: list[str] = []
        self.tensors: list[Tensor] = []
        self._numbers: dict[tuple[str, int, int], int] = {}

    # -- for the families

    def _emit(
        self,
        op: str,
        width: int,
        name: str,
        args: Sequence[Value] = (),
        weights: Sequence[int] = (),
        /,
        **attrs: Any,
    ) -> Value:
        """Record an operation of one output."""
        (value,) = self._record(op, [(width, name)], args, weights, **attrs)
        return value

    def _record(
        self,
        op: str,
        outs: Sequence[tuple[int, str]],
        args: Sequence[Value] = (),
        weights: Sequence[int] = (),
        /,
        **attrs: Any,
    ) -> tuple[Value, ...]:
        """Record an operation; `outs` are widths and names. Raises PlanError for a record that the table refuses."""
        operation = self.table[op]
        first = len(self.widths)
        values = tuple(Value(first + i, width, name) for i, (width, name) in enumerate(outs))
        record = Record(
            op,
            tuple(v.id for v in values),
            tuple(a.id for a in args),
            tuple(weights),
            operation.recorded(attrs),
        )
        operation.check_record(record)
        tensors = tuple(self.tensors[i] for i in weights)
        operation.check(Call(op, tuple(args), values, tensors, operation.complete(record.attrs)))
        self.widths += [v.width for v in values]
        self.names += [v.name for v in values]
        self.records.append(record)
        return values

    def _parts(self, op: str, x: Value, parts: int, what: str = "heads") -> int:
        """Return the number of values in each of `parts` equal parts of x. Raises PlanError."""
        if parts < 1 or x.width % parts:
            raise PlanError(f"{op}: {x.name} has {x.width} values, which do not divide into {parts} {what}")
        return x.width // parts

    def _weight(self, op: str, w: Tensor, rows: int, cols: int) -> int:
        """Return the number of a weight of (rows, cols); a vector has one row. Raises PlanError for another shape."""
        return self._number(self._expect(op, w, rows, cols))

    def _stacked(self, op: str, w: Tensor, count: int, rows: int, cols: int) -> int:
        """Return the number of a weight in which `count` matrices of (rows, cols) are stacked. Raises PlanError."""
        return self._number(self._expect(op, w, count * rows, cols, count))

    def _part(self, op: str, w: Tensor, rows: int, cols: int, part: range) -> int:
        """Return the number of rows `part` of a (rows, cols) matrix, or of values of a vector. Raises PlanError."""
        return self._number(Part(self._expect(op, w, rows, cols), part.start, part.stop))

    def _constant(self, op: str, w: Tensor | None, count: int) -> Floats | None:
        """Return the values of a vector, (count,), while the plan is recorded. Raises PlanError for another length."""
        return None if w is None else self._expect(op, w, 1, count).dequantize().reshape(-1)

    # -- shapes and numbers of weights

    def _expect(self, op: str, w: Tensor, rows: int, cols: int, stack: int = 1) -> Tensor:
        """Return a weight in the shape (rows, cols); a vector needs the number of values only. Raises PlanError."""
        fitting = fit(w, rows, cols)
        if fitting is None:
            raise PlanError(
                f"{op}: {w.name} is {shape_text(w.rows, w.cols)} but {shape_text(rows, cols, stack)} is needed here"
            )
        return fitting

    def _number(self, w: Tensor) -> int:
        key = (w.name, w.rows, w.cols)
        if key not in self._numbers:
            self._numbers[key] = len(self.tensors)
            self.tensors.append(w)
        return self._numbers[key]


def fit(w: Tensor, rows: int, cols: int) -> Tensor | None:
    """Return a weight in the shape (rows, cols) if its own differs by dimensions of 1 at most, or None.

    Converters write a vector as (n,), (n, 1), (1, n) or, of several heads, (heads, n / heads).
    """
    if (w.rows, w.cols) == (rows, cols):
        return w
    return Shaped(w, rows, cols) if rows == 1 and w.rows * w.cols == cols else None


def stem(name: str) -> str:
    """Return a weight's name without the common ending."""
    return name.removesuffix(".weight")
