"""`Chooser`: the native sampler, as a sequence uses it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

import llamay_kernels as kernels
from llamay_models.engine._constraint import Mask
from llamay_models.engine._generation import TokenScore
from llamay_models.engine._sampling import Sampling
from llamay_models.engine._state import State
from llamay_models.errors import SamplingError
from llamay_models.plan._records import Floats


class Chooser:
    """Chooses the tokens of one sequence.

    A choice depends on the sampling, the random stream, the tokens so far and the logits, and on nothing
    else: so a text can be interrupted anywhere and goes on as if it had not been. `forbidden` tokens are
    never chosen.
    """

    def __init__(self, sampling: Sampling, state: State, vocab: int, forbidden: frozenset[int]) -> None:
        s = sampling
        wrong = [t for t in s.logit_bias if t >= vocab]
        if wrong:
            raise SamplingError(f"logit_bias names token {wrong[0]}, but the vocabulary has {vocab}")
        self.vocab = vocab
        self._logprobs = s.logprobs
        self._sampler = kernels.Sampler(
            s.seed or 0,
            state.stream,
            temperature=s.temperature,
            top_k=s.top_k,
            top_p=s.top_p,
            min_p=s.min_p,
            repeat_penalty=s.repeat_penalty,
            repeat_last_n=s.repeat_last_n,
            presence_penalty=s.presence_penalty,
            frequency_penalty=s.frequency_penalty,
            logit_bias={**s.logit_bias, **dict.fromkeys(forbidden, -math.inf)},
        )
        penalties = s.repeat_penalty != 1.0 or s.presence_penalty != 0.0 or s.frequency_penalty != 0.0
        looks_back = s.repeat_last_n if penalties else 0
        self._history = _History(state.last(looks_back), looks_back) if looks_back else None

    def choose(self, logits: Floats, position: int, mask: Mask | None) -> tuple[int, TokenScore | None]:
        """Return the token at `position`, and its score where scores were asked for.

        Raises SamplingError if nothing can be chosen, or if the logits are not numbers.
        """
        history = None if self._history is None else self._history.tokens
        try:
            token = self._sampler.sample(logits, position, history, mask)
        except ValueError as error:
            raise SamplingError(f"no token can be chosen at position {position}: {error}") from None
        if self._history is not None:
            self._history.append(token)
        if self._logprobs is None:
            return token, None
        logprob, top = kernels.logprobs(logits, token, self._logprobs)
        return token, TokenScore(token, logprob, tuple(top))


class _History:
    """The last tokens as one array, without copying them for every token."""

    def __init__(self, tokens: list[int], most: int) -> None:
        self._most = most
        self._n = len(tokens)
        self._array = np.zeros(max(64, 2 * self._n), np.int32)
        self._array[: self._n] = tokens

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        begin = 0 if self._most < 0 else max(0, self._n - self._most)
        return self._array[begin : self._n]

    def append(self, token: int) -> None:
        if self._n == len(self._array):
            kept = self.tokens if self._most >= 0 and self._most < self._n // 2 else self._array
            grown = np.zeros(max(64, 2 * len(kept)), np.int32)
            grown[: len(kept)] = kept
            self._array, self._n = grown, len(kept)
        self._array[self._n] = token
        self._n += 1
