"""The rows of a step, as the meanings of operations see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from llamay_models.errors import PlanError

Ints = npt.NDArray[np.int64]


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

    Raises PlanError where the lengths differ, or a number is not that of a row.

    """

    tokens: Sequence[int]
    wanted: Sequence[int] | None = None
    texts: Sequence[int] | None = None
    positions: Sequence[Any] | npt.NDArray[Any] | None = None
    types: Sequence[int] | None = None
    vectors: Mapping[int, npt.ArrayLike] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.tokens)
        if self.texts is not None and (sum(self.texts) != n or any(t < 0 for t in self.texts)):
            raise PlanError(f"texts of {list(self.texts)} rows do not make up {n} rows")
        for what, has in (("positions", self.positions), ("types", self.types)):
            if has is not None and len(has) != n:
                raise PlanError(f"there are {len(has)} {what} for {n} rows")
        for what, numbers in (("wanted", self.wanted or ()), ("vectors", self.vectors)):
            if any(not 0 <= row < n for row in numbers):
                raise PlanError(f"{what} must name rows from 0 to {n - 1}, not {list(numbers)}")

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
        return np.asarray(positions[:, axis], np.int64)

    def type(self) -> Ints:
        """Return the type of each row's token, int (rows,)."""
        return np.zeros(len(self), np.int64) if self.types is None else np.asarray(self.types, np.int64)


def as_rows(rows: Rows | Sequence[int], wanted: Sequence[int] | None = None) -> Rows:
    """Return rows as they are, or the rows of one text of tokens."""
    return rows if isinstance(rows, Rows) else Rows(rows, wanted)
