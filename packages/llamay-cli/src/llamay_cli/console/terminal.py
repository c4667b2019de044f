"""Writing a model's text to a terminal: at once, and without control sequences.

A model can be talked into printing escape sequences, and a terminal obeys them: OSC 52 writes the
clipboard, OSC 8 disguises links, CSI moves the cursor over what was printed before. So on a terminal
sequences and controls are left out; into a pipe or file every character goes as it is.
"""

from __future__ import annotations

import sys
from typing import Literal, TextIO

_State = Literal["text", "escape", "csi", "string", "string_escape"]
_LONGEST = 1024
"""Characters after which a control string without an end is text again, so that it cannot hide an answer."""
_STRINGS = "]PX^_"
"""The characters after ESC that begin a control string: OSC, DCS, SOS, PM, APC."""
_C1_STRINGS = "\x9d\x90\x98\x9e\x9f"


class Cleaner:
    """Removes control sequences (ECMA-48) from text that arrives in pieces, wherever the pieces are cut."""

    def __init__(self) -> None:
        self._state: _State = "text"
        self._length = 0

    def feed(self, text: str) -> str:
        """Return the part of `text` that may be shown."""
        if self._state == "text" and text.isprintable():
            return text
        return "".join(self._next(character) for character in text)

    def _next(self, character: str) -> str:
        self._length += 1
        ended = self._length > _LONGEST or character in "\n\x18\x1a"
        if self._state == "text" or ended:
            return self._plain(character)
        match self._state:
            case "escape":
                return self._after_escape(character)
            case "csi":
                if "@" <= character <= "~":
                    self._state = "text"
            case "string_escape":
                # ESC ends a control string; the next character belongs to that end.
                self._state = "text"
                return "" if character == "\\" else self._after_escape(character)
            case _:
                if character == "\x1b":
                    self._state = "string_escape"
                elif character in "\x07\x9c":
                    self._state = "text"
        return ""

    def _after_escape(self, character: str) -> str:
        if character == "[":
            self._begin("csi")
        elif character in _STRINGS:
            self._begin("string")
        elif character == "\x1b":
            self._begin("escape")
        elif not " " <= character <= "/":
            # Spaces to slashes go on with the sequence; the next character ends it.
            self._state = "text"
        return ""

    def _plain(self, character: str) -> str:
        self._state = "text"
        if character == "\x1b":
            self._begin("escape")
        elif character == "\x9b":
            self._begin("csi")
        elif character in _C1_STRINGS:
            self._begin("string")
        elif character in "\n\t" or not ("\x00" <= character <= "\x1f" or "\x7f" <= character <= "\x9f"):
            return character
        return ""

    def _begin(self, state: _State) -> None:
        self._state, self._length = state, 0


class AnswerStream:
    """Stdout, or another stream, for a model's text: written as it comes, cleaned for a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stdout
        self.terminal = self.stream.isatty()
        self._cleaner = Cleaner()
        self._last = "\n"

    def write(self, text: str) -> None:
        """Write and flush, so that every piece is seen when it is made."""
        shown = self._cleaner.feed(text) if self.terminal else text
        if shown:
            # A lone surrogate or a poor terminal encoding must not end an answer.
            encoding = self.stream.encoding or "utf-8"
            self.stream.write(shown.encode(encoding, "replace").decode(encoding, "replace"))
            self.stream.flush()
            self._last = shown[-1]

    def end(self) -> None:
        """Finish the line, so that a prompt or the next program's output begins at its start."""
        if self._last != "\n":
            self.stream.write("\n")
            self.stream.flush()
            self._last = "\n"
