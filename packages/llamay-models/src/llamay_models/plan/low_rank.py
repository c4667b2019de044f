"""Low-rank updates of a program's matrices: more records, the same weights.

Hu et al. 2021, https://arxiv.org/abs/2106.09685. The matrices stay as they are, quantized and shared; an update is two
narrow products beside each: `w @ x + b @ (scale * (a @ x))`, in this order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llamay_models.errors import PlanError
from llamay_models.plan.records import Outline, Part, Program, Record, Shaped, Tensor
from llamay_models.plan.table import operation


@dataclass(frozen=True, slots=True)
class Update:
    """The update of a matrix of (rows, cols): `scale * b @ a`, with `a`: (rank, cols), `b`: (rows, rank).

    The update of a table of embeddings, (tokens, width), is transposed: `a`: (tokens, rank), `b`: (width, rank).
    """

    a: Tensor
    b: Tensor
    scale: float


def adapt(program: Program, updates: Mapping[str, Update]) -> Program:
    """Return the program with updates of the matrices that they name.

    The tensors of the updates come after the program's own. The program must not be fused. In a program that was
    adapted before, the new updates are added before the old ones. Raises PlanError for a name that is no matrix of the
    program, for shapes that do not fit, and for a table of embeddings that is the output matrix too.
    """
    return _Adapting(program, updates).program()


def outline(program: Program) -> Program:
    """Return the program over names and shapes only, so that it holds on to no file and can still be adapted."""

    def drawn(tensor: Tensor) -> Tensor:
        if isinstance(tensor, Part):
            return Part(drawn(tensor.whole), tensor.begin, tensor.end)
        if isinstance(tensor, Shaped):
            return Shaped(drawn(tensor.whole), tensor.rows, tensor.cols)
        return Outline(tensor.name, tensor.format, tensor.rows, tensor.cols, tensor.nbytes)

    return replace(program, tensors=tuple(drawn(tensor) for tensor in program.tensors))


class _Adapting:
    def __init__(self, program: Program, updates: Mapping[str, Update]) -> None:
        self._old, self._updates = program, updates
        self._records: list[Record] = []
        self._widths, self._names = list(program.widths), list(program.names)
        self._tensors = list(program.tensors)
        self._numbers: dict[tuple[int, int, int], int] = {}

    def program(self) -> Program:
        used: dict[str, set[str]] = {}
        for record in self._old.records:
            whole, rows = self._matrix(record)
            if whole is None or (update := self._updates.get(whole.name)) is None:
                self._records.append(record)
                continue
            used.setdefault(whole.name, set()).add(record.op)
            if len(used[whole.name]) > 1:
                raise PlanError(f"{whole.name} is the output matrix too, and an adapter of it cannot be used")
            self._extend(record, whole, rows, update)
        if missing := sorted(self._updates.keys() - used.keys()):
            raise PlanError(f"the adapter changes {missing[0]}, which is no matrix of this model")
        return Program(tuple(self._records), tuple(self._widths), tuple(self._tensors), tuple(self._names))

    def _matrix(self, record: Record) -> tuple[Tensor | None, range]:
        """Return the matrix that a record multiplies with or looks up in, and the rows of it that the record reads."""
        if operation(record.op).adapts is None:
            return None, range(0)
        tensor = self._old.tensors[record.weights[0]]
        if isinstance(tensor, Part):
            return tensor.whole, range(tensor.begin, tensor.end)
        return tensor, range(tensor.rows)

    def _extend(self, record: Record, whole: Tensor, rows: range, update: Update) -> None:
        """Write a record, and the update of its value; the sum has the record's own number."""
        is_product = operation(record.op).adapts == "product"
        rank = self._check(is_product, whole, update)
        width = self._old.widths[record.outs[0]]
        plain = self._value(width, f"{whole.name}.plain")
        self._records.append(replace(record, outs=(plain,)))
        narrow = self._value(rank, f"{whole.name}.lora_a")
        a = self._number(update.a, range(update.a.rows))
        self._records.append(Record(record.op, (narrow,), record.args, (a,), {}))
        if update.scale != 1.0:
            scaled = self._value(rank, f"{whole.name}.lora_scale")
            self._records.append(Record("scale", (scaled,), (narrow,), (), {"by": float(update.scale)}))
            narrow = scaled
        added = self._value(width, f"{whole.name}.lora_b")
        b = self._number(update.b, rows if is_product else range(update.b.rows))
        self._records.append(Record("linear", (added,), (narrow,), (b,), {}))
        self._records.append(Record("add", record.outs, (plain, added), (), {}))

    def _check(self, is_product: bool, whole: Tensor, update: Update) -> int:
        """Return the rank, the same in both matrices. Raises PlanError."""
        a, b = update.a, update.b
        rank, outer = (a.rows, a.cols) if is_product else (a.cols, a.rows)
        needed = whole.cols if is_product else whole.rows
        if outer != needed or b.cols != rank:
            raise PlanError(
                f"{a.name} is {a.rows} x {a.cols} and {b.name} {b.rows} x {b.cols}: "
                f"they do not fit {whole.name}, which is {whole.rows} x {whole.cols}"
            )
        made = whole.rows if is_product else whole.cols
        if b.rows != made:
            raise PlanError(f"{b.name} has {b.rows} rows where {whole.name} needs {made}")
        return rank

    def _value(self, width: int, name: str) -> int:
        self._widths.append(width)
        self._names.append(name)
        return len(self._widths) - 1

    def _number(self, tensor: Tensor, rows: range) -> int:
        """Take a tensor, or some of its rows, into the program, once."""
        key = (id(tensor), rows.start, rows.stop)
        if key not in self._numbers:
            whole = len(rows) == tensor.rows
            self._tensors.append(tensor if whole else Part(tensor, rows.start, rows.stop))
            self._numbers[key] = len(self._tensors) - 1
        return self._numbers[key]
