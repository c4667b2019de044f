"""`Drafter`: the drafts for one text, so that one step can confirm several tokens (speculative decoding).

A draft is never trusted: the step computes the logits after every drafted token, the sequence's own sampler chooses at
each position as it would have without a draft, and the first drafted token that differs from the chosen one ends the
draft. So speculation changes how many tokens a step yields, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from llamay_models.engine.decoding.draft_model import DraftModelContext
from llamay_models.engine.decoding.prompt_lookup import PromptLookup

MAX_DRAFT = 16
"""The most tokens of a draft."""
_RETRY = 24  # tokens after which drafting that was switched off is tried again


class Drafter:
    """The source of the drafts for one text, the rate at which they are right, and the length that pays.

    A draft of k tokens, each right with probability p, is confirmed up to the first wrong one. The k-th pays if
    p^k is more than the share of the step's time that a row takes; see `pays`.
    """

    __slots__ = ("_lookup", "_model", "_rate", "_since", "_tokens")

    def __init__(self, tokens: Callable[[], Sequence[int]], model: DraftModelContext | None = None) -> None:
        self._tokens = tokens
        self._lookup: PromptLookup | None = None
        self._model = model
        self._rate = 0.6
        self._since = 0

    @property
    def model(self) -> DraftModelContext | None:
        """The text's context in the draft model; None without a draft model."""
        return self._model

    def push(self, token: int) -> None:
        """Append a token that was chosen."""
        self._since += 1
        if self._lookup is not None:
            self._lookup.push(token)

    def length(self, share: float) -> int:
        """Return how many tokens to draft where one more row costs `share` of the time of a token; 0 for none."""
        if self._rate > share:
            return max(1, min(MAX_DRAFT, int(math.log(max(share, 1e-3)) / math.log(min(self._rate, 0.999)))))
        if self._since >= _RETRY:
            self._since = 0
            return 2
        return 0

    def pays(self, share: float) -> bool:
        """Return whether `length` would be more than 0 for now, without counting as a try."""
        return self._rate > share or self._since >= _RETRY

    def look_up(self, most: int) -> list[int]:
        """Return a draft of at most `most` tokens from the text itself."""
        if self._lookup is None:
            self._lookup = PromptLookup(self._tokens())
        return self._lookup.propose(most)

    def learn(self, drafted: int, right: int) -> None:
        """Take in that the first `right` of `drafted` tokens were right."""
        for _ in range(right):
            self._rate += 0.1 * (1.0 - self._rate)
        if right < drafted:
            self._rate += 0.1 * (0.0 - self._rate)

    def close(self) -> None:
        """Give back the pages of the text's context in the draft model."""
        if self._model is not None:
            self._model.close()
