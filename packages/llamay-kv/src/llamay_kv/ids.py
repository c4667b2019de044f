"""Ids of positions in the form that files have, which does not depend on the process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from llamay_kv._kv import UNKNOWN_TOKEN, HeldRows, describe_ids, hold_rows, resolve_ids


@dataclass(frozen=True, slots=True)
class Ids:
    """The ids of some positions, in the form of this process and in that of files.

    Attributes:
        here: int32, the ids of this process.
        stored: int32, the ids in files: rows are numbered -2, -3, … in the order of their first appearance.
        table: the meaning of these numbers, 40 bytes for each run: the digest, and as 32-bit little-endian integers the
            index of the first row and the number of rows.
        held: holds the rows of `here`, so that their ids keep their meaning.

    """

    here: np.ndarray
    stored: np.ndarray
    table: bytes
    held: HeldRows

    @classmethod
    def of(cls, ids: Sequence[int] | np.ndarray) -> Self:
        """Return ids of this process with their form in files. ValueError at an id that is neither token nor row."""
        here = np.asarray(ids, np.int32)
        held = hold_rows(here)
        return cls(here, *describe_ids(here), held)

    @classmethod
    def parse(cls, tokens: bytes, table: bytes) -> Self:
        """Return the ids that a file has. ValueError if table and ids do not fit together."""
        stored = np.frombuffer(tokens, "<i4").astype(np.int32, copy=False)
        here, held = resolve_ids(stored, table)
        return cls(here, stored, table, held)

    def encode(self) -> bytes:
        """Return the ids as 32-bit little-endian integers."""
        return self.stored.astype("<i4", copy=False).tobytes()

    def __len__(self) -> int:
        return len(self.here)


def known(ids: np.ndarray) -> np.ndarray:
    """Return the ids before the first unknown one."""
    unknown = np.flatnonzero(ids == UNKNOWN_TOKEN)
    return ids[: unknown[0]] if len(unknown) else ids
