"""`Chooser`: the native sampler, as a sequence uses it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

import llamay_kernels as kernels
from llamay_models.engine._breakers import Words, token_sequences
from llamay_models.engine._constraint import Mask
from llamay_models.engine._generation import TokenScore
from llamay_models.engine._sampling import Sampling
from llamay_models.engine._state import State
from llamay_models.errors import SamplingError
from llamay_models.plan._records import Floats

_NATIVE = [f.name for f in fields(Sampling) if f.name not in ("logprobs", "post_sampling_logprobs")]


_FORGETFUL = {
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_sequence_breakers": (),
}


class Chooser:
    """Chooses the tokens of one sequence.

    A choice depends on the sampling, the random stream, the tokens so far, the logits, and with mirostat on
    what the state keeps of it, and on nothing else: so a text can be interrupted anywhere and goes on as if
    it had not been. `forbidden` tokens are never chosen.
    """

    def __init__(
        self,
        sampling: Sampling,
        state: State,
        vocab: int,
        forbidden: frozenset[int],
        words: Words | None = None,
    ) -> None:
        s = sampling
        wrong = [t for t in s.logit_bias if t >= vocab]
        if wrong:
            raise SamplingError(f"logit_bias names token {wrong[0]}, but the vocabulary has {vocab}")
        self.vocab = vocab
        self.sampling = sampling
        self._logprobs = s.logprobs
        self._post = s.post_sampling_logprobs
        options: dict[str, Any] = {name: getattr(s, name) for name in _NATIVE}
        options["seed"] = s.seed or 0
        options["logit_bias"] = {**s.logit_bias, **dict.fromkeys(forbidden, -math.inf)}
        breaks = s.dry_multiplier > 0 and not s.mirostat
        options["dry_sequence_breakers"] = (
            token_sequences(words, vocab, s.dry_sequence_breakers) if breaks and words is not None else ()
        )
        self._sampler = kernels.Sampler(sequence=state.stream, **options)
        looks_back = s.looks_back
        self._history = _History(state.last(looks_back), looks_back) if looks_back else None
        # What mirostat has learned goes on with the context, as long as it is the same mirostat.
        self._state = state
        self._mirostat = (s.mirostat, float(s.mirostat_tau), float(s.mirostat_eta)) if s.mirostat else None
        if self._mirostat and state.mirostat and state.mirostat[:3] == self._mirostat:
            self._sampler.mu = state.mirostat[3]
        self._ahead: tuple[int, int | str] | None = None

    def twin(self) -> kernels.Sampler:
        """Return a sampler that draws the same random numbers, for guessing. It does not look back."""
        state = self._sampler.state()
        return kernels.Sampler(**{**state, **_FORGETFUL})

    def choose(self, logits: Floats, position: int, mask: Mask | None) -> tuple[int, TokenScore | None]:
        """Return the token at `position`, and its score where scores were asked for.

        Raises SamplingError if nothing can be chosen, or if the logits are not numbers.
        """
        history = None if self._history is None else self._history.tokens
        score = None
        ahead, self._ahead = self._ahead, None
        try:
            if ahead is not None and ahead[0] == position and mask is None:
                if isinstance(ahead[1], str):
                    raise ValueError(ahead[1])
                token = ahead[1]
            elif self._logprobs is not None and self._post:
                token, logprob, top = self._sampler.sample_scored(
                    logits, position, history, mask, self._logprobs
                )
                score = TokenScore(token, logprob, tuple(top))
            else:
                token = self._sampler.sample(logits, position, history, mask)
        except ValueError as error:
            raise SamplingError(f"no token can be chosen at position {position}: {error}") from None
        if self._history is not None:
            self._history.append(token)
        if self._mirostat is not None:
            self._state.mirostat = (*self._mirostat, self._sampler.mu)
        if self._logprobs is not None and score is None:
            logprob, top = kernels.logprobs(logits, token, self._logprobs)
            score = TokenScore(token, logprob, tuple(top))
        return token, score


def draw_ahead(rows: Sequence[tuple[Chooser, Floats, int]], threads: kernels.Threads | None = None) -> None:
    """Draw the tokens of several sequences in one native call, on several threads where that pays.

    Each row is a chooser, the logits and the position. The next `choose` for that position without a mask
    then only takes what was drawn; it is the token that `choose` would have drawn itself. To be called
    only for rows whose token is going to be chosen: a mirostat has learned from it.
    """
    ready = [(c, x, p) for c, x, p in rows if not (c._post and c._logprobs is not None)]
    if len(ready) < 2:
        return
    work = [(c._sampler, x, p, None if c._history is None else c._history.tokens, None) for c, x, p in ready]
    tokens, errors = kernels.sample_batch(work, threads)
    for i, (chooser, _, position) in enumerate(ready):
        chooser._ahead = (position, errors.get(i, tokens[i]))


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
