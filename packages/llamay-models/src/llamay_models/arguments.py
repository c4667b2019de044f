"""Checks of arguments: each returns the plain value, or raises an error that names the argument.

numpy's numbers and truth values are taken like Python's own. A bool is no number here, and a number no bool.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt


def whole(
    name: str, value: Any, low: int | None = None, high: int | None = None, *, error: type[Exception]
) -> int:
    """Return a whole number from `low` to `high`; None is no bound. Raises `error`."""
    if type(value) is not int:  # the quick test comes first: every request has some twenty of these
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise error(f"{name} must be a whole number{_range(low, high)}, not {_shown(value)}")
        value = int(value)
    if (low is not None and value < low) or (high is not None and value > high):
        raise error(f"{name} must be a whole number{_range(low, high)}, not {_shown(value)}")
    plain: int = value
    return plain


def number(
    name: str, value: Any, low: float | None = None, high: float | None = None, *, error: type[Exception]
) -> float:
    """Return a number from `low` to `high`, which may not be NaN; None is no bound. Raises `error`."""
    if type(value) is not float and type(value) is not int:
        if not isinstance(value, Real) or isinstance(value, bool):
            raise error(f"{name} must be a number{_range(low, high)}, not {_shown(value)}")
        value = float(value)
    if value != value or (low is not None and value < low) or (high is not None and value > high):
        raise error(f"{name} must be a number{_range(low, high)}, not {_shown(value)}")
    plain: float = value
    return plain


def flag(name: str, value: Any, *, error: type[Exception]) -> bool:
    """Return True or False. Raises `error`."""
    if not isinstance(value, bool | np.bool_):
        raise error(f"{name} must be True or False, not {_shown(value)}")
    return bool(value)


def text(name: str, value: Any, *, error: type[Exception]) -> str:
    """Return a string. Raises `error`."""
    if not isinstance(value, str):
        raise error(f"{name} must be a string, not {_shown(value)}")
    return str.__str__(value)  # of a subclass, the plain text


def whole_numbers(what: str, value: Any, *, error: type[Exception]) -> npt.NDArray[Any]:
    """Return a sequence of whole numbers as an array of shape (n,), of any integer type.

    `what` begins the message of `error`, such as "a prompt is text or a sequence of token ids".
    """
    if isinstance(value, str | bytes) or not hasattr(value, "__len__"):
        raise error(f"{what}, not {_shown(value)}")
    try:
        array = np.asarray(value)
    except Exception as wrong:  # the array of another library, or lists of several lengths
        raise error(f"{what}: {wrong}") from wrong
    if array.ndim != 1:
        raise error(f"{what}, not an array of shape {array.shape}; give one of its rows")
    if array.size and array.dtype.kind not in "iu":
        for each in value:
            if not isinstance(each, Integral) or isinstance(each, bool):
                raise error(f"{what}; {_shown(each)} is none")
        raise error(f"{what}; one of its numbers is beyond 64 bits")
    return array


def _range(low: float | None, high: float | None) -> str:
    if low is None:
        return "" if high is None else f" up to {_plain(high)}"
    return f" from {_plain(low)} on" if high is None else f" from {_plain(low)} to {_plain(high)}"


def _plain(bound: float) -> str:
    return f"{bound:g}" if isinstance(bound, float) else str(bound)


def _shown(value: object) -> str:
    """Return a value as messages show it; a long one is cut."""
    try:
        shown = repr(value)
    except Exception:
        shown = f"a {type(value).__name__}"
    return shown if len(shown) <= 80 else f"{shown[:77]}..."
