"""`Replays`: finished texts in the tokens in which a client will send them back, for prefill while the engine is idle.

The tokens that a model generates are not always those that the tokenizer makes of the same text: a grammar may exclude
the usual tokens, or the sampler draws others. When a client sends the text back, its tokens differ from the computed
ones from the first such place on. Using the stored tokens instead would change the model's input. So after an answer
the engine tokenizes the text again, and prefills it when it has nothing else to do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

WINDOW = 4096
"""The most tokens of a turn that are tokenized again."""
_WAITING = 16


@runtime_checkable
class Recoder(Protocol):
    """A tokenizer, as replays use it."""

    def is_special(self, token: int) -> bool:
        """Return whether a token is a control token."""

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that a token stands for."""

    def encode(
        self, text: str | bytes, *, add_special: bool = True, parse_special: bool = False
    ) -> Sequence[int]:
        """Return the token ids of a text."""


class Replays:
    """The last few finished texts."""

    def __init__(self, vocabulary: object) -> None:
        self._vocabulary = vocabulary if isinstance(vocabulary, Recoder) else None
        self._ended: deque[tuple[list[int], int, str]] = deque(maxlen=_WAITING)

    def __len__(self) -> int:
        return len(self._ended)

    def note(self, tokens: list[int], written: int, tenant: str) -> None:
        """Add a finished text, of which the model generated the last `written` tokens."""
        if self._vocabulary is not None and written:
            self._ended.append((tokens, written, tenant))

    def take(self) -> tuple[list[int], str] | None:
        """Return tokens that a client is likely to send and that were not computed, and their tenant; None for none."""
        while self._ended:
            tokens, written, tenant = self._ended.pop()  # the latest text is likely to come back first
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
        # Text on the two sides of a special token is tokenized separately.
        begin = next((i + 1 for i in range(end - 1, -1, -1) if words.is_special(tokens[i])), 0)
        if not 0 < end - begin <= WINDOW:
            return None
        # The turn begins with tokens of the prompt. If the tokenizer makes other tokens of these, so it will of the
        # text that comes back.
        given = tokens[begin : max(begin, len(tokens) - written)]
        try:
            cut = self._cut(tokens[begin:end])
            if self._cut(given) != given or cut == tokens[begin:end]:
                return None
        except UnicodeDecodeError:
            return None  # the text ends inside a character, so no client can send it back
        return [*tokens[:begin], *cut, *tokens[end:]]

    def _cut(self, tokens: list[int]) -> list[int]:
        """Return the tokens that the tokenizer makes of the same text."""
        words = self._vocabulary
        if words is None or not tokens:
            return []
        text = b"".join(words.token_bytes(t) for t in tokens).decode()
        return list(words.encode(text, add_special=False, parse_special=False))
