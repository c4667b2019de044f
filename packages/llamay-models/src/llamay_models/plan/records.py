"""The parts of a plan: records over numbered values, and the tensors that they read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from llamay_models.arguments import text, whole
from llamay_models.errors import PlanError

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


class Tensor(Protocol):
    """A weight, wherever it lives: in a file, in memory, or packed for the kernels.

    A vector has one row. `dequantize` returns float32 of shape (rows, cols), in the operations' fixed
    order of docs/arithmetic.md.
    """

    @property
    def name(self) -> str:
        """The tensor's name in its file."""

    @property
    def format(self) -> str:
        """The format of its values, such as Q4_K."""

    @property
    def rows(self) -> int:
        """The number of its rows; 1 for a vector."""

    @property
    def cols(self) -> int:
        """The number of values in a row."""

    @property
    def nbytes(self) -> int:
        """Its size in bytes, as it is stored."""

    def dequantize(self) -> Floats:
        """Return the values, float32 of shape (rows, cols)."""


_MEMBERS = ("name", "format", "rows", "cols", "nbytes", "dequantize")


def check_tensor(where: str, w: Any, error: type[Exception] = PlanError) -> Tensor:
    """Return a weight that has all members of `Tensor`, its name a string and its shape whole numbers.

    Raises `error` that begins with `where`.
    """
    if missing := [member for member in _MEMBERS if not hasattr(w, member)]:
        raise error(
            f"{where}: a weight must be a Tensor, such as ArrayTensor(name, values), but this "
            f"{type(w).__name__} has no {' and no '.join(missing)}"
        )
    tensor: Tensor = w
    name = text(f"{where}: a weight's name", tensor.name, error=error)
    for size, value in (("rows", tensor.rows), ("cols", tensor.cols)):
        whole(f"{where}: {size} of {name}", value, 0, error=error)
    return tensor


@dataclass
class ArrayTensor:
    """A tensor of float32 values in memory, of one dimension or more; all but the last are rows.

    `values` may be whatever numpy makes an array of real numbers of; they are rounded to float32. Raises PlanError for
    other values, for one number without a dimension, and for numbers beyond float32.
    """

    name: str
    values: Floats
    format: str = "F32"

    def __post_init__(self) -> None:
        text("the name of an ArrayTensor", self.name, error=PlanError)
        text(f"the format of {self.name}", self.format, error=PlanError)
        self.values = _floats(self.name, self.values)

    @property
    def rows(self) -> int:
        """The product of all dimensions but the last."""
        return int(math.prod(self.values.shape[:-1]))

    @property
    def cols(self) -> int:
        """The last dimension."""
        return int(self.values.shape[-1])

    @property
    def nbytes(self) -> int:
        """Its size in bytes: 4 for each value."""
        return self.values.nbytes

    def dequantize(self) -> Floats:
        """Return the values, float32 of shape (rows, cols)."""
        return self.values.reshape(self.rows, self.cols)


def _floats(name: str, values: Any) -> Floats:
    """Return values as float32. Raises PlanError for values that are no real numbers, or that float32 cannot have."""
    try:
        given = np.asarray(values)
    except ValueError:
        raise PlanError(f"the values of {name} make no array: the lengths of its rows differ") from None
    if given.dtype.kind not in "iuf":
        raise PlanError(f"the values of {name} must be real numbers, not {given.dtype}")
    if not given.ndim:
        raise PlanError(f"the values of {name} must have one dimension or more, not be one number")
    with np.errstate(over="ignore"):
        rounded: Floats = given.astype(np.float32, copy=False)
    if given.dtype != np.float32 and np.any(np.isinf(rounded) & np.isfinite(given)):
        raise PlanError(f"the values of {name} have a number that is too large for float32")
    return rounded


@dataclass(frozen=True, slots=True)
class Part:
    """Rows `begin` to `end` of a matrix, or these values of a vector; the name has the range."""

    whole: Tensor
    begin: int
    end: int

    @property
    def name(self) -> str:
        """The name of the whole tensor, and the range."""
        return f"{self.whole.name}[{self.begin}:{self.end}]"

    @property
    def format(self) -> str:
        """The format of the whole tensor."""
        return self.whole.format

    @property
    def rows(self) -> int:
        """The number of rows in the range; 1 for a vector."""
        return 1 if self.whole.rows == 1 else self.end - self.begin

    @property
    def cols(self) -> int:
        """The number of values in a row; for a vector, in the range."""
        return self.end - self.begin if self.whole.rows == 1 else self.whole.cols

    @property
    def nbytes(self) -> int:
        """The bytes of the whole tensor, in proportion to the range."""
        along = self.whole.cols if self.whole.rows == 1 else self.whole.rows
        return self.whole.nbytes * (self.end - self.begin) // along

    def dequantize(self) -> Floats:
        """Return the values of the range, float32 of shape (rows, cols)."""
        along = (0, slice(self.begin, self.end)) if self.whole.rows == 1 else slice(self.begin, self.end)
        return self.whole.dequantize()[along].reshape(self.rows, self.cols)


@dataclass(frozen=True, slots=True)
class Shaped:
    """All values of a tensor in another shape, since converters differ in the dimensions of 1 that they write."""

    whole: Tensor
    rows: int
    cols: int

    @property
    def name(self) -> str:
        """The name of the whole tensor."""
        return self.whole.name

    @property
    def format(self) -> str:
        """The format of the whole tensor."""
        return self.whole.format

    @property
    def nbytes(self) -> int:
        """The bytes of the whole tensor."""
        return self.whole.nbytes

    def dequantize(self) -> Floats:
        """Return all values, float32 of shape (rows, cols)."""
        return self.whole.dequantize().reshape(self.rows, self.cols)


@dataclass(frozen=True, slots=True)
class Outline:
    """A tensor's name and shape, without its values."""

    name: str
    format: str
    rows: int
    cols: int
    nbytes: int

    def dequantize(self) -> Floats:
        """Raise PlanError: an outline has no values."""
        raise PlanError(f"the values of {self.name} were given up")


def shape_text(rows: int, cols: int, stack: int = 1) -> str:
    """Return a shape in words; for `stack` stacked matrices, their number and the shape of one."""
    if stack > 1:
        return f"{stack} of {rows // stack} x {cols}"
    return f"a vector of {cols}" if rows == 1 else f"{rows} x {cols}"


def matrix(w: Tensor) -> Doubles:
    """Return a weight's values as float64, (rows, cols)."""
    return w.dequantize().astype(np.float64)


def vector(w: Tensor) -> Doubles:
    """Return a vector's values as float64."""
    return w.dequantize().astype(np.float64).reshape(-1)


@dataclass(frozen=True, slots=True)
class Value:
    """A traced value: its number, its width in F32 numbers a row, and a name for people.

    The name comes from the weight that made it (`blk.3.attn_q`) or from the operation and its argument
    (`blk.3.attn_q.rope`). Nothing is computed from it. `owner` identifies the recorder, which takes
    its own values only.
    """

    id: int
    width: int
    name: str
    owner: object = field(default=None, repr=False, compare=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Record:
    """One operation.

    `weights` are indices into the program's tensors; docs/plan.md lists operations and attributes.
    """

    op: str
    outs: tuple[int, ...]
    args: tuple[int, ...]
    weights: tuple[int, ...]
    attrs: Mapping[str, Any]


@dataclass(frozen=True)
class Program:
    """A straight list of operations; only the number of rows is open. The last value is the output."""

    records: tuple[Record, ...]
    widths: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    names: tuple[str, ...]

    @property
    def output_width(self) -> int:
        """The width of the output in F32 numbers a row; for a language model, the size of its vocabulary."""
        return self.widths[self.records[-1].outs[-1]]

    def uses(self) -> list[int]:
        """Return the number of records that read each value; the output has one reader more."""
        count = [0] * len(self.widths)
        for record in self.records:
            for value in record.args:
                count[value] += 1
        count[self.records[-1].outs[-1]] += 1
        return count
