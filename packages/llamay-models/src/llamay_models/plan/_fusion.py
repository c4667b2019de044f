"""Fusion: rewrites of a program's records into fewer, larger operations that compute the same.

Each rewrite takes a program and returns one with the same output, as `evaluate` shows before and after. A
value that is read only by what absorbs it disappears; a value that something else reads stays. Records
keep the order of their inputs: a fused record stands where the last of its parts stood, except a group,
whose parts share one input, which stands where the first stood.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

from llamay_models.plan._records import Program, Record

Rewrite = Callable[[Program], Program]


def fuse(program: Program) -> Program:
    """All rewrites, in the order in which they make each other possible."""
    for rewrite in REWRITES:
        program = rewrite(program)
    return program


def select_early(program: Program) -> Program:
    """Move `select` up to where rows last need each other: behind the last attention.

    Of a prompt that is read only one row wants logits, or none; the others then skip the last layer's
    products.
    """
    selects = [r for r in program.records if r.op == "select"]
    if len(selects) != 1:
        return program
    (select,) = selects
    records = _Records(program)
    moved: set[int] = set()
    for record in reversed(program.records):
        readers = [program.records[i] for i in records.readers[record.outs[0]]]
        if (
            record.op in _ROW_BY_ROW
            and readers
            and all(r is select or (r.outs[0] in moved and r.op in _ROW_BY_ROW) for r in readers)
        ):
            moved.add(record.outs[0])
    if not moved:
        return program
    widths, names = list(program.widths), list(program.names)
    renamed = {select.outs[0]: select.args[0]}
    out: list[Record] = []
    for record in program.records:
        if record is select:
            continue
        args = record.args
        if record.outs[0] in moved:
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


def rope_norm(program: Program) -> Program:
    """`rope(rms_norm(x))` becomes one pass over each head."""

    def match(records: _Records, last: Record) -> tuple[Record, set[int]] | None:
        norm = records.made(last.args[0], "rms_norm")
        if last.op != "rope" or norm is None:
            return None
        attrs = {**norm.attrs, **last.attrs}
        return Record("rope_norm", last.outs, norm.args, norm.weights, attrs), {norm.outs[0]}

    return _rewrite(program, match)


def glu(program: Program) -> Program:
    """`mul(act(linear(x, gate)), linear(x, up))` becomes one operation that reads x once."""

    def match(records: _Records, last: Record) -> tuple[Record, set[int]] | None:
        if last.op != "mul":
            return None
        act = records.made(last.args[0], "silu", "gelu_tanh")
        up = records.made(last.args[1], "linear")
        gate = records.made(act.args[0], "linear") if act else None
        if act is None or up is None or gate is None or gate.args != up.args:
            return None
        if len(gate.weights) > 1 or len(up.weights) > 1:
            return None  # biases are not part of the fused operation
        record = Record("glu", last.outs, gate.args, (gate.weights[0], up.weights[0]), {"act": act.op})
        return record, {gate.outs[0], act.outs[0], up.outs[0]}

    return _rewrite(program, match)


def linear_add(program: Program) -> Program:
    """`add(residual, linear(x, w))`, with a bias or without, adds while the product is written."""

    def match(records: _Records, last: Record) -> tuple[Record, set[int]] | None:
        if last.op != "add":
            return None
        product = records.made(last.args[1], "linear")
        if product is None:
            return None
        args = (last.args[0], product.args[0])
        return Record("linear_add", last.outs, args, product.weights, {}), {product.outs[0]}

    return _rewrite(program, match)


def linear_act(program: Program) -> Program:
    """`act(linear(x, w))`, with a bias or without: each thread applies it to what it has just multiplied."""

    def match(records: _Records, last: Record) -> tuple[Record, set[int]] | None:
        if last.op not in ("silu", "gelu_tanh"):
            return None
        product = records.made(last.args[0], "linear")
        if product is None:
            return None
        return Record("linear_act", last.outs, product.args, product.weights, {"act": last.op}), {
            product.outs[0]
        }

    return _rewrite(program, match)


def rms_norm_add(program: Program) -> Program:
    """`add(residual, rms_norm(x))`: a norm after the block, as Gemma has it."""

    def match(records: _Records, last: Record) -> tuple[Record, set[int]] | None:
        if last.op != "add":
            return None
        norm = records.made(last.args[1], "rms_norm")
        if norm is None:
            return None
        args = (last.args[0], norm.args[0])
        return Record("rms_norm_add", last.outs, args, norm.weights, norm.attrs), {norm.outs[0]}

    return _rewrite(program, match)


def add_rms_norm(program: Program) -> Program:
    """`rms_norm(add(a, b))`, where the sum is read by others too: both are written in one pass."""
    records = _Records(program)
    out: list[Record] = []
    absorbed: set[int] = set()
    for index, record in enumerate(program.records):
        if index in absorbed:
            continue
        readers = records.readers[record.outs[0]] if record.op == "add" else []
        norm = next((i for i in readers if program.records[i].op == "rms_norm"), None)
        if norm is None:
            out.append(record)
            continue
        following = program.records[norm]
        absorbed.add(norm)
        outs = (record.outs[0], following.outs[0])
        out.append(Record("add_rms_norm", outs, record.args, following.weights, following.attrs))
    return replace(program, records=tuple(out))


def linear_group(program: Program) -> Program:
    """Several products of one value: it is quantized once, and they are one piece of work for the threads."""
    groups: dict[int, list[Record]] = defaultdict(list)
    for record in program.records:
        if record.op == "linear":
            groups[record.args[0]].append(record)
    firsts = {g[0].outs[0]: g for g in groups.values() if len(g) > 1}
    grouped = {r.outs[0] for g in firsts.values() for r in g}
    out: list[Record] = []
    for record in program.records:
        if record.op != "linear" or record.outs[0] not in grouped:
            out.append(record)
        elif (group := firsts.get(record.outs[0])) is not None:
            weights = tuple(w for r in group for w in r.weights)
            bias = tuple(len(r.weights) > 1 for r in group)
            outs = tuple(r.outs[0] for r in group)
            out.append(Record("linear_group", outs, record.args, weights, {"bias": bias}))
    return replace(program, records=tuple(out))


# What computes a row from that row alone, wherever it stands. A rotation needs the row's position, which a
# selected row has lost.
_ROW_BY_ROW = frozenset(
    {"linear", "rms_norm", "layer_norm", "add", "mul", "scale", "silu", "gelu_tanh", "softcap"}
)

REWRITES: tuple[Rewrite, ...] = (
    select_early,
    rope_norm,
    glu,
    rms_norm_add,
    linear_add,
    linear_act,
    add_rms_norm,
    linear_group,
)


class _Records:
    """Who makes and who reads each value."""

    def __init__(self, program: Program) -> None:
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


def _rewrite(
    program: Program, match: Callable[[_Records, Record], tuple[Record, set[int]] | None]
) -> Program:
    """Replace each record that matches, and drops the records whose values it absorbed."""
    records = _Records(program)
    out: list[Record] = []
    gone: set[int] = set()
    for record in program.records:
        found = match(records, record) if record.args else None
        out.append(found[0] if found else record)
        gone |= found[1] if found else set()
    return replace(program, records=_without(out, gone))


def _without(records: Iterable[Record], values: set[int]) -> tuple[Record, ...]:
    return tuple(r for r in records if r.outs[0] not in values)
