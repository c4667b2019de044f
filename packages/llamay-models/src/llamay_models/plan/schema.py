"""`Operation`: the properties of an operation in the table, and the types of these.

A family of operations (`plan/operations`) states for each: its record, its meaning in float64, the values that it keeps
of a layer, and its rewrites. All other code asks the table, and knows no operation by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np

from llamay_models.errors import PlanError
from llamay_models.plan.attributes import REQUIRED, Attr
from llamay_models.plan.records import Doubles, Program, Record, Tensor, Value, shape_text
from llamay_models.plan.rows import Rows

Attrs: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Sequence[Doubles]
Tensors: TypeAlias = Sequence[Tensor]

# -- kept values

MemoryKind = Literal["full", "window", "latent", "state"]


@dataclass(frozen=True, slots=True)
class Memory:
    """The values that an operation keeps of a layer between the steps of a text.

    The kinds "full", "window" and "latent" keep a row at each position: `heads` keys of `k_dim` numbers and as many
    values of `v_dim`. A window keeps the rows of the last `window` positions, and latent rows have no values apart from
    their keys (`v_dim` 0). The kind "state" keeps `k_dim + v_dim` float32 numbers, zeros where a text begins; a
    convolution fills the first part and a scan the second.
    """

    kind: MemoryKind
    layer: int
    heads: int = 1
    k_dim: int = 0
    v_dim: int = 0
    window: int = 0

    def shares_layer(self, other: Memory) -> bool:
        """Return whether both fit into one layer: only the two parts of a state do."""
        states = self.kind == other.kind == "state"
        return states and not (self.k_dim and other.k_dim) and not (self.v_dim and other.v_dim)


class Layers:
    """The operations that keep values of each layer: of one layer an attention, or a convolution and a scan."""

    def __init__(self) -> None:
        self._keepers: dict[int, list[tuple[Memory, str]]] = {}

    def add(self, number: int, op: str, value: str, memory: Memory) -> None:
        """Add a record, by its number and its value's name. Raises PlanError where its layer is another's already."""
        keeper = f"record {number}, {op} ({value})"
        others = self._keepers.setdefault(memory.layer, [])
        for other, name in others:
            if not memory.shares_layer(other):
                raise PlanError(
                    f"{keeper}: layer {memory.layer} is kept by {name} already; a layer has one attention, or "
                    "one convolution and one scan"
                )
        others.append((memory, keeper))


# -- inputs of a step


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of a step's rows that operations read besides other values; 0 for an input that they do not read.

    Attributes:
        tokens: the number of tokens; a row's token is less.
        positions: the number of learned positions; a row's position is less.
        types: the number of types of tokens; the type of a row's token is less.
        axes: the number of axes of a row's position that are read.
        vector: the width of a vector that stands in a row in place of a token.

    """

    tokens: int = 0
    positions: int = 0
    types: int = 0
    axes: int = 0
    vector: int = 0


# -- calls


@dataclass(frozen=True, slots=True)
class Call:
    """A record with its values, its weights, and all its attributes, defaults included."""

    op: str
    args: tuple[Value, ...]
    outs: tuple[Value, ...]
    weights: tuple[Tensor, ...]
    attrs: Attrs

    def fail(self, what: str) -> NoReturn:
        """Raise PlanError that names the operation."""
        raise PlanError(f"{self.op}: {what}")

    def expect_width(self, value: Value, width: int, why: str) -> None:
        """Check a value's width. Raises PlanError."""
        if value.width != width:
            self.fail(f"{value.name} has {value.width} values but {why} {width}")

    def expect_same(self, a: Value, b: Value) -> None:
        """Check that two values are equally wide. Raises PlanError."""
        if a.width != b.width:
            self.fail(f"{a.name} has {a.width} values but {b.name} has {b.width}")

    def expect_parts(self, value: Value, parts: int, what: str = "heads") -> None:
        """Check that a value divides into equal parts. Raises PlanError."""
        if parts < 1 or value.width % parts:
            self.fail(f"{value.name} has {value.width} values, which do not divide into {parts} {what}")

    def expect_weight(self, index: int, rows: int, cols: int) -> None:
        """Check a weight's shape. Raises PlanError."""
        if index < len(self.weights):
            w = self.weights[index]
            if (w.rows, w.cols) != (rows, cols):
                self.fail(
                    f"{w.name} is {shape_text(w.rows, w.cols)} but {shape_text(rows, cols)} is needed here"
                )


Meaning: TypeAlias = Callable[[Rows, Arrays, Tensors, Attrs], tuple[Doubles, ...]]
Kept: TypeAlias = tuple[Doubles, ...]
Step: TypeAlias = Callable[[Kept, Arrays, Tensors, Attrs], tuple[Kept, tuple[Doubles, ...]]]


def _outs_like_args(call: Call) -> None:
    """Check that every output is as wide as the first argument, as in most operations. Raises PlanError."""
    for out in call.outs:
        call.expect_width(out, call.args[0].width, "its input has")


def no_work(call: Call) -> int:
    """Return 0: the operation has no matrix product."""
    return 0


def no_memory(call: Call) -> Memory | None:
    """Return None: the operation keeps nothing."""
    return None


def no_inputs(call: Call) -> Inputs:
    """Return no inputs: the operation reads its arguments only."""
    return Inputs()


def never(attrs: Attrs) -> bool:
    """Return False: the rows of a text may come in any number of steps."""
    return False


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The properties of an operation.

    Attributes:
        name: the name in records.
        args: names of the values that it reads. A name with `?` may be left out; after `...` there may be more.
        weights: names of its weights, likewise.
        outs: names of the values that it makes, likewise.
        attrs: its attributes.
        means: a formula for people; empty where the vocabulary has a method, whose docstring has the formula.
        check: raises PlanError where widths or weights do not fit; by default, where an output is not as wide as the
            first argument.
        meaning: computes it in float64 for whole texts from their beginning: (rows, arguments as arrays of
            (rows, width), weights, all attributes) -> outputs. The specification.
        row_by_row: computes each row from that row alone, wherever it stands.
        multiply_adds: the number of multiply-adds in a row's matrix products; other work is small beside these.
        inputs: the inputs of a step's rows that it reads besides its arguments.
        memory: the values that it keeps of its layer, if any.
        keep: in an operation that keeps a row at each position: (arguments of one row, all attributes) -> keys
            (heads, k_dim) and values (heads, v_dim) of this position.
        step: in an operation that keeps values: (kept values, arguments of the row as (1, width),
            weights, all attributes) -> the kept values after the row, outputs as (1, width). Kept rows are keys
            (n, heads, k_dim) and values (n, heads, v_dim) of the last n positions, with this row's own at the end, and
            are returned unchanged. A kept state is one array, float64 (k_dim + v_dim,) of its own `memory`, zeros where
            a text begins.
        whole_text: whether these attributes require a text to be one step.
        rows: "all", or "wanted" where its output has only the rows whose output is wanted.
        is_norm: whether it is a norm, which is the last operation of a program before its output matrix.
        adapts: the matrix that low-rank updates may change, that of a "product" or a "table"; None for no matrix.

    """

    name: str
    meaning: Meaning
    args: tuple[str, ...] = ("x",)
    weights: tuple[str, ...] = ()
    outs: tuple[str, ...] = ("y",)
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    means: str = ""
    check: Callable[[Call], None] = _outs_like_args
    row_by_row: bool = False
    multiply_adds: Callable[[Call], int] = no_work
    inputs: Callable[[Call], Inputs] = no_inputs
    memory: Callable[[Call], Memory | None] = no_memory
    keep: Callable[[Arrays, Attrs], tuple[Doubles, Doubles]] | None = None
    step: Step | None = None
    whole_text: Callable[[Attrs], bool] = never
    rows: Literal["all", "wanted"] = "all"
    is_norm: bool = False
    adapts: Literal["product", "table"] | None = None

    def complete(self, attrs: Attrs) -> Attrs:
        """Return the attributes with defaults for those that are left out."""
        return {**self._defaults, **attrs}

    @cached_property
    def _defaults(self) -> Attrs:
        return {name: a.default for name, a in self.attrs.items() if a.default is not REQUIRED}

    def recorded(self, attrs: Attrs) -> Attrs:
        """Return the attributes without those that have their default value."""
        defaults = self._defaults

        def says_nothing(name: str, value: Any) -> bool:
            return name in defaults and (
                value is defaults[name] or bool(np.array_equal(value, defaults[name]))
            )

        return {name: value for name, value in attrs.items() if not says_nothing(name, value)}

    def plain(self, attrs: Attrs) -> Attrs:
        """Return checked attributes as records have them (see `Attr.plain`)."""
        return {name: self.attrs[name].plain(value) for name, value in attrs.items()}

    def check_record(self, record: Record) -> None:
        """Check the counts and the attributes of a record. Raises PlanError."""
        for what, names, has in (
            ("arguments", self.args, record.args),
            ("weights", self.weights, record.weights),
            ("outputs", self.outs, record.outs),
        ):
            least = sum(not name.endswith(("?", "...")) for name in names)
            most = None if "..." in names else len(names)
            if len(has) < least or (most is not None and len(has) > most):
                takes = ", ".join(names) or "none"
                raise PlanError(f"{self.name} has {len(has)} {what}, but it takes: {takes}")
        for name in record.attrs:
            if name not in self.attrs:
                known = ", ".join(self.attrs) or "none"
                raise PlanError(f"{self.name} has no attribute {name}; it has: {known}")
        for name, attr in self.attrs.items():
            if name in record.attrs:
                if problem := attr.problem(record.attrs[name]):
                    raise PlanError(f"{self.name}: {name} must be {problem}, not {record.attrs[name]!r}")
            elif attr.default is REQUIRED:
                raise PlanError(f"{self.name} lacks the attribute {name}")


# -- rewrites

Rewrite: TypeAlias = Callable[[Program], Program]


@dataclass(frozen=True, slots=True)
class Fusion:
    """A rewrite of a program, and the rewrites (by name) that must have been tried before it."""

    rewrite: Rewrite
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the rewriting function."""
        return self.rewrite.__name__
