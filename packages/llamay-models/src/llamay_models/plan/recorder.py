"""`Recorder`: the base of the vocabulary's methods, which records operations and checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from llamay_models.arguments import whole
from llamay_models.errors import PlanError
from llamay_models.plan.records import (
    Floats,
    Outline,
    Part,
    Record,
    Shaped,
    Tensor,
    Value,
    check_tensor,
    shape_text,
)
from llamay_models.plan.schema import Call, Layers, Operation


class Recorder:
    """The base of the families of operations. `Trace` is all families together."""

    table: ClassVar[Mapping[str, Operation]] = {}

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.widths: list[int] = []
        self.names: list[str] = []
        self.tensors: list[Tensor] = []
        self._own = object()
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._layers = Layers()
        self._named: dict[str, Tensor] = {}

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
        """Record an operation; `outs` are widths and names.

        Raises PlanError for a record that the table refuses, and for a value of another recorder.
        """
        operation = self.table[op]
        for value in args:
            self._check_own(op, value)
        first = len(self.widths)
        values = tuple(Value(first + i, width, name, owner=self._own) for i, (width, name) in enumerate(outs))
        out_ids, arg_ids = tuple(v.id for v in values), tuple(a.id for a in args)
        recorded = operation.recorded(attrs)
        operation.check_record(Record(op, out_ids, arg_ids, tuple(weights), recorded))
        for value in values:
            whole(f"{op}: the width of {value.name}", value.width, 1, error=PlanError)
        record = Record(op, out_ids, arg_ids, tuple(weights), operation.plain(recorded))
        tensors = tuple(self.tensors[i] for i in weights)
        call = Call(op, tuple(args), values, tensors, operation.complete(record.attrs))
        operation.check(call)
        if (memory := operation.memory(call)) is not None:
            self._layers.add(len(self.records), op, values[0].name, memory)
        self.widths += [v.width for v in values]
        self.names += [v.name for v in values]
        self.records.append(record)
        return values

    def _check_own(self, op: str, value: Value) -> None:
        """Check that an argument is a value that this recorder made. Raises PlanError."""
        if not isinstance(value, Value):
            raise PlanError(f"{op}: an argument must be a value that an operation made, not {value!r}")
        if value.owner is not self._own:
            raise PlanError(
                f"{op}: {value.name} is a value of another {type(self).__name__}; one plan has values of its own only"
            )

    def _counts(self, op: str, **counts: int) -> None:
        """Check that numbers with which a method computes are whole numbers from 1 on. Raises PlanError."""
        for name, count in counts.items():
            whole(f"{op}: {name}", count, 1, error=PlanError)

    def _parts(self, op: str, x: Value, parts: int, what: str = "heads") -> int:
        """Return the number of values in each of `parts` equal parts of x. Raises PlanError."""
        self._check_own(op, x)
        whole(f"{op}: {what}", parts, error=PlanError)
        if parts < 1 or x.width % parts:
            raise PlanError(f"{op}: {x.name} has {x.width} values, which do not divide into {parts} {what}")
        return x.width // parts

    def _weight(self, op: str, w: Tensor, rows: int, cols: int) -> int:
        """Return the number of a weight of (rows, cols); a vector has one row. Raises PlanError for another shape."""
        return self._number(op, self._expect(op, w, rows, cols))

    def _stacked(self, op: str, w: Tensor, count: int, rows: int, cols: int) -> int:
        """Return the number of a weight in which `count` matrices of (rows, cols) are stacked. Raises PlanError."""
        self._counts(op, count=count, rows=rows)
        return self._number(op, self._expect(op, w, count * rows, cols, count))

    def _part(self, op: str, w: Tensor, rows: int, cols: int, part: range) -> int:
        """Return the number of rows `part` of a (rows, cols) matrix, or of values of a vector. Raises PlanError."""
        return self._number(op, Part(self._expect(op, w, rows, cols), part.start, part.stop))

    def _constant(self, op: str, w: Tensor | None, count: int) -> Floats | None:
        """Return the values of a vector, (count,), while the plan is recorded. Raises PlanError for another length."""
        return None if w is None else self._expect(op, w, 1, count).dequantize().reshape(-1)

    # -- shapes and numbers of weights

    def _expect(self, op: str, w: Tensor, rows: int, cols: int, stack: int = 1) -> Tensor:
        """Return a weight in the shape (rows, cols); a vector needs the number of values only.

        Raises PlanError for another shape, and for what is no tensor.
        """
        check_tensor(op, w)
        for size in (rows, cols):
            whole(f"{op}: a size of {w.name}", size, 1, error=PlanError)
        return self._fit(op, w, rows, cols, stack)

    def _fit(self, op: str, w: Tensor, rows: int, cols: int, stack: int) -> Tensor:
        fitting = fit(w, rows, cols)
        if fitting is None:
            raise PlanError(
                f"{op}: {w.name} is {shape_text(w.rows, w.cols)} but {shape_text(rows, cols, stack)} is needed here"
            )
        return fitting

    def _number(self, op: str, w: Tensor) -> int:
        """Return the number of a tensor, one for all its uses. Raises PlanError for another tensor of a known name."""
        root = _root(w)
        known = self._named.setdefault(root.name, root)
        # Outlines are made anew for each use, and have no values that could be mistaken for others.
        outlines = isinstance(known, Outline) and isinstance(root, Outline) and known.format == root.format
        if known is not root and not outlines:
            raise PlanError(f"{op}: there are two tensors {root.name}; give each a name of its own")
        key = _key(w)
        if key not in self._numbers:
            self._numbers[key] = len(self.tensors)
            self.tensors.append(w)
        return self._numbers[key]


def _root(w: Tensor) -> Tensor:
    """Return the tensor itself, of which w may be a part or another shape."""
    while isinstance(w, Part | Shaped):
        w = w.whole
    return w


def _key(w: Tensor) -> tuple[Any, ...]:
    """Return what tells the uses of one tensor apart: its shape, and the part."""
    if isinstance(w, Part):
        return ("part", w.begin, w.end, *_key(w.whole))
    return (w.name, w.rows, w.cols)


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
