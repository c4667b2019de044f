"""`TextStream`: from tokens to text of whole characters, without any part of a stop string."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class StreamDecoder(Protocol):
    """Turns tokens into text one by one, and holds back the bytes of an unfinished character."""

    def push(self, token: int) -> str:
        """Return the text that became whole with this token."""

    def finish(self) -> str:
        """Return the text of the bytes that are left."""


class TextStream:
    """Decodes tokens and watches for stop strings, also where they begin in one token and end in another.

    `feed` returns the text that is certain: text is held back only while it may still turn out to be the beginning of
    a stop string. Once `stopped` names a stop string, that string and the text after it are dropped. The stop string
    that is complete first ends the text, of several that end at the same character the longest; where tokens begin
    makes no difference.
    """

    def __init__(self, decoder: StreamDecoder, stops: Iterable[str] = ()) -> None:
        self._decoder = decoder
        self._matchers = [_Matcher(s) for s in stops if s]
        self._held = ""
        self.stopped: str | None = None

    def feed(self, token: int) -> str:
        """Return the text that is certain with this token."""
        text = self._decoder.push(token)
        return self._push(text) if self._matchers else text

    def finish(self) -> str:
        """Return the rest: text that became no stop string, and the bytes of an unfinished character."""
        text = self._push(self._decoder.finish())
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _push(self, text: str) -> str:
        if not self._matchers:
            return text
        if self.stopped is not None:
            return ""
        for i, char in enumerate(text):
            found = [m.stop for m in self._matchers if m.push(char)]
            if found:
                self.stopped = max(found, key=len)
                whole = self._held + text[: i + 1]
                self._held = ""
                return whole[: len(whole) - len(self.stopped)]
        whole = self._held + text
        keep = max(m.matched for m in self._matchers)
        self._held = whole[len(whole) - keep :]
        return whole[: len(whole) - keep]


class _Matcher:
    """Tracks how much of a stop string the text ends with, one character at a time (Knuth, Morris, Pratt)."""

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._fallback = [0] * len(stop)
        length = 0
        for i in range(1, len(stop)):
            while length and stop[i] != stop[length]:
                length = self._fallback[length - 1]
            length += stop[i] == stop[length]
            self._fallback[i] = length

    def push(self, char: str) -> bool:
        while self.matched and self.stop[self.matched] != char:
            self.matched = self._fallback[self.matched - 1]
        self.matched += self.stop[self.matched] == char
        return self.matched == len(self.stop)
