"""Quantizing a model file, tensor by tensor."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import llamay_kernels as kernels
from llamay_models import gguf
from llamay_models.gguf import FORMATS, GGUFFile, TensorData, TensorInfo
from llamay_models.quantization.decisions import Decision, QuantizeError, decide, mix_of
from llamay_models.quantization.recipe import Mix

_PIECE = 1 << 20
"""Values that are converted at a time; a few pieces in flight are all that is ever in memory."""
_VERSION = 2
"""The version of the quantization formats, as `general.quantization_version` counts them."""

Progress = Callable[[str, int, int], None]


def quantize_file(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    kind: str,
    *,
    pure: bool = False,
    output: str | None = None,
    embedding: str | None = None,
    requantize: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> list[Decision]:
    """Write a copy of a model whose matrices are in other formats; return the decision for each tensor.

    Tensors are read, converted and written in pieces, so that memory does not grow with the model. Only matrices
    that engines multiply or look rows up in are quantized, experts each by itself; vectors, routers, kernels of
    convolutions, whatever else engines read by element, and what no rule knows are copied as they are. The file
    appears under its name when it is complete, and replaces one that is there.

    Args:
        source: a GGUF file, of a split model any part; the target is one file.
        target: where to write; not one of the source's files.
        kind: the name of a mix, such as "Q4_K_M" or "Q8_0" (`MIXES`).
        pure: give every matrix the mix's base format.
        output: the format of the matrix of logits; of a tied model, of the embedding table.
        embedding: the format of the embedding table.
        requantize: allow a source that is quantized already.
        threads: how many convert; None takes as many as this process may use.
        progress: called as progress("quantizing", bytes done, bytes in all); raising from it stops.

    Raises QuantizeError for a kind, format, architecture, source or value that cannot be; GGUFError for a damaged
    source; OSError where a file cannot be read or written, or the disk has too little room.

    """
    destination = Path(target)
    with gguf.open(source) as file:
        if any(destination.exists() and destination.samefile(path) for path in file.paths):
            raise QuantizeError(f"{destination} is the source; write to another file")
        decisions = decide(file, kind, pure=pure, output=output, embedding=embedding, requantize=requantize)
        _room(destination, sum(d.target_bytes for d in decisions))
        work = _Work(sum(d.source_bytes for d in decisions), progress)
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with ThreadPoolExecutor(threads or workers, thread_name_prefix="llamay quantize") as pool:
            tensors = [_tensor(file, d, pool, work) for d in decisions]
            metadata = _metadata(file, mix_of(kind))
            gguf.write(destination, metadata, tensors, alignment=file.alignment, check=file.check_unchanged)
    return decisions


class _Work:
    """The progress of the work."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self._done, self._total, self._progress = 0, total, progress

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress("quantizing", self._done, self._total)


def _room(target: Path, nbytes: int) -> None:
    folder = target.resolve().parent
    if not folder.is_dir():
        raise FileNotFoundError(2, "there is no such folder", str(folder))
    free = shutil.disk_usage(folder).free
    if free < nbytes:
        raise OSError(28, f"{nbytes:,} bytes are needed but {free:,} are free", str(folder))


def _metadata(file: GGUFFile, mix: Mix) -> Mapping[str, Any]:
    """Return the source's metadata in its own types, without the keys of split files, and with the new file type."""
    entries: dict[str, Any] = {}
    for key, value in file.metadata.items():
        if key.startswith("split.") or key == "general.alignment":
            continue
        kind = file.metadata.type_of(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = np.dtype(kind).type(value)
        elif not isinstance(value, str | bool) and not len(value):
            continue  # an empty array says nothing, and its type may not survive
        entries[key] = value
    entries["general.file_type"] = np.uint32(mix.file_type)
    entries["general.quantization_version"] = np.uint32(_VERSION)
    return entries


def _tensor(file: GGUFFile, decision: Decision, pool: ThreadPoolExecutor, work: _Work) -> TensorData:
    info = file.tensors[decision.name]

    def pieces() -> Iterator[Any]:
        if decision.source == decision.target:
            for begin in range(0, info.nbytes, 1 << 24):
                same = info.data[begin : begin + (1 << 24)].copy()  # writing lost pages would be an OSError
                yield same
                work.add(same.nbytes)
            return
        # A few pieces ahead of the one that is written, in order.
        columns = info.shape[-1]
        rows = prod(info.shape) // columns if columns else 0
        step = max(1, _PIECE // max(1, columns))
        jobs = ((begin, min(begin + step, rows)) for begin in range(0, rows, step))
        pending = [pool.submit(_convert, info, *job, decision.target) for job in islice(jobs, 8)]
        while pending:
            piece = pending.pop(0).result()
            pending += [pool.submit(_convert, info, *job, decision.target) for job in islice(jobs, 1)]
            yield piece
            work.add(len(piece) * info.nbytes // max(1, decision.target_bytes))

    return TensorData(decision.name, decision.target, decision.shape, pieces)


def _convert(info: TensorInfo, begin: int, end: int, target: str) -> bytes:
    """Return rows `begin` to `end` in the target format."""
    columns = info.shape[-1]
    row = FORMATS[info.format].nbytes((columns,))
    values = kernels.dequantize(info.data[begin * row : end * row].data, info.format, (end - begin) * columns)
    try:
        return kernels.quantize(values.reshape(end - begin, columns), target)
    except ValueError as error:
        raise QuantizeError(f"the tensor {info.name} cannot be written as {target}: {error}") from error
