"""Checks of arguments: each returns the plain value, or raises a TypeError or a ValueError that names the argument.

Whatever has an `__index__` counts as a whole number, as numpy's integers do; a bool is no number. The native classes
check theirs in cpp/bind/arguments.hpp, in the same words.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
_MOST = 80
Bytes = bytes | bytearray | memoryview


def refuse(name: str, wanted: str, value: Any, error: type[Exception] = TypeError) -> NoReturn:
    """Raise "`name` must be `wanted`, not …"."""
    if hasattr(value, "dtype") and getattr(value, "shape", None):
        shown = f"an array of {value.dtype} with the shape {tuple(value.shape)}"
    elif len(shown := repr(value)) > _MOST:
        shown = f"{shown[: _MOST - 3]}..."
    raise error(f"{name} must be {wanted}, not {shown}")


def whole(name: str, value: Any, low: int = 0) -> int:
    """Return a whole number from `low` on."""
    if type(value) is not int:
        try:
            if isinstance(value, bool):
                raise TypeError
            value = index(value)
        except TypeError:
            refuse(name, f"a whole number from {low} on", value)
    if value < low:
        refuse(name, f"a whole number from {low} on", value, ValueError)
    plain: int = value
    return plain


def seconds(name: str, value: Any) -> float:
    """Return a number that is not NaN."""
    try:
        if isinstance(value, str | bool) or value != value:
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        refuse(name, "a number of seconds", value)


def flag(name: str, value: Any) -> bool:
    """Return True or False."""
    if not isinstance(value, bool) and (type(value).__module__, type(value).__name__[:4]) != (
        "numpy",
        "bool",
    ):
        refuse(name, "True or False", value)
    return bool(value)


def text(name: str, value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        refuse(name, "a string", value)
    return value


def data(name: str, value: Any) -> Bytes:
    """Return bytes, or a buffer of them."""
    if not isinstance(value, Bytes):
        refuse(name, "bytes", value)
    return value


def buffer(name: str, value: Any, *, writable: bool = False) -> memoryview:
    """Return the bytes of anything with a buffer."""
    try:
        view = memoryview(value).cast("B")
    except (TypeError, ValueError):
        refuse(name, "bytes, or another object with a contiguous buffer", value)
    if writable and view.readonly:
        refuse(name, "a writable buffer", value)
    return view


def path(name: str, value: Any) -> str:
    """Return a path as a string."""
    if not isinstance(value, str | os.PathLike):
        refuse(name, "a path, a string or an os.PathLike", value)
    if not isinstance(plain := os.fspath(value), str):
        refuse(name, "a path that is a string", value)
    return plain


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise a ValueError unless the value is one of some words."""
    if not isinstance(value, str) or value not in choices:
        wrong = ValueError if isinstance(value, str) else TypeError
        refuse(name, " or ".join(map(repr, choices)), value, wrong)


def instance(name: str, value: Any, kind: type[T]) -> T:
    """Return an object of a class of this package."""
    if not isinstance(value, kind):
        refuse(name, f"a llamay_kv.{kind.__name__}", value)
    return value


def optional(name: str, value: Any, kind: type[T]) -> T | None:
    """Return an object of a class of this package, or None."""
    if value is not None and not isinstance(value, kind):
        refuse(name, f"a llamay_kv.{kind.__name__} or None", value)
    return value


def several(name: str, values: Any, kind: type[T]) -> tuple[T, ...]:
    """Return the objects of a class of this package, or the strings, in a collection."""
    words = "strings" if kind is str else f"llamay_kv.{kind.__name__} objects"
    if not isinstance(values, Iterable) or isinstance(values, str | Bytes):
        refuse(name, f"a collection of {words}", values)
    all_of_them = tuple(values)
    for i, value in enumerate(all_of_them):
        if not isinstance(value, kind):
            refuse(f"{name}[{i}]", "a string" if kind is str else f"a llamay_kv.{kind.__name__}", value)
    return all_of_them


def mapping(name: str, value: Any) -> Mapping[Any, Any]:
    """Return a mapping."""
    if not isinstance(value, Mapping):
        refuse(name, "a mapping", value)
    return value


def pair(name: str, value: Any) -> tuple[Any, Any]:
    """Return the two objects of a pair."""
    try:
        if isinstance(value, str | Bytes | Mapping):
            raise TypeError
        first, second = value
    except (TypeError, ValueError):
        refuse(name, "a pair", value)
    return first, second
