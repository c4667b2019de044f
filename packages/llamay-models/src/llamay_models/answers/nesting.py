"""Text that comes in parts, followed for what is open in it: a call is read when its arguments are closed."""

from __future__ import annotations

import string

from .tagged_arguments import Tags

_OUTSIDE = frozenset(' \t\n\r{}[]:,"+-.0123456789' + string.ascii_letters)
"""The characters of JSON outside of strings."""


class Braces:
    """JSON that comes in parts, followed for whether an object is open, and whether it can still become one."""

    def __init__(self) -> None:
        self.broken = False
        """Whether something has come that JSON does not have in this place."""
        self._depth = 0
        self._quoted = self._escaped = False

    @property
    def open(self) -> bool:
        """Whether an object has begun that has not ended."""
        return self._depth > 0

    def feed(self, text: str) -> None:
        """Go on with more text."""
        for char in text:
            if self._quoted:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._quoted = False
                elif char < " ":
                    self.broken = True
            elif char == "{":
                self._depth += 1
            elif self._depth:
                if char == "}":
                    self._depth -= 1
                elif char == '"':
                    self._quoted = True
                elif char not in _OUTSIDE:
                    self.broken = True


class Inside:
    """Text that comes in parts, followed for whether an argument between tags is open."""

    def __init__(self, tags: Tags) -> None:
        self.broken = False
        """A text may be anything until its mark comes."""
        self._tags = tags
        self._rest = ""
        self.open = False

    def feed(self, text: str) -> None:
        """Go on with more text."""
        text = self._rest + text
        at = 0
        while True:
            mark = self._tags.stop if self.open else self._tags.before
            found = text.find(mark, at)
            if found < 0:
                break
            at, self.open = found + len(mark), not self.open
        self._rest = text[max(at, len(text) - len(mark) + 1) :]
