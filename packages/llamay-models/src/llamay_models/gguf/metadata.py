"""The key-value part of a GGUF file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from .. import _native
from ..errors import GGUFError


class StringArray(Sequence[str]):
    """The strings of a metadata array; they stay in the mapped file and are decoded when asked for.

    A vocabulary has up to 262,144 of them, so `list(array)` costs what it says. Bytes that are not UTF-8
    come out as U+FFFD; `raw` gives them as they are.
    """

    __slots__ = ("_strings",)

    def __init__(self, strings: _native.Strings) -> None:
        self._strings = strings

    def __len__(self) -> int:
        return len(self._strings)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self._strings.text(i) for i in range(*index.indices(len(self)))]
        return self._strings.text(self._position(index))

    def __iter__(self) -> Iterator[str]:
        return iter(self._strings.texts())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (StringArray, list, tuple)):
            return len(self) == len(other) and list(self) == list(other)
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<StringArray of {len(self)} strings>"

    def raw(self, index: int) -> bytes:
        """Return the bytes of one string as they stand in the file."""
        return self._strings.raw(self._position(index))

    def _position(self, index: int) -> int:
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"string {index} of {size}")
        return index % size


Value: TypeAlias = bool | int | float | str | NDArray[Any] | StringArray
_T = TypeVar("_T")
_V = TypeVar("_V")
_REQUIRED: Any = object()


class Metadata(Mapping[str, Value]):
    """The metadata of a file, in the file's order.

    `metadata[key]` gives a bool, int, float or str, a one-dimensional numpy array, or a `StringArray`. The
    `get_…` methods also check the type. Without a default they raise `GGUFError` where a key is missing; one
    that is there with another type is always an error.
    """

    def __init__(self, native: _native.File, path: Path | None) -> None:
        self._native = native
        self._path = path
        self._keys = dict.fromkeys(native.keys())

    def __getitem__(self, key: str) -> Value:
        if key not in self._keys:
            raise KeyError(key)
        value = self._native.value(key)
        return StringArray(value) if isinstance(value, _native.Strings) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __repr__(self) -> str:
        return f"<Metadata of {len(self)} keys>"

    @property
    def native(self) -> _native.File:
        """The native header, for this package's own use."""
        return self._native

    def type_of(self, key: str) -> str:
        """Return the type that the file gives for a key, such as "uint32" or "array of string"."""
        return self._native.type(key)

    def raw(self, key: str) -> NDArray[np.uint8]:
        """Return the encoded value of a key as it stands in the file (a read-only view)."""
        return self._native.raw(key)

    def get_int(self, key: str, default: _T = _REQUIRED) -> int | _T:
        """Return a whole number, of any width and sign."""
        return self._typed(key, default, "an integer", int, lambda v: not isinstance(v, bool))

    def get_float(self, key: str, default: _T = _REQUIRED) -> float | _T:
        """Return a number as a float; whole numbers count."""
        if key not in self._keys and default is not _REQUIRED:
            return default
        return float(self._typed(key, _REQUIRED, "a number", (int, float), lambda v: not isinstance(v, bool)))

    def get_bool(self, key: str, default: _T = _REQUIRED) -> bool | _T:
        """Return a bool."""
        return self._typed(key, default, "a bool", bool)

    def get_str(self, key: str, default: _T = _REQUIRED) -> str | _T:
        """Return a string."""
        return self._typed(key, default, "a string", str)

    def get_strings(self, key: str, default: _T = _REQUIRED) -> StringArray | _T:
        """Return an array of strings."""
        return self._typed(key, default, "an array of strings", StringArray)

    def get_ints(self, key: str, default: _T = _REQUIRED) -> NDArray[np.integer[Any]] | _T:
        """Return an array of whole numbers, of any width and sign."""
        return self._typed(key, default, "an array of integers", np.ndarray, lambda v: v.dtype.kind in "iu")

    def get_floats(self, key: str, default: _T = _REQUIRED) -> NDArray[np.floating[Any]] | _T:
        """Return an array of floats."""
        return self._typed(key, default, "an array of floats", np.ndarray, lambda v: v.dtype.kind == "f")

    def get_bools(self, key: str, default: _T = _REQUIRED) -> NDArray[np.bool_] | _T:
        """Return an array of bools."""
        return self._typed(key, default, "an array of bools", np.ndarray, lambda v: v.dtype.kind == "b")

    def _typed(
        self,
        key: str,
        default: _T,
        expected: str,
        kind: type[_V] | tuple[type[_V], ...],
        fits: Callable[[Any], bool] = lambda _: True,
    ) -> _V | _T:
        if key not in self._keys:
            if default is not _REQUIRED:
                return default
            raise GGUFError(
                f"metadata key '{key}' is missing ({expected} was expected)",
                "the file is incomplete, or of a kind that this cannot run",
                path=self._path,
            )
        value = self[key]
        if not isinstance(value, kind) or not fits(value):
            raise GGUFError(
                f"metadata key '{key}' must be {expected}, but is {self.type_of(key)}",
                "the file was written by a faulty tool",
                path=self._path,
            )
        return value
