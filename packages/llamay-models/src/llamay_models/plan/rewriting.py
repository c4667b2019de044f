"""The common parts of rewrites of a program: the maker and the readers of each value, and replacing records.

A value that is read only by the record which absorbs it disappears; a value with other readers stays. A fused record
stands where the last of its parts stood.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from llamay_models.plan.records import Program, Record


class Wiring:
    """The maker and the readers of each value of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.uses = program.uses()
        self.makers = {value: record for record in program.records for value in record.outs}
        self.readers: dict[int, list[int]] = defaultdict(list)
        for index, record in enumerate(program.records):
            for value in record.args:
                self.readers[value].append(index)

    def made(self, value: int, *ops: str) -> Record | None:
        """Return the record that makes `value`, if it is one of `ops` and nothing else reads the value."""
        record = self.makers[value]
        return record if record.op in ops and self.uses[value] == 1 else None


Match = Callable[[Wiring, Record], "tuple[Record, set[int]] | None"]
"""The replacement of a record, and the values that it absorbs; None where it stays as it is."""


def rewrite(program: Program, match: Match) -> Program:
    """Replace each record that matches, and drop the records whose values it absorbed."""
    wiring = Wiring(program)
    out: list[Record] = []
    gone: set[int] = set()
    for record in program.records:
        found = match(wiring, record) if record.args else None
        out.append(found[0] if found else record)
        gone |= found[1] if found else set()
    return replace(program, records=_without(out, gone))


def _without(records: Iterable[Record], values: set[int]) -> tuple[Record, ...]:
    return tuple(r for r in records if r.outs[0] not in values)
