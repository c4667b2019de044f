"""`Explain`: a plan as text, for people and for the tests that hold it."""

from __future__ import annotations

from llamay_models.plan.records import Program, Record
from llamay_models.plan.table import call_of, operation
from llamay_models.plan.trace import Trace


class Explain(Trace):
    """A `Trace` whose text is the plan: `print(explain)` after the architecture ran."""

    def __str__(self) -> str:
        return explain(self.program())


def explain(program: Program) -> str:
    """Return a line for each operation: its values and widths, its arguments, its weights with formats and sizes.

    The first line has the numbers of operations, weights and parameters, the bytes of the weights, and the
    multiply-adds a row, without those of attention, whose number grows with the context.
    """
    parameters = sum(t.rows * t.cols for t in program.tensors)
    size = sum(t.nbytes for t in program.tensors)
    work = sum(operation(r.op).multiply_adds(call_of(program, r)) for r in program.records)
    head = (
        f"{len(program.records)} operations, {len(program.tensors)} weights, {parameters:,} parameters, "
        f"{size:,} bytes, {work:,} multiply-adds a row"
    )
    return "\n".join([head, *(_line(program, record) for record in program.records)]) + "\n"


def _line(program: Program, record: Record) -> str:
    outs = ", ".join(f"%{v} {program.names[v]}[{program.widths[v]}]" for v in record.outs)
    inputs = [f"%{v}" for v in record.args]
    for index in record.weights:
        tensor = program.tensors[index]
        shape = str(tensor.cols) if tensor.rows == 1 else f"{tensor.rows}x{tensor.cols}"
        inputs.append(f"{tensor.name} {tensor.format} {shape} {tensor.nbytes:,} B")
    attrs = [f"{key}={_attribute(value)}" for key, value in record.attrs.items()]
    return f"{outs} = {record.op}({', '.join(inputs + attrs)})"


def _attribute(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.9g}"
    if hasattr(value, "shape"):
        return f"{len(value)} of {value[0]:.9g}..{value[-1]:.9g}"  # type: ignore[index, arg-type]
    return str(value)
