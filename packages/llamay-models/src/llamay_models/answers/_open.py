"""Whether something is open in text that comes in parts: until it is closed, there is no use in reading it."""

from __future__ import annotations

from ._tagged import Tags


class Braces:
    """Whether an object is open in JSON that comes in parts: until it is closed, there is no use in parsing it."""

    def __init__(self) -> None:
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
            elif char == "{":
                self._depth += 1
            elif self._depth:
                if char == "}":
                    self._depth -= 1
                elif char == '"':
                    self._quoted = True


class Inside:
    """Whether an argument is open in text that comes in parts: until it is closed, there is no use in reading it."""

    def __init__(self, tags: Tags) -> None:
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
