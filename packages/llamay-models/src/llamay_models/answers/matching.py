"""Looking for literal texts in text of which more may come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

WAIT: Literal["wait"] = "wait"
"""The answer where more text decides."""


def skip(text: str, at: int) -> int:
    """Return the end of the white space that begins at `at`, which may be none."""
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def starts(text: str, at: int, literals: Sequence[str]) -> bool | Literal["wait"]:
    """Return whether one of the literals begins at `at`; "wait" where the text ends inside one."""
    if any(text.startswith(literal, at) for literal in literals):
        return True
    rest = text[at:]
    return WAIT if any(literal.startswith(rest) for literal in literals) else False


def length(text: str, at: int, literals: Sequence[str]) -> int:
    """Return the length of the longest literal that begins at `at`; one of them must."""
    return max(len(literal) for literal in literals if text.startswith(literal, at))
