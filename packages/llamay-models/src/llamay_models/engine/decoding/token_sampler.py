"""`TokenSampler`: the native sampler of one sequence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from llamay_models.backend import Backend, Draw, SampleBatch, Sampler, Threads
from llamay_models.engine.decoding.constraint_state import ConstraintState
from llamay_models.engine.decoding.dry_breakers import BreakerTokenizer, token_sequences
from llamay_models.engine.requests.results import TokenScore
from llamay_models.engine.requests.token_constraint import Mask
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.context_state import State
from llamay_models.errors import SamplingError
from llamay_models.plan.records import Floats

_NATIVE = [f.name for f in fields(Sampling) if f.name not in ("logprobs", "post_sampling_logprobs")]


_FORGETFUL = {
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_sequence_breakers": (),
}


class TokenSampler:
    """Chooses the tokens of one sequence.

    A choice depends on the sampling, the random stream, the tokens so far, the logits, and with mirostat on its value
    in the state, and on nothing else. So a text can be interrupted anywhere, and continues as if it had not been.
    `forbidden` tokens are never chosen.
    """

    def __init__(
        self,
        sampling: Sampling,
        state: State,
        vocab: int,
        forbidden: frozenset[int],
        tokenizer: BreakerTokenizer | None = None,
        *,
        backend: Backend,
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
            token_sequences(tokenizer, vocab, s.dry_sequence_breakers)
            if breaks and tokenizer is not None
            else ()
        )
        self._make, self._logprobs_of = backend.sampler, backend.logprobs
        self._sampler = self._make(sequence=state.random_stream, **options)
        looks_back = s.looks_back
        # Rows that are vectors are no tokens, and have no repetitions.
        past = [token for token in state.last(looks_back) if token >= 0] if looks_back else []
        self._history = _History(past, looks_back) if looks_back else None
        # The value that mirostat has learned stays with the context, as long as its parameters are the same.
        self._state = state
        self._mirostat = (s.mirostat, float(s.mirostat_tau), float(s.mirostat_eta)) if s.mirostat else None
        if self._mirostat and state.mirostat and state.mirostat[:3] == self._mirostat:
            self._sampler.mu = state.mirostat[3]
        self._drawn: tuple[int, Mask | None, int | str] | None = None
        # This says whether the token is all that a choice yields.
        self._plain = self._history is None and self._mirostat is None and self._logprobs is None

    def draft_sampler(self) -> Sampler:
        """Return a sampler that draws the same random numbers, for drafts. It does not look back."""
        state = self._sampler.state()
        return self._make(**{**state, **_FORGETFUL})

    @property
    def scores(self) -> bool:
        """Whether scores are wanted."""
        return self._logprobs is not None

    @property
    def scores_itself(self) -> bool:
        """Whether scores are wanted that only the draw itself yields."""
        return self._post and self._logprobs is not None

    def choose(self, logits: Floats, position: int, mask: Mask | None) -> tuple[int, TokenScore | None]:
        """Return the token at `position`, and its score where scores were asked for.

        Raises SamplingError if nothing can be chosen, or if the logits are not numbers.
        """
        score = None
        predrawn, self._drawn = self._drawn, None
        try:
            if predrawn is not None and predrawn[0] == position and predrawn[1] is mask:
                drawn = predrawn[2]
                if isinstance(drawn, str):
                    raise ValueError(drawn)
                if self._plain:
                    return drawn, None
                token = drawn
            elif self.scores_itself:
                token, logprob, top = self._sampler.sample_scored(
                    logits, position, self.history, mask, self._logprobs or 0
                )
                score = TokenScore(token, logprob, tuple(top))
            else:
                token = self._sampler.sample(logits, position, self.history, mask)
        except ValueError as error:
            raise SamplingError(f"no token can be chosen at position {position}: {error}") from None
        self._note(token)
        if self._logprobs is not None and score is None:
            logprob, top = self._logprobs_of(logits, token, self._logprobs)
            score = TokenScore(token, logprob, tuple(top))
        return token, score

    def take(self, position: int) -> int:
        """Return the token that was drawn for `position`; its logits may be overwritten by now."""
        drawn, self._drawn = self._drawn, None
        assert drawn is not None
        assert drawn[0] == position
        assert isinstance(drawn[2], int)
        self._note(drawn[2])
        return drawn[2]

    def _note(self, token: int) -> None:
        if self._history is not None:
            self._history.append(token)
        if self._mirostat is not None:
            self._state.mirostat = (*self._mirostat, self._sampler.mu)

    @property
    def history(self) -> npt.NDArray[np.int32] | None:
        """The last tokens that a choice depends on; None for none."""
        return None if self._history is None else self._history.tokens


class BatchedDraws:
    """Tokens of several sequences that are drawn in one native call: with the step that makes their logits, or after.

    The next `choose` for the same position and mask then returns the drawn token, which is the one that it would have
    drawn itself. Only tokens that are going to be chosen may be drawn: mirostat learns from them.

    Attributes:
        work: the draws, with the outputs of the step that they are from.

    """

    __slots__ = ("_samplers", "work")

    def __init__(self) -> None:
        self.work: list[Draw] = []
        self._samplers: list[TokenSampler] = []

    def add(
        self, sampler: TokenSampler, output: int, position: int, constraint: ConstraintState | None
    ) -> None:
        """Add the draw of a token, unless `choose` ends the text without one or draws by itself."""
        mask = None
        if constraint is not None:
            if not constraint.allows_text:  # then the text ends, and `choose` does not draw
                return
            mask = constraint.mask
        if sampler._plain:
            self.work.append((sampler._sampler, output, position, None, mask))
        elif sampler.scores_itself:
            return
        else:
            self.work.append((sampler._sampler, output, position, sampler.history, mask))
        self._samplers.append(sampler)

    def take(self, tokens: Sequence[int], errors: Mapping[int, str]) -> None:
        """Hand the drawn tokens, or the errors, to their samplers."""
        for sampler, row, token in zip(self._samplers, self.work, tokens, strict=True):
            sampler._drawn = (row[2], row[4], token)
        for i, error in errors.items():
            self._samplers[i]._drawn = (self.work[i][2], self.work[i][4], error)

    def draw(
        self, logits: Sequence[Floats], sample_batch: SampleBatch, threads: Threads | None = None
    ) -> None:
        """Draw from outputs that are computed."""
        if self.work:
            rows = [
                (s, logits[output], position, past, mask) for s, output, position, past, mask in self.work
            ]
            self.take(*sample_batch(rows, threads))


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
