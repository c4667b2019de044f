"""`PromptLookup`: drafts from the text itself, which followed the last time that it ended in the same tokens."""

from __future__ import annotations

from collections.abc import Sequence


class PromptLookup:
    """An index of the n-grams of prompt and text, so that a draft costs the same at any length."""

    _SIZES = (4, 2)

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._after: tuple[dict[tuple[int, ...], int], ...] = tuple({} for _ in self._SIZES)
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        """Append the next token of the text."""
        # The n-grams that end before this token are followed by it.
        tokens = self._tokens
        for n, after in zip(self._SIZES, self._after, strict=True):
            if len(tokens) >= n:
                after[tuple(tokens[-n:])] = len(tokens)
        tokens.append(token)

    def propose(self, most: int) -> list[int]:
        """Return a draft of at most `most` tokens; a text that repeats itself is continued in its period."""
        tokens = self._tokens
        for n, after in zip(self._SIZES, self._after, strict=True):
            at = after.get(tuple(tokens[-n:]))
            if at is not None:
                period = len(tokens) - at
                found = [tokens[at + i % period] for i in range(most)]
                # Rows that are vectors have numbers below zero, which no sampler chooses.
                return found[: next((i for i, token in enumerate(found) if token < 0), most)]
        return []
