"""`Chooser`: the native sampler, as the engine uses it."""

from __future__ import annotations

import numpy as np

from llamay_models.engine._constraint import Mask
from llamay_models.engine._generation import TokenScore
from llamay_models.engine._sampling import Sampling
from llamay_models.engine._state import State
from llamay_models.plan._records import Floats


class Chooser:
    """Chooses tokens for one sequence."""

    def __init__(self, sampling: Sampling, vocab: int, forbidden: frozenset[int]) -> None:
        self.vocab = vocab
        self.sampling = sampling
        self._forbidden = forbidden

    def choose(self, logits: Floats, state: State, mask: Mask | None) -> tuple[int, TokenScore | None]:
        """The next token after `state`, and its score where scores were asked for."""
        return int(np.argmax(logits)), None
