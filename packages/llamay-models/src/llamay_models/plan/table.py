"""Look-ups in the table of operations, for records and for whole programs."""

from __future__ import annotations

from collections.abc import Iterable

from llamay_models.errors import PlanError
from llamay_models.plan.operations import TABLE
from llamay_models.plan.records import Program, Record, Value
from llamay_models.plan.schema import Call, Inputs, Layers, Memory, Operation


def operation(name: str) -> Operation:
    """Return the operation of a name. Raises PlanError for an unknown name."""
    if name not in TABLE:
        raise PlanError(f"there is no operation {name}; there are: {', '.join(sorted(TABLE))}")
    return TABLE[name]


def call_of(program: Program, record: Record) -> Call:
    """Return a record with its values, its weights and all its attributes."""

    def values(numbers: tuple[int, ...]) -> tuple[Value, ...]:
        return tuple(Value(n, program.widths[n], program.names[n]) for n in numbers)

    weights = tuple(program.tensors[i] for i in record.weights)
    attrs = operation(record.op).complete(record.attrs)
    return Call(record.op, values(record.args), values(record.outs), weights, attrs)


def validate(program: Program) -> None:
    """Check every record against the table, that it reads values of earlier records, and that layers are kept once.

    Raises PlanError that names the record and the problem.
    """
    made: set[int] = set()
    for index, record in enumerate(program.records):
        try:
            kind = operation(record.op)
            kind.check_record(record)
            for what, numbers, end in (
                ("value", (*record.args, *record.outs), len(program.widths)),
                ("weight", record.weights, len(program.tensors)),
            ):
                if wrong := [n for n in numbers if not 0 <= n < end]:
                    raise PlanError(f"{record.op} names {what} {wrong[0]}, but there are {end}")
            if unmade := [v for v in record.args if v not in made]:
                raise PlanError(f"{record.op} reads value {unmade[0]}, which no record before it makes")
            if again := [v for v in record.outs if v in made]:
                raise PlanError(f"{record.op} makes value {again[0]} a second time")
            kind.check(call_of(program, record))
        except PlanError as error:
            raise PlanError(f"record {index}: {error}") from None
        made.update(record.outs)
    memories(program)


def memories(program: Program) -> list[Memory]:
    """Return the values that the program's operations keep of their layers, in the order of the records.

    Raises PlanError, which names both records, where two operations keep values that cannot share a layer: two
    attentions, two convolutions, two scans, or an attention and one of these.
    """
    kept, layers = list[Memory](), Layers()
    for number, record in enumerate(program.records):
        memory = operation(record.op).memory(call_of(program, record))
        if memory is not None:
            layers.add(number, record.op, program.names[record.outs[0]], memory)
            kept.append(memory)
    return kept


def inputs(program: Program) -> Inputs:
    """Return the inputs that the program reads of a step's rows: the size of its smallest table, and its most axes.

    Raises PlanError where vectors that are handed in would need two widths.
    """
    read = [operation(r.op).inputs(call_of(program, r)) for r in program.records]

    def least(sizes: Iterable[int]) -> int:
        return min((size for size in sizes if size), default=0)

    vectors = {i.vector for i in read if i.vector}
    if len(vectors) > 1:
        raise PlanError(
            f"vectors that are handed in cannot be {' and '.join(map(str, sorted(vectors)))} wide"
        )
    return Inputs(
        tokens=least(i.tokens for i in read),
        positions=least(i.positions for i in read),
        types=least(i.types for i in read),
        axes=max((i.axes for i in read), default=0),
        vector=max(vectors, default=0),
    )


def whole_text(program: Program) -> bool:
    """Return whether a text must be one step, because some row needs rows after it."""
    return any(operation(r.op).whole_text(call_of(program, r).attrs) for r in program.records)
