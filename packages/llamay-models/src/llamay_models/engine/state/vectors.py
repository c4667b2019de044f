"""`Vectors`: rows of a context that are vectors instead of tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import llamay_kv as kv
from llamay_models.backend import RowInputs
from llamay_models.errors import ContextError, PromptError
from llamay_models.plan import Floats

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Consecutive rows that are vectors.

    Attributes:
        begin: the place of the first row in its context.
        ids: the ids below zero that stand for the rows among the tokens, by their digest; this object keeps them valid.
        values: float32 (n, width).
        positions: int32 (n, axes), by which rotations turn the rows; None where these are the places in the context.
            The rows after the vectors continue from the largest.
        digest: the 32 bytes that identify the source of the vectors, as given.

    """

    begin: int
    ids: kv.Rows
    values: Floats
    positions: Ints | None
    digest: bytes

    @property
    def end(self) -> int:
        """The place after the last row."""
        return self.begin + len(self.values)

    def first(self, n: int, pool: kv.Pool) -> Vectors:
        """Return the first n rows."""
        positions = None if self.positions is None else self.positions[:n]
        return Vectors(self.begin, pool.rows(self.ids.digest, n), self.values[:n], positions, self.digest)


def make(
    pool: kv.Pool,
    begin: int,
    values: npt.ArrayLike,
    digest: bytes,
    positions: npt.ArrayLike | None,
    *,
    width: int,
    axes: int,
) -> Vectors:
    """Return vectors for a model that takes vectors of this width, and positions of so many axes.

    Raises PromptError naming the argument that does not fit.
    """
    if not width:
        raise PromptError("this model takes tokens only, no vectors in their place")
    given = np.asarray(values)
    if given.dtype.kind not in "fiu":
        raise PromptError(f"vectors must be real numbers, not {given.dtype}")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
        rows = np.array(given, np.float32, order="C")
    if rows.ndim != 2 or rows.shape[1] != width or not len(rows):
        raise PromptError(f"vectors must be of shape (n, {width}), not {rows.shape}")
    if not np.isfinite(rows).all():
        raise PromptError("vectors must be finite numbers")
    if not isinstance(digest, bytes | bytearray) or len(digest) != 32:
        what = f"{len(digest)} bytes" if isinstance(digest, bytes | bytearray) else repr(digest)[:80]
        raise PromptError(
            f"digest must be 32 bytes, such as a SHA-256 of the source of the vectors, not {what}"
        )
    digest = bytes(digest)
    turned = None
    name = digest
    if positions is not None:
        turned = _positions(positions, len(rows), axes)
        # The same picture has other keys at other positions.
        name = hashlib.sha256(b"llamay vectors 1\0" + digest + bytes([axes]) + turned.tobytes()).digest()
    rows.flags.writeable = False
    return Vectors(begin, pool.rows(name, len(rows)), rows, turned, digest)


def _positions(given: npt.ArrayLike, n: int, axes: int) -> Ints:
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise PromptError(f"positions of vectors must be whole numbers, not {array.dtype}")
    if array.ndim == 1:
        array = np.repeat(array[:, None], axes, axis=1)
    if array.shape != (n, axes):
        raise PromptError(f"positions of {n} vectors must be of shape ({n},) or ({n}, {axes})")
    # Rotations are exact up to 2^30, and the rows that follow continue from the largest position.
    if (array < 0).any() or (array >= 1 << 29).any():
        raise PromptError(f"positions of vectors must be from 0 to {(1 << 29) - 1}")
    return np.ascontiguousarray(array, np.int32)


def describe(
    vectors: Sequence[Vectors], begin: int, ids: Sequence[int]
) -> tuple[list[int], int, RowInputs | None]:
    """Return the rows from `begin` on as a step takes them: tokens, the position of the first, and inputs.

    Raises ContextError for a row whose vector is not in memory.
    """
    end = begin + len(ids)
    here = [v for v in vectors if v.begin < end and begin < v.end]
    tokens, numbers, values = list(ids), list[int](), list[Floats]()
    for each in here:
        low, high = max(begin, each.begin), min(end, each.end)
        numbers += range(low - begin, high - begin)
        values.append(each.values[low - each.begin : high - each.begin])
        tokens[low - begin : high - begin] = [0] * (high - low)
    for at, token in enumerate(tokens):
        if token < 0:
            raise ContextError(
                f"row {begin + at} of this context is a vector that is not here any more; hand it in again"
            )
    inputs: dict[str, object] = {}
    if numbers:
        inputs["vectors"] = (np.array(numbers, np.int32), np.concatenate(values))
    if any(each.positions is not None for each in here):
        inputs["positions"] = np.concatenate([_positions_of(vectors, row) for row in range(begin, end)])
    return tokens, begin + _shift(vectors, begin), inputs or None


def _positions_of(vectors: Sequence[Vectors], row: int) -> Ints:
    """Return the positions by which rotations turn a row: int32 (1, axes)."""
    axes = next(v.positions.shape[1] for v in vectors if v.positions is not None)
    for each in vectors:
        if each.begin <= row < each.end and each.positions is not None:
            return each.positions[row - each.begin : row - each.begin + 1]
    return np.full((1, axes), row + _shift(vectors, row), np.int32)


def _shift(vectors: Sequence[Vectors], row: int) -> int:
    """Return a row's position less its place: positions continue from the largest one of the vectors before."""
    turned = [v for v in vectors if v.positions is not None and v.end <= row]
    positions = turned[-1].positions if turned else None
    return 0 if positions is None else int(positions.max()) + 1 - turned[-1].end


# -- in snapshots


def encode_vectors(vectors: Sequence[Vectors]) -> bytes:
    """Return a line of JSON, then for each the vectors as little-endian float32 and the positions as int32."""
    head = [
        {
            "begin": v.begin,
            "shape": v.values.shape,
            "axes": 0 if v.positions is None else v.positions.shape[1],
            "digest": v.digest.hex(),
        }
        for v in vectors
    ]
    raw = [
        part.tobytes()
        for v in vectors
        for part in (
            v.values.astype("<f4"),
            *([] if v.positions is None else [v.positions.astype("<i4")]),
        )
    ]
    return b"".join([json.dumps(head).encode(), b"\n", *raw])


def decode_vectors(
    data: bytes,
    cache: kv.Context,
    made: Callable[[int, Floats, bytes, Ints | None], Vectors],
) -> tuple[Vectors, ...]:
    """Return the vectors that `encode_vectors` encoded. Raises ValueError, KeyError or TypeError for other data.

    `made` makes vectors from the place where they begin, their values, digest and positions.
    """
    line, _, raw = data.partition(b"\n")
    at, out = 0, list[Vectors]()

    def take(rows: int, columns: int, kind: str) -> np.ndarray[Any, Any]:
        nonlocal at
        size = 4 * rows * columns
        if not 0 < size <= len(raw) - at:
            raise ValueError(f"{rows} x {columns} numbers in {len(raw) - at} bytes")
        values = np.frombuffer(raw[at : at + size], kind).reshape(rows, columns)
        at += size
        return values

    for each in json.loads(line):
        begin, axes, (rows, width) = int(each["begin"]), int(each["axes"]), each["shape"]
        values = take(int(rows), int(width), "<f4")
        positions = take(int(rows), axes, "<i4") if axes else None
        v = made(begin, values, bytes.fromhex(each["digest"]), positions)
        if begin < 0 or v.end > len(cache) or cache.token_slice(begin, v.end) != list(v.ids):
            raise ValueError(f"rows from {begin} on are others")
        if out and begin < out[-1].end:
            raise ValueError(f"rows from {begin} on are there twice")
        out.append(v)
    if at != len(raw):
        raise ValueError(f"{len(raw) - at} bytes too many")
    if sum(len(v.values) for v in out) != sum(token < 0 for token in cache.tokens):
        raise ValueError("some are missing")
    return tuple(out)
