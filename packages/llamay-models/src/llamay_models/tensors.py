"""A file's tensors as the plan sees them, and packing them for the kernels."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import llamay_kernels as kernels  # formats only: files are read in the same way for every backend
from llamay_models.backend import CPU, Backend, Threads, Weight
from llamay_models.errors import TensorError
from llamay_models.gguf import GGUFFile, TensorInfo
from llamay_models.plan import Tensor
from llamay_models.plan.records import Floats, Part


@dataclass(frozen=True, slots=True)
class FileTensor:
    """A tensor in a mapped file. A vector has one row; matrices in a stack lie on top of each other."""

    info: TensorInfo
    rows: int
    cols: int

    @property
    def name(self) -> str:
        """The name that the tensor has in the file."""
        return self.info.name

    @property
    def format(self) -> str:
        """The name of the format, such as `Q4_K`."""
        return self.info.format

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.info.nbytes

    def dequantize(self) -> Floats:
        """Return the values, float32 of shape (rows, cols)."""
        values: Floats = kernels.dequantize(self.info.data.data, self.format, self.rows * self.cols)
        return values.reshape(self.rows, self.cols)


def file_tensors(file: GGUFFile) -> dict[str, FileTensor]:
    """Return the tensors of a file by name.

    A tensor of more than two dimensions is one matrix: all but the last are its rows, and where they are 1 they do not
    count. Raises TensorError for a format that the kernels lack.
    """
    tensors = {}
    for name, info in file.tensors.items():
        if info.format not in kernels.FORMATS:
            known = ", ".join(sorted(kernels.FORMATS))
            raise TensorError(
                f"the tensor {name} of {file.path} has the format {info.format}; supported are {known}"
            )
        shape = tuple(info.shape)
        if len(shape) > 2:
            shape = tuple(n for n in shape if n != 1) or (1,)
        rows, cols = math.prod(shape[:-1]), shape[-1]
        tensors[name] = FileTensor(info, rows, cols)
    return tensors


def pack(
    tensors: Iterable[Tensor],
    threads: Threads,
    *,
    backend: Backend = CPU,
    dequantized: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Weight]:
    """Prepare tensors for a backend, each in parallel; its pages of the file are given up as soon as it is packed.

    Vectors become F32, and with `dequantized` everything does. Raising from `progress` stops it.
    """
    sources = list(tensors)
    weights: list[Weight] = []
    read = _Read()
    total, done = sum(t.nbytes for t in sources), 0
    for source in sources:
        weights.append(_pack(source, threads, backend, dequantized, read))
        done += source.nbytes
        if progress is not None:
            progress("loading", done, total)
    read.give_up()
    return weights


class _Read:
    """Ranges of mapped files that were read and are not needed again, given up some megabytes at a time.

    Otherwise memory would hold every weight twice. The mapping stays: a later read would fetch the page once more.
    Giving up pages interrupts every thread, so it is not done for each tensor.
    """

    _AT_ONCE = 4 << 20

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._bytes = 0

    def add(self, data: np.ndarray[Any, Any]) -> None:
        """Note a view of a mapped file."""
        self._ranges.append((data.ctypes.data, data.ctypes.data + data.nbytes))
        self._bytes += data.nbytes
        if self._bytes >= self._AT_ONCE:
            self.give_up()

    def give_up(self) -> None:
        """Give up the noted ranges; adjacent ranges together."""
        self._ranges.sort()
        begin = end = 0
        for first, last in self._ranges:
            if first - end > mmap.PAGESIZE:
                _give_up_range(begin, end)
                begin = first
            end = max(end, last)
        _give_up_range(begin, end)
        self._ranges.clear()
        self._bytes = 0


def _pack(source: Tensor, threads: Threads, backend: Backend, dequantized: bool, read: _Read) -> Weight:
    whole = source.whole if isinstance(source, Part) else source
    stored = whole.info.data if isinstance(whole, FileTensor) else None
    if isinstance(source, Part) and stored is not None and whole.rows > 1:
        row = stored.nbytes // whole.rows
        stored = stored[source.begin * row : source.end * row]
    if stored is not None and source.rows > 1 and not dequantized:
        data, kind = stored.data, source.format
    else:
        data, kind = np.ascontiguousarray(source.dequantize(), np.float32).data.cast("B"), "F32"
    mapped = stored is not None and kind == source.format and not dequantized and source.rows > 1
    weight = backend.weight(
        data, kind, source.rows, source.cols, name=source.name, threads=threads, mapped=mapped
    )
    if stored is not None:
        read.add(stored)
    return weight


def give_up_metadata(file: GGUFFile) -> None:
    """Give up the pages before the tensors: mostly vocabulary, some megabytes, which can be read again."""
    ends: dict[int, int] = {}
    for info in file.tensors.values():
        start = info.data.ctypes.data - info.offset  # of the part that has this tensor
        ends[start] = min(ends.get(start, info.offset), info.offset)
    for start, length in ends.items():
        _give_up_range(start, start + length)


def _give_up_range(begin: int, end: int) -> None:
    advise = _madvise()
    if advise is None:
        return
    page = mmap.PAGESIZE
    begin, end = -(-begin // page) * page, end // page * page
    if end > begin:
        advise(begin, end - begin, mmap.MADV_DONTNEED)


def give_back_heap() -> None:
    """Make the C library return freed memory to the system: some megabytes from making a tokenizer."""
    trim = _of_libc("malloc_trim")
    if trim is not None:
        trim(ctypes.c_size_t(0))


def _of_libc(name: str) -> Any:
    """Return a function of Linux's C library, None where that is another."""
    return getattr(ctypes.CDLL(None, use_errno=True), name, None) if sys.platform == "linux" else None


@cache
def _madvise() -> Any:
    function = _of_libc("madvise")  # elsewhere MADV_DONTNEED means less, or something else
    if function is None:
        return None
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function
