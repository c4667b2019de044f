"""Arguments as a list of names and literals: ``city="Oslo", days=[1, 2]`` and its relatives.

They are neither JSON nor text between tags: names stand bare, strings have quotes of their own, and words may be
Python's. The literal shows the type of a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .matching import WAIT, skip

_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z]+")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_CHARACTERS = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
}
_WORDS = {"true": True, "false": False, "null": None, "none": None}
_BEHIND = ",)]}:"
"""The characters that may follow a string."""
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_DEEPEST = 64


class _BrokenError(Exception):
    """The text is no list of arguments."""


class _UnfinishedError(Exception):
    """More text decides."""


@dataclass(frozen=True, slots=True)
class Literals:
    """The form in which a format writes names and literals.

    Attributes:
        assign: between a name and its value.
        opens: the character that begins the list. It stands in front of the text that `read` reads.
        quotes: the characters that may enclose a string, the same on both sides.
        escapes: whether a backslash in a string means something, as in Python and JSON. Where it does, a quote ends a
            string only in front of something that may follow one: templates do not escape the quotes in it.

    """

    assign: str
    opens: str
    quotes: tuple[str, ...]
    escapes: bool

    @staticmethod
    def of(about: Mapping[str, Any]) -> Literals:
        """Return the form that an envelope's data describe."""
        quotes = tuple(piece.get("special") or piece["text"] for piece in about["quotes"])
        return Literals(about["assign"], about["opens"], quotes, bool(about.get("escapes")))

    def read(self, text: str, at: int) -> tuple[dict[str, Any], int] | Literal["wait"] | None:
        """Return the arguments from `at` on, and where their closing bracket ends; None where they are none."""
        try:
            return self._members(text, at, _BRACKETS[self.opens], self.assign, 0)
        except _UnfinishedError:
            return WAIT
        except _BrokenError:
            return None

    def string_end(self, text: str, at: int, quote: str) -> tuple[bool, int]:
        """Return whether a string is closed, and the place of its closing quote, or where to go on looking."""
        while True:
            found = text.find(quote, at)
            escape = text.find("\\", at, found if found >= 0 else None) if self.escapes else -1
            if escape >= 0:
                if escape + 1 >= len(text):
                    return False, escape
                at = escape + 2
                continue
            if found < 0:
                return False, max(at, len(text) - len(quote) + 1)
            behind = skip(text, found + len(quote))
            if not self.escapes or (behind < len(text) and text[behind] in _BEHIND):
                return True, found
            if behind == len(text):
                return False, found
            at = found + len(quote)

    def _members(
        self, text: str, at: int, closing: str, assign: str, depth: int
    ) -> tuple[dict[str, Any], int]:
        out: dict[str, Any] = {}
        while True:
            at = self._next(text, at)
            if text[at] == closing:
                return out, at + 1
            key, at = self._key(text, at)
            at = self._next(text, at)
            if not text.startswith(assign, at):
                raise _BrokenError
            out[key], at = self._value(text, self._next(text, at + len(assign)), depth + 1)
            at = self._behind(text, at, closing)

    def _items(self, text: str, at: int, depth: int) -> tuple[list[Any], int]:
        out: list[Any] = []
        while True:
            at = self._next(text, at)
            if text[at] == "]":
                return out, at + 1
            value, at = self._value(text, at, depth + 1)
            out.append(value)
            at = self._behind(text, at, "]")

    def _next(self, text: str, at: int) -> int:
        at = skip(text, at)
        if at == len(text):
            raise _UnfinishedError
        return at

    def _behind(self, text: str, at: int, closing: str) -> int:
        at = self._next(text, at)
        if text[at] == ",":
            return at + 1
        if text[at] != closing:
            raise _BrokenError
        return at

    def _key(self, text: str, at: int) -> tuple[str, int]:
        if (string := self._string(text, at)) is not None:
            return string
        name = _NAME.match(text, at)
        if name is None:
            raise _BrokenError
        if name.end() == len(text):
            raise _UnfinishedError
        return name[0], name.end()

    def _string(self, text: str, at: int) -> tuple[str, int] | None:
        for quote in self.quotes:
            if text.startswith(quote, at):
                whole, end = self.string_end(text, at + len(quote), quote)
                if not whole:
                    raise _UnfinishedError
                inner = text[at + len(quote) : end]
                return (_ESCAPE.sub(_meant, inner) if self.escapes else inner), end + len(quote)
            if quote.startswith(text[at:]):
                raise _UnfinishedError
        return None

    def _value(self, text: str, at: int, depth: int) -> tuple[Any, int]:
        if depth > _DEEPEST:
            raise _BrokenError
        if (string := self._string(text, at)) is not None:
            return string
        if text[at] == "[":
            return self._items(text, at + 1, depth)
        if text[at] == "{":
            return self._members(text, at + 1, "}", ":", depth)
        found = _NUMBER.match(text, at) or _WORD.match(text, at)
        if found is None:
            raise _UnfinishedError if text[at:] == "-" else _BrokenError
        if found.end() == len(text):
            raise _UnfinishedError
        word = found[0]
        if word.lower() in _WORDS:
            return _WORDS[word.lower()], found.end()
        try:
            number = float(word) if found.lastindex else int(word)
        except ValueError:
            raise _BrokenError from None
        if number in (float("inf"), float("-inf")):
            raise _BrokenError
        return number, found.end()


def _meant(escape: re.Match[str]) -> str:
    what = escape[1]
    if len(what) > 1:
        return chr(int(what[1:], 16))
    return _CHARACTERS.get(what, escape[0])


class Bracketed:
    """Text that comes in parts, followed for its open brackets: arguments are read when theirs are closed."""

    def __init__(self, literals: Literals) -> None:
        self.broken = False
        """A literal that is not closed may still become any value."""
        self._literals = literals
        self._text = ""
        self._at = self._depth = 0
        self._quote = ""
        self._mark = re.compile("|".join(map(re.escape, (*literals.quotes, *"()[]{}"))))
        self._margin = max(map(len, literals.quotes)) - 1

    @property
    def open(self) -> bool:
        """Whether arguments have begun that have not ended."""
        return self._depth > 0

    def feed(self, text: str) -> None:
        """Go on with more text."""
        self._text, self._at = self._text[self._at :] + text, 0
        while True:
            if self._quote:
                whole, self._at = self._literals.string_end(self._text, self._at, self._quote)
                if not whole:
                    return
                self._at += len(self._quote)
                self._quote = ""
            found = self._mark.search(self._text, self._at)
            if found is None:
                self._at = max(self._at, len(self._text) - self._margin)
                return
            mark, self._at = found[0], found.end()
            if mark == self._literals.opens or (mark in _BRACKETS and self._depth):
                self._depth += 1
            elif mark in self._literals.quotes and self._depth:
                self._quote = mark
            elif mark in ")]}" and self._depth:
                self._depth -= 1
