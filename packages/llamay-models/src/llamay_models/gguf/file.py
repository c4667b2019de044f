"""Opening GGUF files."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .. import _native
from ..errors import GGUFError
from .errors import naming
from .formats import FORMAT_BY_ID
from .metadata import Metadata
from .split import check_parts, part_count, sibling_paths

_HASH_CHUNK = 16 << 20


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file.

    Attributes:
        name: such as "blk.0.attn_q.weight".
        format: name of a `TensorFormat`, such as "Q4_K".
        shape: numpy order, so (rows, columns) for a matrix; the last dimension runs fastest.
        offset: byte of the file (of its part, in a split model) at which the data start.
        nbytes: bytes of data.

    """

    name: str
    format: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    _file: _native.File = field(compare=False)

    @property
    def data(self) -> NDArray[np.uint8]:
        """A read-only uint8 view of the mapped file, shape (nbytes,), which keeps the mapping alive on its own.

        A program that installs handlers of SIGBUS asks for it again afterwards: see `GGUFFile.check_unchanged`.
        """
        return self._file.bytes(self.offset if self.nbytes else 0, self.nbytes)

    def __repr__(self) -> str:
        place = f"offset={self.offset}, nbytes={self.nbytes}"
        return f"TensorInfo({self.name!r}, {self.format}, shape={self.shape}, {place})"


@dataclass(frozen=True, slots=True)
class _Part:
    """One mapped file, held open, so that it stays this file whatever its path comes to name.

    `state` says what the file was when it was opened: its size, the times of its last changes and its links.
    """

    path: Path
    file: _native.File
    descriptor: int
    state: os.stat_result

    def check_unchanged(self) -> None:
        """Raise GGUFError if somebody wrote to the file since it was opened, or a part of it could not be read."""
        now, then = os.fstat(self.descriptor), self.state
        # The time of the last change of the inode notices a writer who sets the other time back. It moves also when the
        # file gets or loses a name, as when another file is moved to its path; that changes no byte.
        same = (now.st_size, now.st_mtime_ns) == (then.st_size, then.st_mtime_ns) and (
            now.st_ctime_ns == then.st_ctime_ns or now.st_nlink != then.st_nlink
        )
        if not same:
            raise GGUFError(
                "the file was changed after it was opened, and its bytes are no longer those that were read",
                "load it again; to replace a model in use, move the new file to its path",
                path=self.path,
            )
        if self.file.lost:
            raise GGUFError("a part of the file could not be read", "check the disk it is on", path=self.path)


class GGUFFile:
    """A model file, memory-mapped; all parts of it where it is split.

    Use `open`. Closing gives up this object's hold on the mapping: views that were handed out stay valid.

    Attributes:
        path: the file that was opened; of a split model, its first part.
        paths: all files, in order.

    """

    def __init__(self, parts: Sequence[_Part]) -> None:
        self.path = parts[0].path
        self.paths = tuple(part.path for part in parts)
        self._parts = tuple(parts)
        self._metadata = Metadata(parts[0].file, self.path)
        self._tensors = self._collect()
        self._sha256: str | None = None
        self._release = weakref.finalize(self, _close, [part.descriptor for part in parts])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"{len(self._tensors)} tensors" if self._parts else "closed"
        return f"<GGUFFile {str(self.path)!r}, {state}>"

    @property
    def metadata(self) -> Metadata:
        """The key-value pairs; of a split model, those of its first part."""
        self._open_parts()
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors by name, in the order of the file."""
        self._open_parts()
        return MappingProxyType(self._tensors)

    @property
    def architecture(self) -> str:
        """The value of general.architecture, such as "llama"."""
        return self.metadata.get_str("general.architecture")

    @property
    def version(self) -> int:
        """The version of the format: 2 or 3."""
        return self._open_parts()[0].file.version

    @property
    def alignment(self) -> int:
        """The alignment of tensor data in the file, in bytes."""
        return self._open_parts()[0].file.alignment

    @property
    def nbytes(self) -> int:
        """Bytes of all files together."""
        return sum(part.file.size for part in self._open_parts())

    def sha256(self) -> str:
        """Return the SHA-256 of the file, or of all parts one after the other, in hex.

        Reads the whole model once, without the GIL, in chunks of 16 MiB; the result is kept. Raises GGUFError if the
        file was changed since it was opened: the digest would be that of other weights.
        """
        if self._sha256 is None:
            digest, buffer = hashlib.sha256(), memoryview(bytearray(_HASH_CHUNK))
            self.check_unchanged()
            for part in self._parts:
                # Read, not mapped: a page of a file that was cut short would end the process.
                start = 0
                while read := os.preadv(part.descriptor, [buffer], start):
                    digest.update(buffer[:read])
                    start += read
            self.check_unchanged()
            self._sha256 = digest.hexdigest()
        return self._sha256

    def check_unchanged(self) -> None:
        """Raise GGUFError if a file was written to since it was opened, or a part of one could not be read.

        A page that is lost while the file is mapped reads as zeros, and sends no signal: whoever has read tensors asks
        here before the result counts. On Linux a handler of SIGBUS does that. Where the program has installed another
        one, reading `TensorInfo.data` or the metadata puts this one back before it; a view that was taken earlier is
        guarded again from then on.
        """
        for part in self._open_parts():
            part.check_unchanged()

    @property
    def states(self) -> tuple[os.stat_result, ...]:
        """The state of each file when it was opened: its size, its inode and the times of its last changes."""
        return tuple(part.state for part in self._parts)

    def close(self) -> None:
        """Give up the mapping. Using this object afterwards raises ValueError."""
        self._tensors = {}
        self._parts = ()
        self._release()

    def _open_parts(self) -> tuple[_Part, ...]:
        if not self._parts:
            raise ValueError(f"{self.path} was closed")
        return self._parts

    def _collect(self) -> dict[str, TensorInfo]:
        tensors: dict[str, TensorInfo] = {}
        for part in self._parts:
            for name, format_id, shape, offset, nbytes in part.file.tensors():
                if name in tensors:
                    raise GGUFError(
                        f"tensor '{name}' is in more than one part",
                        "fetch all parts again",
                        path=part.path,
                        offset=offset,
                    )
                tensors[name] = TensorInfo(
                    name, FORMAT_BY_ID[format_id].name, shape, offset, nbytes, part.file
                )
        return tensors


def open(path: str | os.PathLike[str]) -> GGUFFile:  # noqa: A001 - the name that a user of a file format expects
    """Open a GGUF file, version 2 or 3, and check its whole header.

    Nothing but the header is read: tensor data are mapped. Any part of a split model opens the whole model.

    Raises:
        GGUFError: the file breaks the format in any way, or is a part whose siblings are missing or foreign.
        OSError: the system cannot open or map the file.

    """
    first = Path(path)
    parts = {first: _map(first)}
    try:
        paths = [first]
        if part_count(parts[first].file) > 1:
            paths = sibling_paths(first, parts[first].file)
            for path in paths:
                if path != first:
                    parts[path] = _map(path)
            check_parts(paths, [parts[path].file for path in paths])
        return GGUFFile([parts[path] for path in paths])
    except BaseException:
        _close([part.descriptor for part in parts.values()])
        raise


def _map(path: Path) -> _Part:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        state = os.fstat(descriptor)  # first, so that whoever writes while the file is mapped is noticed
        with naming(path):
            return _Part(path, _native.File.of_fd(descriptor), descriptor, state)
    except BaseException:
        os.close(descriptor)
        raise


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
