"""JSON that comes in parts, written compactly while it comes.

The parts together are what ``json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))`` gives, so that a
client gets the same arguments in parts as it would have got at once. Three things that Python cannot write so stay as
they stand there: half of a surrogate pair, and numbers that are too large for it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

_SPACE = re.compile(r"[ \t\n\r]+")
_PLAIN = re.compile(r'[^"\\]+')
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|[^u])")
_HALF = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?")
"""The first half of a pair, behind which the other may still come."""
_WORD = re.compile(r"[-+.0-9A-Za-z]+")
_INTEGER = re.compile(r"-?[0-9]+")
_LONE = re.compile("[\ud800-\udfff]")
_LONGEST_ESCAPE = 12


def compact(value: Any) -> str:
    """Return a value as compact JSON."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _LONE.sub(lambda lone: f"\\u{ord(lone[0]):04x}", text)


class Compact:
    """Makes one JSON object compact while its text arrives, and holds back one number, word or escape at most.

    It does not check the text: invalid JSON stays invalid.

    Attributes:
        ended: whether the object has been closed.

    """

    def __init__(self) -> None:
        self.ended = False
        self._depth = 0
        self._quoted = False
        self._escape = ""
        self._word: list[str] = []
        self._brace = ""
        """The first brace waits for the next character, so that an empty object is one part."""

    def feed(self, text: str) -> tuple[str, int]:
        """Return the certain part, compact, and how much of `text` belongs to the object."""
        before = len(self._escape)
        text, self._escape = self._escape + text, ""
        out: list[str] = []
        at = 0
        while at < len(text) and not self.ended:
            at = self._string(text, at, out) if self._quoted else self._outside(text, at, out)
        written = self._brace + "".join(out)
        self._brace = written if written == "{" else ""
        return ("" if self._brace else written), at - before

    def finish(self) -> str:
        """Return the text that is held back, unchanged: no more text will decide about it."""
        held = self._brace + "".join(self._word) + self._escape
        self._word, self._escape, self._brace = [], "", ""
        return held

    def _string(self, text: str, at: int, out: list[str]) -> int:
        if (plain := _PLAIN.match(text, at)) is not None:
            out.append(plain[0])
            return plain.end()
        if text[at] == '"':
            self._quoted = False
            out.append('"')
            return at + 1
        escape = None if _HALF.fullmatch(text, at) is not None else _ESCAPE.match(text, at)
        if escape is None:
            if len(text) - at < _LONGEST_ESCAPE:
                self._escape = text[at:]
                return len(text)
            out.append("\\")  # no JSON
            return at + 1
        try:
            out.append(compact(json.loads(f'"{escape[0]}"'))[1:-1])
        except ValueError:
            out.append(escape[0])
        return escape.end()

    def _outside(self, text: str, at: int, out: list[str]) -> int:
        if (word := _WORD.match(text, at)) is not None:
            self._word.append(word[0])
            return word.end()
        if self._word:
            out.append(_number("".join(self._word)))
            self._word = []
        if (space := _SPACE.match(text, at)) is not None:
            return space.end()
        char = text[at]
        out.append(char)
        if char == '"':
            self._quoted = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.ended = self._depth == 0
        return at + 1


def _number(text: str) -> str:
    """Return a number (or a word of JSON) as Python writes it."""
    try:
        if _INTEGER.fullmatch(text):
            return str(int(text))
        number = float(text) if text[0] in "-0123456789" else math.nan
    except ValueError:
        return text
    return repr(number) if math.isfinite(number) else text


_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}:,]|[^][{}:,"]+|".*', re.DOTALL)
_CLOSES = {"{": "}", "[": "]"}


def complete_part(text: str) -> dict[str, Any]:
    """Return the complete part of a compact JSON object whose text was cut: all whole members, nested ones too.

    A value at the very end may have been longer, and does not count.
    """
    stack: list[str] = []
    good, closing = 0, ""
    awaits_key = False
    for found in _PIECE.finditer(text):
        piece, end = found[0], found.end()
        if piece in _CLOSES:
            stack.append(piece)
            awaits_key = piece == "{"
            whole = True
        elif piece in ("}", "]"):
            stack.pop()
            whole = True
        elif piece in (":", ","):
            awaits_key = piece == "," and bool(stack) and stack[-1] == "{"
            whole = False
        else:
            whole = not awaits_key and end < len(text)
            awaits_key = False
        if whole:
            good, closing = end, "".join(_CLOSES[opened] for opened in reversed(stack))
    value: dict[str, Any] = json.loads(text[:good] + closing) if good else {}
    return value
