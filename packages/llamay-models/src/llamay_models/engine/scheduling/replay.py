"""`Replays`: texts as a client will send them back, read ahead while nobody waits.

What a model writes is not always cut into tokens as the tokenizer would cut the same text: a grammar leaves it other
pieces, or chance does. A client sends the text back, and from the first such place on its tokens are others than
those that were computed. Taking the stored ones instead would change what the model sees. So after an answer the
engine works out the tokens that the text will come back as, and reads them when it has nothing else to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

WINDOW = 4096
"""The most tokens of a turn that are looked at: what would have to be read again is at most so much."""
_WAITING = 16


@runtime_checkable
class Recoder(Protocol):
    """What is asked of a tokenizer here."""

    def is_special(self, token: int) -> bool:
        """Return whether a token is a control token."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""

    def encode(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False
    ) -> Sequence[int]:
        """Return the token ids of a text."""


class Replays:
    """The last few texts that ended, to be looked at when there is time."""

    def __init__(self, vocabulary: object) -> None:
        self._vocabulary = vocabulary if isinstance(vocabulary, Recoder) else None
        self._ended: deque[tuple[list[int], int, str]] = deque(maxlen=_WAITING)

    def __len__(self) -> int:
        return len(self._ended)

    def note(self, tokens: list[int], written: int, tenant: str) -> None:
        """A text has ended, of which the last so many tokens were written by the model."""
        if self._vocabulary is not None and written:
            self._ended.append((tokens, written, tenant))

    def take(self) -> tuple[list[int], str] | None:
        """Return tokens that a client is going to send and that were not computed, and whose they are."""
        while self._ended:
            tokens, written, tenant = self._ended.pop()  # the latest comes back the soonest
            again = self._recoded(tokens, written)
            if again is not None:
                return again, tenant
        return None

    def _recoded(self, tokens: list[int], written: int) -> list[int] | None:
        words = self._vocabulary
        assert words is not None
        end = len(tokens)
        while end > len(tokens) - written and words.is_special(tokens[end - 1]):
            end -= 1
        # A special token is a border: what is before it is cut by itself.
        begin = next((i + 1 for i in range(end - 1, -1, -1) if words.is_special(tokens[i])), 0)
        if not 0 < end - begin <= WINDOW:
            return None
        # What the turn began with is of the prompt: if that is not cut as here, neither will be what comes back.
        given = tokens[begin : max(begin, len(tokens) - written)]
        try:
            cut = self._cut(tokens[begin:end])
            if self._cut(given) != given or cut == tokens[begin:end]:
                return None
        except UnicodeDecodeError:
            return None  # it ends inside a character; nobody can send that back
        return [*tokens[:begin], *cut, *tokens[end:]]

    def _cut(self, tokens: list[int]) -> list[int]:
        """The same text in the tokens of the tokenizer."""
        words = self._vocabulary
        if words is None or not tokens:
            return []
        text = b"".join(words.token_bytes(t) for t in tokens).decode()
        return list(words.encode(text, add_special=False, parse_special=False))
