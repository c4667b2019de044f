"""The meaning of a program, in float64: the specification of kernels, fusions and backends.

Slow and obvious on purpose, and never to be optimised.
"""

from __future__ import annotations

from collections.abc import Sequence

from llamay_models.plan.operations import TABLE
from llamay_models.plan.records import Doubles, Program, Record
from llamay_models.plan.rows import Rows, as_rows
from llamay_models.plan.schema import Arrays, Meaning, Tensors
from llamay_models.plan.table import operation

MEANINGS: dict[str, Meaning] = {name: kind.meaning for name, kind in TABLE.items()}
"""The meaning of each operation for whole texts."""


def apply(record: Record, rows: Rows, args: Arrays, weights: Tensors) -> tuple[Doubles, ...]:
    """Return the outputs of one record, from the arrays of its arguments and its weights."""
    kind = operation(record.op)
    return kind.meaning(rows, args, weights, kind.complete(record.attrs))


def evaluate(program: Program, rows: Rows | Sequence[int], wanted: Sequence[int] | None = None) -> Doubles:
    """Return the output for rows, or for the tokens of one text: float64 (wanted rows or all, output width)."""
    rows, values = as_rows(rows, wanted), dict[int, Doubles]()
    for record in program.records:
        weights = [program.tensors[i] for i in record.weights]
        outs = apply(record, rows, [values[i] for i in record.args], weights)
        values.update(zip(record.outs, outs, strict=True))
    return values[program.records[-1].outs[-1]]
