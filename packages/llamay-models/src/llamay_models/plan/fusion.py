"""Fusion: rewrites of a program's records into fewer, larger operations that compute the same.

Each rewrite takes a program and returns one with the same output, as `evaluate` shows before and after. Each family
of operations has its own rewrites; this module has the rewrite that concerns all families.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llamay_models.plan.operations import FUSIONS
from llamay_models.plan.records import Program, Record
from llamay_models.plan.rewriting import Wiring
from llamay_models.plan.schema import Rewrite
from llamay_models.plan.table import operation


def fuse(program: Program) -> Program:
    """Return the program after all rewrites; each rewrite comes after those that it depends on."""
    for rewrite in REWRITES:
        program = rewrite(program)
    return program


def select_early(program: Program) -> Program:
    """Move `select` up behind the last operation in which rows need each other, as a rule the last attention.

    In prefill at most one row of a prompt wants logits; the other rows then skip the products of the last layer.
    """
    selects = [r for r in program.records if r.op == "select"]
    if len(selects) != 1:
        return program
    (select,) = selects
    moved = _movable(program, select)
    if not moved:
        return program
    widths, names = list(program.widths), list(program.names)
    renamed = {select.outs[0]: select.args[0]}
    out: list[Record] = []
    for record in program.records:
        if record is select:
            continue
        args = record.args
        if moved.issuperset(record.outs):
            for value in args:
                if value not in moved and value not in renamed:
                    renamed[value] = len(widths)
                    out.append(Record("select", (len(widths),), (value,), (), {}))
                    widths.append(widths[value])
                    names.append(f"{names[value]}.select")
            args = tuple(renamed.get(v, v) for v in args)
        else:
            args = tuple(select.args[0] if v == select.outs[0] else v for v in args)
        out.append(replace(record, args=args))
    return replace(program, records=tuple(out), widths=tuple(widths), names=tuple(names))


def _movable(program: Program, select: Record) -> set[int]:
    """Return the values that only selected rows need, and that row-by-row operations make."""
    wiring = Wiring(program)
    moved: set[int] = set()

    def is_needed_selected(readers: Iterable[Record]) -> bool:
        return all(r is select or moved.issuperset(r.outs) for r in readers)

    for record in reversed(program.records):
        readers = [program.records[i] for value in record.outs for i in wiring.readers[value]]
        if operation(record.op).row_by_row and readers and is_needed_selected(readers):
            moved.update(record.outs)
    return moved


REWRITES: tuple[Rewrite, ...] = (select_early, *(fusion.rewrite for fusion in FUSIONS))
