"""Opening GGUF files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from .. import _native
from ._errors import GGUFError, naming
from ._formats import FORMAT_BY_ID
from ._metadata import Metadata
from ._split import check_parts, part_count, sibling_paths

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
        data: read-only uint8 view of the mapped file, shape (nbytes,). It keeps the mapping alive on its own.

    """

    name: str
    format: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    data: NDArray[np.uint8]

    def __repr__(self) -> str:
        place = f"offset={self.offset}, nbytes={self.nbytes}"
        return f"TensorInfo({self.name!r}, {self.format}, shape={self.shape}, {place})"


class GGUFFile:
    """A model file, memory-mapped; all parts of it where it is split.

    Use `open`. Closing gives up this object's hold on the mapping: views that were handed out stay valid.

    Attributes:
        path: the file that was opened; of a split model, its first part.
        paths: all files, in order.

    """

    def __init__(self, paths: list[Path], files: list[_native.File]) -> None:
        self.path = paths[0]
        self.paths = tuple(paths)
        self._files: list[_native.File] | None = files
        self._metadata = Metadata(files[0], paths[0])
        self._tensors = self._collect(files)
        self._sha256: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._files is None else f"{len(self._tensors)} tensors"
        return f"<GGUFFile {str(self.path)!r}, {state}>"

    @property
    def metadata(self) -> Metadata:
        """The key-value pairs; of a split model, those of its first part."""
        self._open_files()
        return self._metadata

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """The tensors by name, in the order of the file."""
        self._open_files()
        return MappingProxyType(self._tensors)

    @property
    def architecture(self) -> str:
        """The value of general.architecture, such as "llama"."""
        return self.metadata.get_str("general.architecture")

    @property
    def version(self) -> int:
        """The version of the format: 2 or 3."""
        return self._open_files()[0].version

    @property
    def alignment(self) -> int:
        """The alignment of tensor data in the file, in bytes."""
        return self._open_files()[0].alignment

    @property
    def nbytes(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self._open_files())

    def sha256(self) -> str:
        """Return the SHA-256 of the file, or of all parts one after the other, in hex.

        Reads the whole model once, without the GIL, in chunks of 16 MiB; the result is kept.
        """
        if self._sha256 is None:
            digest = hashlib.sha256()
            for file in self._open_files():
                for start in range(0, file.size, _HASH_CHUNK):
                    digest.update(file.bytes(start, min(_HASH_CHUNK, file.size - start)).data)
            self._sha256 = digest.hexdigest()
        return self._sha256

    def close(self) -> None:
        """Give up the mapping. Using this object afterwards raises ValueError."""
        self._files = None
        self._tensors = {}

    def _open_files(self) -> list[_native.File]:
        if self._files is None:
            raise ValueError(f"{self.path} was closed")
        return self._files

    def _collect(self, files: list[_native.File]) -> dict[str, TensorInfo]:
        tensors: dict[str, TensorInfo] = {}
        for path, file in zip(self.paths, files, strict=True):
            for name, format_id, shape, offset, nbytes in file.tensors():
                if name in tensors:
                    raise GGUFError(
                        f"tensor '{name}' is in more than one part",
                        "fetch all parts again",
                        path=path,
                        offset=offset,
                    )
                data = file.bytes(offset if nbytes else 0, nbytes)
                tensors[name] = TensorInfo(name, FORMAT_BY_ID[format_id].name, shape, offset, nbytes, data)
        return tensors


def open(path: str | os.PathLike[str]) -> GGUFFile:  # noqa: A001 - the name that a user of a file format expects
    """Open a GGUF file, version 2 or 3, and check its whole header.

    Nothing but the header is read: tensor data are mapped. Any part of a split model opens the whole model.

    Raises:
        GGUFError: the file breaks the format in any way, or is a part whose siblings are missing or foreign.
        OSError: the system cannot open or map the file.

    """
    first = Path(path)
    file = _map(first)
    if part_count(file) <= 1:
        return GGUFFile([first], [file])
    paths = sibling_paths(first, file)
    files = [file if p == first else _map(p) for p in paths]
    check_parts(paths, files)
    return GGUFFile(paths, files)


def _map(path: Path) -> _native.File:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        with naming(path):
            return _native.File.of_fd(descriptor)
    finally:
        os.close(descriptor)
