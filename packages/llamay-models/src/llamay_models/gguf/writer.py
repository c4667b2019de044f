"""Writing GGUF files."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import numpy as np

from ..errors import GGUFError
from .formats import FORMATS
from .metadata import StringArray

Buffer: TypeAlias = bytes | bytearray | memoryview | np.ndarray[Any, Any]
Data: TypeAlias = Buffer | Callable[[], Iterable[Buffer]]

_MAX_NAME = 63
_STRING, _ARRAY, _BOOL = 8, 9, 7
_TYPE_OF_DTYPE = {
    "uint8": 0,
    "int8": 1,
    "uint16": 2,
    "int16": 3,
    "uint32": 4,
    "int32": 5,
    "float32": 6,
    "bool": 7,
    "uint64": 10,
    "int64": 11,
    "float64": 12,
}


@dataclass(frozen=True, slots=True)
class TensorData:
    """One tensor to write.

    Attributes:
        name: at most 63 bytes of UTF-8.
        format: name of a format, such as "F32" or "Q4_K".
        shape: numpy order: the last dimension runs fastest; at most four dimensions.
        data: the encoded bytes, or a function that yields them in pieces when their turn comes, so that a
            model larger than memory can be written.

    """

    name: str
    format: str
    shape: tuple[int, ...]
    data: Data


def write(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Iterable[TensorData] = (),
    *,
    alignment: int = 32,
    check: Callable[[], None] | None = None,
) -> None:
    """Write a GGUF file, version 3. The file appears under its name only when it is complete.

    A Python int is stored as uint32, or as int32, uint64 or int64 where it needs to be; a float as float32;
    numpy scalars and arrays keep their type; sequences of str or bytes and `StringArray` become arrays of
    strings.

    Args:
        path: where to write; an existing file is replaced.
        metadata: the key-value pairs, in order. general.alignment is added when `alignment` is not 32.
        tensors: the tensors to store, in order.
        alignment: of tensor data, in bytes; a power of two.
        check: called when everything is written, before the file appears; where it raises, no file appears.

    Raises:
        GGUFError: a key, value or tensor cannot be stored.
        OSError: the file cannot be written.

    """
    target = Path(path)
    entries = dict(metadata)
    if alignment < 1 or alignment & (alignment - 1):
        raise GGUFError(f"the alignment {alignment} is not a power of two", "use 32", path=target)
    if entries.get("general.alignment", alignment) != alignment:
        raise GGUFError(
            "general.alignment in the metadata contradicts the alignment that was asked for",
            "leave it out of the metadata",
            path=target,
        )
    if alignment != 32:
        entries["general.alignment"] = np.uint32(alignment)
    plan = list(tensors)
    header = _header(entries, plan, alignment, target)
    import tempfile  # programs that only read files start faster without it

    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(header)
            for tensor in plan:
                out.write(bytes(-out.tell() % alignment))
                _write_data(out, tensor, target)
            out.write(bytes(-out.tell() % alignment))
            out.flush()
            os.fsync(out.fileno())
        if check is not None:
            check()
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _header(entries: Mapping[str, Any], tensors: Sequence[TensorData], alignment: int, path: Path) -> bytes:
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)))
    for key, value in entries.items():
        if not key:
            raise GGUFError("a metadata key is empty", "give it a name", path=path)
        out += _string(key)
        out += _value(key, value, path)
    offset = 0
    seen: set[str] = set()
    for tensor in tensors:
        name = tensor.name.encode()
        if not 0 < len(name) <= _MAX_NAME or tensor.name in seen:
            raise GGUFError(
                f"tensor name '{tensor.name}' is empty, longer than {_MAX_NAME} bytes, or used twice",
                "choose another name",
                path=path,
            )
        seen.add(tensor.name)
        if len(tensor.shape) > 4:
            raise GGUFError(
                f"tensor '{tensor.name}' has {len(tensor.shape)} dimensions", "4 is the most", path=path
            )
        if tensor.format not in FORMATS:
            raise GGUFError(
                f"tensor '{tensor.name}' has unknown format '{tensor.format}'", _known(), path=path
            )
        out += _string(name)
        out += struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *reversed(tensor.shape))
        out += struct.pack("<IQ", FORMATS[tensor.format].id, offset)
        nbytes = FORMATS[tensor.format].nbytes(tensor.shape)
        offset += nbytes + -nbytes % alignment
    out += bytes(-len(out) % alignment)
    return bytes(out)


def _known() -> str:
    return "the formats are " + ", ".join(FORMATS)


def _write_data(out: BinaryIO, tensor: TensorData, path: Path) -> None:
    expected = FORMATS[tensor.format].nbytes(tensor.shape)
    pieces = tensor.data() if callable(tensor.data) else (tensor.data,)
    written = 0
    for piece in pieces:
        view = np.ascontiguousarray(piece).data if isinstance(piece, np.ndarray) else memoryview(piece)
        if written + view.nbytes > expected:
            written += view.nbytes
            break
        out.write(view)
        written += view.nbytes
    if written != expected:
        raise GGUFError(
            f"tensor '{tensor.name}' of shape {tensor.shape} takes {expected} bytes as {tensor.format}, but"
            f" {'at least ' if written > expected else ''}{written} were given",
            "encode the data in that format",
            path=path,
        )


def _string(text: str | bytes) -> bytes:
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(key: str, value: Any, path: Path) -> bytes:
    if isinstance(value, (str, bytes)):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, StringArray):
        value = [value.raw(i) for i in range(len(value))]
    if isinstance(value, (list, tuple)):
        if value and all(isinstance(v, (str, bytes)) for v in value):
            return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(_string(v) for v in value)
        if not value:
            raise GGUFError(
                f"metadata key '{key}' is an empty list, whose type cannot be told",
                "pass an empty numpy array of the right type",
                path=path,
            )
        value = _array_of(key, value, path)
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.name in _TYPE_OF_DTYPE:
        head = struct.pack("<IIQ", _ARRAY, _TYPE_OF_DTYPE[value.dtype.name], value.size)
        return head + np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<")).tobytes()
    if isinstance(value, (bool, np.bool_)):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        value = _smallest(key, value, value, path)
    elif isinstance(value, float):
        value = np.float32(value)
    if isinstance(value, np.generic) and value.dtype.name in _TYPE_OF_DTYPE:
        return struct.pack("<I", _TYPE_OF_DTYPE[value.dtype.name]) + value.tobytes()
    raise GGUFError(
        f"metadata key '{key}' has a value of type {type(value).__name__}, which GGUF cannot store",
        "use a bool, int, float, str, a numpy scalar, or a flat list or array of them",
        path=path,
    )


def _array_of(key: str, values: Sequence[Any], path: Path) -> Any:
    if all(isinstance(v, bool) for v in values):
        return np.array(values, np.bool_)
    if all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        return np.array(values, type(_smallest(key, min(values), max(values), path)))
    if all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values):
        return np.array(values, np.float32)
    return values


def _smallest(key: str, low: int, high: int, path: Path) -> Any:
    """Return `high` in the first type that holds both bounds."""
    for kind in (np.uint32, np.int32, np.uint64, np.int64):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return kind(high)
    raise GGUFError(f"metadata key '{key}' holds a number beyond 64 bits", "use a smaller one", path=path)
