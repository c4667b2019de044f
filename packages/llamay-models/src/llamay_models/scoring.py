"""The probability of a given text under a model: logits of every position, log-likelihoods, perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import llamay_kv
from llamay_models.arguments import whole
from llamay_models.backend import Backend
from llamay_models.engine import Engine
from llamay_models.engine.passes.pass_runner import PassRunner
from llamay_models.engine.passes.text_pass import TextPass
from llamay_models.engine.runner import StepRows
from llamay_models.engine.sampling import MAX_LOGPROBS
from llamay_models.errors import OutOfMemoryError, PromptError
from llamay_models.plan import Doubles, Floats
from llamay_models.progress import Progress

# Logits that are held at a time: a row of a large vocabulary takes a megabyte.
_LOGITS = 64 << 20


class ScoringModel(Protocol):
    """A model, as scores see it."""

    engine: Engine
    pass_runner: PassRunner
    backend: Backend
    pool: llamay_kv.Pool

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; None in a model without one."""

    @property
    def vocab_size(self) -> int:
        """The number of tokens."""

    def encode(self, text: str, *, add_special: bool = True, continuation: bool = False) -> list[int]:
        """Return the token ids of a text."""


@dataclass(frozen=True)
class Score:
    """The probability of a text under a model.

    Attributes:
        tokens: the tokens of the text, without those of the given text.
        logprobs: float64 (len(tokens),): the natural-log probability of each after all that comes before
            it; NaN for the first where nothing comes before it.
        top: for each token the likeliest in its place with their natural-log probabilities, best first.

    """

    tokens: tuple[int, ...]
    logprobs: Doubles
    top: tuple[tuple[tuple[int, float], ...], ...]

    @property
    def log_likelihood(self) -> float:
        """The natural-log probability of the text, without a first token that nothing comes before."""
        return math.fsum(self.logprobs[~np.isnan(self.logprobs)])


def score(
    model: ScoringModel,
    text: str | Sequence[int],
    *,
    given: str | Sequence[int] = (),
    top: int = 0,
    tenant: str | None = "",
    progress: Progress | None = None,
) -> Score:
    """Return how likely the model finds a text; see `Model.score`.

    A text is encoded by itself, as a continuation of the given text, with the model's beginning token before both.
    """
    model.engine.check_writes()
    top = whole("top", top, 0, MAX_LOGPROBS, error=PromptError)
    # Lists and arrays of ids are treated alike.
    before: list[int] = []
    if isinstance(given, str):
        before = model.encode(given) if given else []
    elif len(given):
        before = list(model.engine.checked_tokens(given))
    after: list[int] = []
    if isinstance(text, str):
        # The first text begins with the beginning token, whose probability is not asked for.
        words = model.tokenizer
        goes_on = bool(before) and words is not None and not words.is_special(before[-1])
        if not before and words is not None and words.adds_bos and words.bos is not None:
            before = [words.bos]
        after = model.encode(text, add_special=False, continuation=goes_on)
    elif len(text):
        after = list(model.engine.checked_tokens(text))
    tokens = [*before, *after]
    if not after:
        raise PromptError("there is no text to score; give at least one token")
    n = len(before)
    logprobs: Doubles = np.full(len(after), np.nan)
    tops: list[tuple[tuple[int, float], ...]] = [()] * len(after)
    first = max(0, n - 1)

    logprobs_of = model.backend.logprobs

    def take(begin: int, rows: Floats) -> None:
        for at, row in enumerate(rows, begin + 1):
            logprobs[at - n], best = logprobs_of(row, tokens[at], top)
            tops[at - n] = tuple(best)

    ids = model.engine.checked_tokens(tokens)[:-1]
    if ids:
        model.pass_runner.run([TextPass("logits", ids, first, take, tenant)], None)
    if progress is not None:
        progress("scoring", len(after), len(after))
    return Score(tuple(tokens[n:]), logprobs, tuple(tops))


def logits(model: ScoringModel, tokens: Sequence[int], first: int = 0) -> Iterator[Floats]:
    """Yield the logits after each token from number `first` on, in pieces: float32 (rows, vocabulary).

    Runs between the steps of the engine. Raises PromptError for a token that the model
    does not have, OutOfMemoryError.
    """
    model.engine.check_writes()
    ids = model.engine.checked_tokens(tokens)
    most = max(1, min(model.engine.runner.max_rows, _LOGITS // (4 * model.vocab_size)))
    with model.pool.context() as context:

        def step(begin: int, end: int, wanted: int) -> Floats:
            try:
                lease = context.reserve(end - begin)
            except llamay_kv.OutOfPagesError as error:
                raise OutOfMemoryError(f"no K/V memory is left to score this text: {error}") from error
            with lease:
                rows = StepRows(lease, ids[begin:end], begin, wanted)
                out = model.engine.runner.run([rows]).copy()
                lease.commit(rows.tokens)
            return out

        at = 0
        while at < len(ids):
            end = min(first, at + model.engine.runner.max_rows) if at < first else min(len(ids), at + most)
            begin, at = at, end
            out = model.engine.call(lambda b=begin, e=end: step(b, e, 0 if b < first else e - b))  # type: ignore[misc]
            if begin >= first:
                yield out


def log_softmax(values: Floats) -> Doubles:
    """Return the natural logarithms of the probabilities of rows of logits, in float64."""
    x = values.astype(np.float64)
    x -= x.max(-1, keepdims=True)
    x -= np.log(np.exp(x).sum(-1, keepdims=True))
    return x


def log_likelihoods(
    model: ScoringModel, tokens: Sequence[int], first: int = 0, *, progress: Progress | None = None
) -> npt.NDArray[np.float64]:
    """Return the natural-log probability of each token after number `first`, given all tokens before it.

    float64 of shape (len(tokens) - 1 - first,): entry i belongs to token first + 1 + i. Their sum is the
    log-likelihood of the text.
    """
    if not 0 <= first < len(tokens) - 1:
        raise PromptError(
            f"scoring needs at least one token after number {first}, but there are {len(tokens)}"
        )
    scores = np.zeros(len(tokens) - 1 - first)
    done = 0
    for piece in logits(model, tokens[:-1], first):
        for row in piece:
            scores[done], _ = model.backend.logprobs(row, tokens[first + 1 + done], 0)
            done += 1
        if progress is not None:
            progress("scoring", done, len(scores))
    return scores


@dataclass(frozen=True)
class Perplexity:
    """The exponential of the mean negative log-likelihood, and its standard error."""

    value: float
    error: float
    tokens: int
    windows: int


def perplexity(
    model: ScoringModel, text: str | Sequence[int], window: int = 512, *, progress: Progress | None = None
) -> Perplexity:
    """Return the perplexity as llama.cpp's `llama-perplexity` defines it, so that figures can be compared.

    The text is cut into windows of `window` tokens; the rest at the end is dropped. Each window
    is computed by itself; where the model wants a beginning token, it takes the place of the window's first.
    Only the second half is scored, so that every scored token has at least half a window before it. Raises
    PromptError where the text is shorter than one window.
    """
    tokens = model.encode(text) if isinstance(text, str) else list(text)
    if window < 4:
        raise PromptError(f"a window must have at least 4 tokens, not {window}")
    count = len(tokens) // window
    if count == 0:
        raise PromptError(f"the text has {len(tokens)} tokens, fewer than one window of {window}")
    bos = model.tokenizer.bos if model.tokenizer is not None and model.tokenizer.adds_bos else None
    scores: list[npt.NDArray[np.float64]] = []
    for i in range(count):
        part = tokens[i * window : (i + 1) * window]
        if bos is not None:
            part[0] = bos
        scores.append(log_likelihoods(model, part, window // 2))
        if progress is not None:
            progress("scoring", i + 1, count)
    losses = -np.concatenate(scores)
    value = math.exp(losses.mean())
    spread = float(losses.var())
    error = math.sqrt(spread / (len(losses) - 1)) * value if spread > 0 else 0.0
    return Perplexity(value, error, len(losses), count)


__all__ = ["Perplexity", "Score", "log_likelihoods", "log_softmax", "logits", "perplexity", "score"]
