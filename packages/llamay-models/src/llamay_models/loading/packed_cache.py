"""Packed weights beside the model, so that the next start reads them instead of packing again.

One file for each model and way of packing it:

    8 bytes    the magic, with the version of this form
    8 bytes    length of the header, little endian
    32 bytes   SHA-256 of the header
    header     JSON: the identity of the model, and of each tensor name, format, rows, cols, offset and checksum
    ...        the packed bytes, each at a multiple of 4,096

Nothing in it is believed: a file of another model, of another layout of the kernels, cut short or with any bit
changed is a miss, and is written again. It appears whole under its name or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from llamay_models.backend import Packed, Threads, Weight
from llamay_models.gguf import GGUFFile
from llamay_models.plan import Tensor

_MAGIC = b"llamayP1"
_PREFIX = len(_MAGIC) + 8 + 32
_PAGE = 4096
_MAX_HEADER = 64 << 20
_ABANDONED = 3600.0
BUDGET = 16 << 30
"""Bytes that all files in a folder may take together."""
RESERVE = 1 << 30
"""Bytes of the disk that are left free."""

_log = logging.getLogger(__name__)


class PackedCache:
    """A folder of packed weights.

    Args:
        folder: made when something is first written.
        packed: how the backend keeps weights in files.
        budget_bytes: the most bytes of its files together; those used longest ago are deleted.

    """

    def __init__(self, folder: str | os.PathLike[str], packed: Packed, *, budget_bytes: int = BUDGET) -> None:
        self.folder = Path(folder)
        self._packed = packed
        self.budget_bytes = budget_bytes

    def path(self, identity: dict[str, Any]) -> Path:
        """Return where the weights of an identity are, or would be."""
        text = json.dumps(identity, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.packed"

    def read(
        self,
        identity: dict[str, Any],
        tensors: Sequence[tuple[str, str, int, int]],
        threads: Threads,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> list[Weight] | None:
        """Return the weights of name, format, rows and cols, or None where they are not there as they should be.

        Raising from `progress` stops it.
        """
        path = self.path(identity)
        try:
            with path.open("rb", buffering=0) as file:
                places = _header(file.fileno(), identity, tensors)
                weights: list[Weight] = []
                total, done = os.fstat(file.fileno()).st_size, 0
                for (name, kind, rows, cols), (offset, checksum) in zip(tensors, places, strict=True):
                    weight = self._packed.read(
                        file.fileno(), offset, kind, rows, cols, checksum, name=name, threads=threads
                    )
                    weights.append(weight)
                    done += weight.nbytes
                    if progress is not None:
                        progress("loading", min(done, total), total)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("%s is of no use, and is made again: %s", path, error)
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # used now
        return weights

    def write(self, identity: dict[str, Any], weights: Sequence[Weight], threads: Threads) -> bool:
        """Keep weights; return whether there was room. Errors of the system are logged, and cost the cache only."""
        header, offsets, size = self._layout(identity, weights, threads)
        path = self.path(identity)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if size > self.budget_bytes or size + RESERVE > shutil.disk_usage(self.folder).free:
                _log.warning("no room for %d bytes of packed weights in %s", size, self.folder)
                return False
            self._make_room(size, path)
            self._write(path, header, offsets, weights)
        except OSError as error:
            _log.warning("packed weights are not kept in %s: %s", self.folder, error)
            return False
        return True

    def _layout(
        self, identity: dict[str, Any], weights: Sequence[Weight], threads: Threads
    ) -> tuple[bytes, list[int], int]:
        """Return the header, where each weight goes, and the size of the file."""
        sums = [self._packed.checksum(weight, threads) for weight in weights]
        # The offsets are counted from the first page after the header, whose length depends on them.
        offsets, end = [], 0
        for weight in weights:
            offsets.append(end)
            end = -(-(end + weight.nbytes) // _PAGE) * _PAGE
        rows = [
            [w.name, w.format, w.rows, w.cols, offset, f"{checksum:016x}"]
            for w, offset, checksum in zip(weights, offsets, sums, strict=True)
        ]
        text = json.dumps({**identity, "bytes": end, "tensors": rows}).encode()
        start = -(-(_PREFIX + len(text)) // _PAGE) * _PAGE
        header = _MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text
        return header, [start + offset for offset in offsets], start + end

    def _write(self, path: Path, header: bytes, offsets: Sequence[int], weights: Sequence[Weight]) -> None:
        number, name = tempfile.mkstemp(prefix=f"{path.stem}-", suffix=".partial", dir=self.folder)
        partial = Path(name)
        try:
            with os.fdopen(number, "wb", buffering=0) as file:
                _write_all(file, memoryview(header))
                for offset, weight in zip(offsets, weights, strict=True):
                    file.seek(offset)
                    _write_all(file, self._packed.bytes(weight).data)
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink()
            raise

    def _make_room(self, size: int, path: Path) -> None:
        """Delete the files used longest ago, and those of processes that were ended while they wrote."""
        kept: list[tuple[float, int, Path]] = []
        for other in self.folder.iterdir():
            with contextlib.suppress(OSError):
                status = other.stat()
                if other.suffix == ".partial" and time.time() - status.st_mtime > _ABANDONED:
                    other.unlink()
                elif other.suffix == ".packed" and other != path:
                    kept.append((status.st_mtime, status.st_size, other))
        used = size + sum(bytes_ for _, bytes_, _ in kept)
        for _, bytes_, other in sorted(kept):
            if used <= self.budget_bytes:
                break
            with contextlib.suppress(OSError):
                other.unlink()
            used -= bytes_


def identity_of(file: GGUFFile, sha256: str | None, packed: Packed) -> dict[str, Any]:
    """Return the identity of packed weights: the model's SHA-256 where it is known, else its files' paths and stats."""
    source: Any = sha256
    if sha256 is None:
        states = zip(file.paths, file.states, strict=True)
        source = [[str(path.resolve()), s.st_size, s.st_mtime_ns, s.st_ino] for path, s in states]
    return {"layout": packed.layout, "source": source}


def shapes(tensors: Sequence[Tensor]) -> list[tuple[str, str, int, int]]:
    """Return the packed forms of tensors: vectors become F32, matrices keep their format."""
    return [(t.name, t.format if t.rows > 1 else "F32", t.rows, t.cols) for t in tensors]


def _header(
    file: int, identity: dict[str, Any], tensors: Sequence[tuple[str, str, int, int]]
) -> list[tuple[int, int]]:
    """Return offset and checksum of each tensor; raises ValueError for a file that is not about them."""
    prefix = os.pread(file, _PREFIX, 0)
    if len(prefix) != _PREFIX or not prefix.startswith(_MAGIC):
        raise ValueError("it is no file of packed weights")
    length = int.from_bytes(prefix[8:16], "little")
    if length > _MAX_HEADER:
        raise ValueError("its header is too long")
    text = os.pread(file, length, _PREFIX)
    if hashlib.sha256(text).digest() != prefix[16:]:
        raise ValueError("its header is damaged")
    start = -(-(_PREFIX + length) // _PAGE) * _PAGE
    try:
        header = json.loads(text)
        known = {key: header[key] for key in identity}
        rows = [tuple(row[:4]) for row in header["tensors"]]
        places = [(start + row[4], int(row[5], 16)) for row in header["tensors"]]
    except (LookupError, TypeError, RecursionError):
        raise ValueError("its header is of another form") from None
    if known != identity:
        raise ValueError("it is of another model or layout")
    if rows != list(tensors):
        raise ValueError("it has other tensors")
    # Offsets are int64 to the system, checksums uint64.
    if any(type(offset) is not int or not 0 <= offset < 1 << 63 for offset, _ in places) or any(
        not 0 <= checksum < 1 << 64 for _, checksum in places
    ):
        raise ValueError("its header is of another form")
    return places


def _write_all(file: Any, data: memoryview) -> None:
    """Write everything: a raw file may take less at a time than it is given."""
    data = data.cast("B")
    while data:
        data = data[file.write(data) :]
