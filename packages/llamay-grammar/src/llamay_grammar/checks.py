"""Checks of arguments: an error is one sentence that names the argument, what is expected and what was given."""

from __future__ import annotations

import json
import math
import numbers
import operator
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from llamay_grammar.errors import CompileError

T = TypeVar("T")

UINT32 = (1 << 32) - 1
UINT64 = (1 << 64) - 1
_LONGEST_SHOWN = 60
_BITS_SHOWN = 128


def described(value: object) -> str:
    """Return what was given, for a message: a short value itself, an array by its type and shape, else its type."""
    if isinstance(value, int) and value.bit_length() > _BITS_SHOWN:
        return f"an integer of {value.bit_length()} bits"
    if value is None or isinstance(value, (bool, int, float, str, bytes, np.generic)):
        shown = repr(value)
        return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[: _LONGEST_SHOWN - 3]}..."
    kind = type(value).__name__
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        article = "an" if getattr(getattr(value, "flags", None), "writeable", True) else "a read-only"
        device = str(getattr(value, "device", "cpu"))
        where = "" if device == "cpu" else f" on {device}"
        return f"{article} array ({kind}) of {value.dtype} with shape {tuple(value.shape)}{where}"
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


def wrong(name: str, expected: str, value: object) -> TypeError:
    """Return the error for a value of another type."""
    return TypeError(f"{name} must be {expected}, not {described(value)}")


def instance(name: str, value: object, kind: type[T]) -> T:
    """Return a value that must be of a class of this package. Raises TypeError."""
    if not isinstance(value, kind):
        raise wrong(name, f"a llamay_grammar.{kind.__name__}", value)
    return value


def text(name: str, value: object, error: type[ValueError] = ValueError) -> str:
    """Return a value that must be a string that UTF-8 can encode. Raises TypeError, or `error` for a lone surrogate."""
    if not isinstance(value, str):
        raise wrong(name, "a str", value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as found:
            raise error(
                f"{name} must be text that UTF-8 can encode, not one with the lone surrogate "
                f"U+{ord(value[found.start]):04X} at position {found.start}"
            ) from None
    return value


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    """Return a value that must be one of these strings. Raises TypeError, or ValueError for another string."""
    expected = f"one of {', '.join(allowed)}"
    if not isinstance(value, str):
        raise wrong(name, expected, value)
    if value not in allowed:
        raise ValueError(f"{name} must be {expected}, not {described(value)}")
    return value


def flag(name: str, value: object) -> bool:
    """Return a value that must be a bool, Python's or numpy's. Raises TypeError."""
    if not isinstance(value, (bool, np.bool_)):
        raise wrong(name, "True or False", value)
    return bool(value)


def is_integer(value: object) -> bool:
    """Whether a value is an integer, Python's or numpy's or of another type that says it is one; bools are none."""
    return hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_, np.ndarray))


def integer_error(name: str, value: object, least: int = 0, most: int = UINT32) -> TypeError | ValueError:
    """Return the error for a value that is no integer, or none between `least` and `most`."""
    expected = f"an integer between {least} and {most}"
    if is_integer(value):
        return ValueError(f"{name} must be {expected}, not {described(value)}")
    return wrong(name, expected, value)


def integer(name: str, value: object, least: int = 0, most: int = UINT32) -> int:
    """Return a value that must be an integer, Python's or numpy's. Raises TypeError, or ValueError out of bounds."""
    if is_integer(value):
        found = operator.index(value)  # type: ignore[arg-type]
        if least <= found <= most:
            return found
    raise integer_error(name, value, least, most)


def positive(name: str, value: object) -> float:
    """Return a value that must be a number above zero. Raises TypeError, or ValueError for zero and less, and NaN."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise wrong(name, "a positive number", value)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not found > 0:
        raise ValueError(f"{name} must be a positive number, not {described(value)}")
    return found


def octets(name: str, value: object) -> bytes:
    """Return a value that must be bytes, or another object with a buffer, as bytes. Raises TypeError."""
    if isinstance(value, bytes):
        return value
    try:
        return bytes(memoryview(value))  # type: ignore[arg-type]
    except TypeError:
        raise wrong(name, "bytes", value) from None


def items(name: str, value: object, of: str) -> Iterable[Any]:
    """Return a value that must have items: neither a string nor a mapping nor a scalar. Raises TypeError."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise wrong(name, f"a sequence of {of}", value)
    return value


def json_text(name: str, value: object, pointer: str = "") -> str:
    """Return a schema or a document as JSON text.

    Raises:
        CompileError: the value contains something that JSON has no form for, or itself, or is nested too deep.

    """
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        reason = str(error)
    except RecursionError:
        reason = "it is nested too deep"
    raise CompileError(f"{name} cannot be written as JSON: {reason}", "", pointer)


def _plain(value: object) -> object:
    """Mappings and scalars of other types than Python's own, as `json` takes them."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.bool_ | np.integer | np.floating):
        return value.item()
    raise TypeError(f"it contains {described(value)}")
