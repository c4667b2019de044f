"""The allowed attributes of a record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["whole", "real", "text", "wholes", "reals", "flags"]
REQUIRED: Any = object()
_LISTS = {"wholes": "iu", "reals": "iuf", "flags": "b"}
_KINDS = {
    "whole": "a whole number",
    "real": "a finite number",
    "text": "a string",
    "wholes": "a sequence of whole numbers",
    "reals": "a sequence of finite numbers",
    "flags": "a sequence of true and false",
}


@dataclass(frozen=True, slots=True)
class Attr:
    """The allowed values of an attribute.

    `default` is the value where a record leaves the attribute out; None where the rest of the record determines the
    value. `choices` are the allowed strings, `low` is the least number, `above` a bound that numbers must exceed.
    """

    kind: Kind
    default: Any = REQUIRED
    choices: tuple[str, ...] = ()
    low: float | None = None
    above: float | None = None

    def problem(self, value: object) -> str | None:
        """Return the requirement that a value does not meet, if there is one."""
        if self._fits(value):
            return None
        if self.choices:
            return "one of " + ", ".join(self.choices)
        least = "" if self.low is None else f" from {self.low:g} on"
        return _KINDS[self.kind] + least + ("" if self.above is None else f" above {self.above:g}")

    def plain(self, value: Any) -> Any:
        """Return an allowed value as records have it: numbers are Python's, and whole numbers in a list are a tuple."""
        if value is None:
            return None
        if self.kind == "whole":
            return int(value)
        if self.kind == "real":
            return float(value)
        return tuple(int(entry) for entry in value) if self.kind == "wholes" else value

    def _fits(self, value: object) -> bool:
        if self.kind == "text":
            return isinstance(value, str) and (not self.choices or value in self.choices)
        if self.kind in _LISTS:
            if isinstance(value, np.ndarray):
                return (
                    value.ndim == 1 and (value.dtype.kind in _LISTS[self.kind]) and self._are_in_range(value)
                )
            if not isinstance(value, list | tuple):
                return False
            one = "flags" if self.kind == "flags" else "whole" if self.kind == "wholes" else "real"
            return all(self._is_one(one, entry) for entry in value)
        return self._is_one(self.kind, value)

    def _is_one(self, kind: str, value: object) -> bool:
        is_flag = isinstance(value, bool | np.bool_)
        if kind == "flags" or is_flag:
            return kind == "flags" and is_flag
        if kind == "whole" and not isinstance(value, int | np.integer):
            return False
        return isinstance(value, int | float | np.integer | np.floating) and self._are_in_range(value)

    def _are_in_range(self, value: Any) -> bool:
        low = True if self.low is None else np.all(value >= self.low)
        above = True if self.above is None else np.all(value > self.above)
        return bool(np.all(np.isfinite(value)) and low and above)


def whole(default: Any = REQUIRED, low: int = 0) -> Attr:
    """Return an attribute that is a whole number from `low` on."""
    return Attr("whole", default, low=low)


def real(default: Any = REQUIRED, low: float | None = None, above: float | None = None) -> Attr:
    """Return an attribute that is a finite number."""
    return Attr("real", default, low=low, above=above)


def text(*choices: str, default: Any = REQUIRED) -> Attr:
    """Return an attribute that is one of some strings."""
    return Attr("text", default, choices)
