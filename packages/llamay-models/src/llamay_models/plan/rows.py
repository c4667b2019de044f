"""The rows of a step, as the meanings of operations see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from llamay_models.arguments import whole
from llamay_models.errors import PlanError
from llamay_models.plan.records import Doubles

Ints = npt.NDArray[np.int64]
_LARGEST = 2**31 - 1


@dataclass(frozen=True)
class Rows:
    """Rows of one text or of several, each text from its beginning.

    A row is a token, or a vector that was handed in.

    Attributes:
        tokens: the token of each row; in a row that is a vector it has no effect.
        wanted: the rows that want an output, in this order; None: all.
        texts: the number of rows of each text, in order; None: all rows are one text.
        positions: int (rows,), or (rows, axes) where positions have several; None: each text counts from 0.
        types: the type of each row's token; None: all are 0.
        vectors: the vectors that replace tokens, by the row's number: (width of the embedding,).

    Tokens, positions and types are whole numbers from 0 to 2^31 - 1, numpy's or Python's. They are kept as Python's,
    positions as an int64 array, and vectors as float64 arrays. Raises PlanError for other numbers, where the lengths
    differ, or where a number is not that of a row. An operation raises it for an id that its table does not have.

    """

    tokens: Sequence[int]
    wanted: Sequence[int] | None = None
    texts: Sequence[int] | None = None
    positions: Sequence[Any] | npt.NDArray[Any] | None = None
    types: Sequence[int] | None = None
    vectors: Mapping[int, npt.ArrayLike] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._keep("tokens", _wholes("tokens", self.tokens))
        n = len(self.tokens)
        if self.texts is not None:
            texts = self._keep("texts", _wholes("texts", self.texts))
            if sum(texts) != n:
                raise PlanError(f"texts of {list(texts)} rows do not make up {n} rows")
        if self.positions is not None:
            self._keep("positions", _positions(self.positions))
        if self.types is not None:
            self._keep("types", _wholes("types", self.types))
        for what, has in (("positions", self.positions), ("types", self.types)):
            if has is not None and len(has) != n:
                raise PlanError(f"there are {len(has)} {what} for {n} rows")
        if not isinstance(self.vectors, Mapping):
            raise PlanError(
                f"vectors must be a mapping of rows to vectors, not {type(self.vectors).__name__}"
            )
        self._keep("vectors", {_row(n, "vectors", row): _vector(row, v) for row, v in self.vectors.items()})
        if self.wanted is not None:
            self._keep("wanted", tuple(_row(n, "wanted", row) for row in _entries("wanted", self.wanted)))

    def _keep(self, name: str, value: Any) -> Any:
        """Set a field of this frozen object to its checked value, and return the value."""
        object.__setattr__(self, name, value)
        return value

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def spans(self) -> list[range]:
        """The rows of each text."""
        ends = np.cumsum(self.texts if self.texts is not None else [len(self)]).tolist()
        return [range(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]

    @property
    def outputs(self) -> Ints:
        """The rows that want an output."""
        return np.asarray(range(len(self)) if self.wanted is None else self.wanted, np.int64)

    def span_of(self, row: int) -> range:
        """Return the rows of a row's text."""
        return next(span for span in self.spans if row in span)

    def position(self, axis: int = 0) -> Ints:
        """Return each row's position, int (rows,); positions of one axis are the same in every axis."""
        if self.positions is None:
            return np.asarray([row - span.start for span in self.spans for row in span], np.int64)
        positions = np.asarray(self.positions, np.int64)
        if positions.ndim == 1:
            return positions
        if axis >= positions.shape[1]:
            raise PlanError(f"positions have {positions.shape[1]} axes; there is no axis {axis}")
        return positions[:, axis]

    def type(self) -> Ints:
        """Return the type of each row's token, int (rows,)."""
        return np.zeros(len(self), np.int64) if self.types is None else np.asarray(self.types, np.int64)


def _entries(what: str, values: Any) -> list[Any]:
    try:
        return list(values)
    except TypeError:
        raise PlanError(f"{what} must be a sequence of whole numbers, not {values!r}") from None


def _wholes(what: str, values: Any) -> tuple[int, ...]:
    """Return whole numbers of 31 bits as Python's. Raises PlanError that names the entry."""
    return tuple(
        whole(f"{what}[{i}]", value, 0, _LARGEST, error=PlanError)
        for i, value in enumerate(_entries(what, values))
    )


def _row(n: int, what: str, row: Any) -> int:
    return whole(f"each row that {what} names", row, 0, n - 1, error=PlanError)


def _positions(values: Any) -> Ints:
    """Return positions, int64 (rows,) or (rows, axes). Raises PlanError."""
    rows = _entries("positions", values)
    if not any(np.ndim(row) for row in rows):
        return np.asarray(_wholes("positions", rows), np.int64)
    several = [_wholes(f"positions[{i}]", row) for i, row in enumerate(rows)]
    if len({len(row) for row in several}) > 1:
        raise PlanError("positions must have equally many axes in every row")
    return np.asarray(several, np.int64)


def _vector(row: Any, values: Any) -> Doubles:
    """Return a vector that was handed in, as float64. Raises PlanError."""
    try:
        given = np.asarray(values)
    except ValueError:
        given = np.asarray(None)
    if given.dtype.kind not in "iuf" or given.ndim != 1:
        raise PlanError(f"the vector of row {row} must be one row of real numbers")
    vector = given.astype(np.float64)
    if not np.isfinite(vector).all():
        raise PlanError(f"the vector of row {row} has a number that is not finite")
    return vector


def as_rows(rows: Rows | Sequence[int], wanted: Sequence[int] | None = None) -> Rows:
    """Return rows as they are, or the rows of one text of tokens. Raises PlanError where `wanted` is told twice."""
    if not isinstance(rows, Rows):
        return Rows(rows, wanted)
    if wanted is not None:
        raise PlanError("wanted belongs to Rows where rows are given as such: Rows(tokens, wanted=…)")
    return rows
