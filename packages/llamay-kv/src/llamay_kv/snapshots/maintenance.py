"""Compare snapshots, and clean up after processes that died while they wrote one."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamay_kv import arguments
from llamay_kv.snapshots import format as fmt
from llamay_kv.snapshots.reader import SnapshotReader
from llamay_kv.storage.crypto import Keys, given_keys
from llamay_kv.storage.vfs import TEMPORARY, Vfs, given_vfs


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of two snapshots.

    Attributes:
        layout: where the layouts differ, in words, or None. If they do, K/V is not compared.
        identity: the first field in which the identities differ, or None.
        tokens: lengths of the two, and of the prefix that they share.
        values: the positions, in both and after equal tokens, in whose chunk and group K/V differs, as
            (group, begin, end).
        side: names of side states that differ or that one of them lacks.
        labels: "owner" and "marking", as far as they differ.

    """

    layout: str | None
    identity: str | None
    tokens: tuple[int, int, int]
    values: tuple[tuple[int, int, int], ...]
    side: tuple[str, ...]
    labels: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether there is a difference."""
        a, b, common = self.tokens
        other = self.layout or self.identity or self.values or self.side or self.labels
        return bool(other) or not a == b == common

    def to_json(self) -> dict[str, Any]:
        """Return the differences as plain values."""
        return {
            "equal": not self,
            "layout": self.layout,
            "identity": self.identity,
            "tokens": list(self.tokens),
            "values": [list(v) for v in self.values],
            "side": list(self.side),
            "labels": list(self.labels),
        }


def diff(
    a: str | os.PathLike[str], b: str | os.PathLike[str], *, keys: Keys = None, vfs: Vfs | None = None
) -> Difference:
    """Compare two snapshots, verifying every byte of both.

    K/V is compared chunk by chunk, in memory for two of them, up to the first token that differs: different values
    are to be expected after it. The encryption of the files makes no difference.
    """
    vfs, given = given_vfs(vfs), given_keys(keys)
    first_path, second_path = arguments.path("a", a), arguments.path("b", b)
    with SnapshotReader(vfs, first_path) as left, SnapshotReader(vfs, second_path) as right:
        left.unlock(given)
        right.unlock(given)
        mine, its = left.manifest, right.manifest
        first, second = _Contents(left), _Contents(right)
        common = _common(first.ids.here, second.ids.here)
        layout = mine.layout.difference(its.layout)
        identity = None
        if mine.identity != its.identity:
            missing = mine.identity is None or its.identity is None
            identity = "identity" if missing else mine.identity.difference(its.identity)  # type: ignore[union-attr,arg-type]
        values = [] if layout else list(_differing(first, second, common))
        names = sorted({*first.side, *second.side})
        return Difference(
            layout,
            identity,
            (mine.n_tokens, its.n_tokens, common),
            tuple(values),
            tuple(name for name in names if first.side.get(name) != second.side.get(name)),
            tuple(name for name in ("owner", "marking") if getattr(mine, name) != getattr(its, name)),
        )


class _Contents:
    """The small parts of a snapshot in memory, and where the chunks are."""

    def __init__(self, reader: SnapshotReader) -> None:
        self.reader = reader
        self.ids = reader.ids()
        self.side: dict[str, tuple[int, bytes]] = {}
        self.chunks: dict[tuple[int, int], tuple[fmt.Frame, int]] = {}
        states = iter(reader.manifest.side)
        for frame, offset in reader.frames():
            if frame.kind == fmt.CHUNKS:
                self.chunks[frame.group, frame.begin // fmt.CHUNK] = frame, offset
                continue
            if frame.kind == fmt.SIDE:
                name, version, _ = next(states)
                self.side[name] = version, self.read(frame, offset).tobytes()

    def read(self, frame: fmt.Frame, offset: int) -> np.ndarray:
        data = np.empty(frame.size, np.uint8)
        self.reader.read(frame, offset, data)
        return data


def _common(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def _differing(a: _Contents, b: _Contents, common: int) -> Any:
    groups = a.reader.manifest.layout.groups
    for place in sorted({*a.chunks, *b.chunks}):
        parts = []
        for contents in (a, b):
            if place in contents.chunks:
                parts.append((contents.chunks[place][0], contents.read(*contents.chunks[place])))
        if len(parts) < 2:
            continue
        begin = max(frame.begin for frame, _ in parts)
        end = min(common, *(frame.end for frame, _ in parts))
        if begin < end:
            one, two = (_positions(groups[place[0]], frame, data, begin, end) for frame, data in parts)
            if not all(np.array_equal(x, y) for x, y in zip(one, two, strict=True)):
                yield place[0], begin, end


def _positions(group: Any, frame: fmt.Frame, data: np.ndarray, begin: int, end: int) -> list[np.ndarray]:
    """Return the bytes of some positions of a chunk, plane by plane: [row][position][byte]."""
    n, at, planes = frame.end - frame.begin, 0, []
    for rows, unit in group.planes():
        plane = data[at : at + rows * n * unit].reshape(rows, n, unit)
        planes.append(plane[:, begin - frame.begin : end - frame.begin])
        at += rows * n * unit
    return planes


def sweep(
    directory: str | os.PathLike[str], *, older_than: float = 3600.0, vfs: Vfs | None = None
) -> list[str]:
    """Remove unfinished files; return their names.

    Args:
        directory: the folder of the snapshots.
        older_than: only files without a write for so many seconds. A process that is still writing keeps its file.
        vfs: where files live.

    """
    vfs, path = given_vfs(vfs), arguments.path("directory", directory)
    age, now = arguments.seconds("older_than", older_than), time.time()
    removed = []
    for file in vfs.list(path):
        if file.name.startswith(".") and file.name.endswith(TEMPORARY) and now - file.used > age:
            vfs.remove(f"{path}/{file.name}")
            removed.append(file.name)
    return removed
