"""Guessing the next tokens, so that one step can confirm several.

A guess is never trusted: the step computes the logits after every guessed token, the sequence's own sampler
chooses at each position as it would have without, and the first guess that is not what was chosen ends it.
So speculation changes how many tokens a step yields, and nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import llamay_kv as kv
from llamay_models.backend import Sampler
from llamay_models.engine.runner import Rows, Runner
from llamay_models.plan._records import Floats

T = TypeVar("T")
MOST = 16
"""The longest guess."""
_RETRY = 24  # tokens after which a guesser that was switched off is tried again


class Lookup:
    """Prompt look-up: what followed the last time that the text ended in the same tokens.

    An index of the n-grams of prompt and text, so that a guess costs the same at any length.
    """

    _SIZES = (4, 2)

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._after: tuple[dict[tuple[int, ...], int], ...] = tuple({} for _ in self._SIZES)
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        """Take the next token of the text."""
        # What ends before this token is followed by it.
        tokens = self._tokens
        for n, after in zip(self._SIZES, self._after, strict=True):
            if len(tokens) >= n:
                after[tuple(tokens[-n:])] = len(tokens)
        tokens.append(token)

    def propose(self, most: int) -> list[int]:
        """Guess the next tokens, at most so many; a text that repeats itself is continued round and round."""
        tokens = self._tokens
        for n, after in zip(self._SIZES, self._after, strict=True):
            at = after.get(tuple(tokens[-n:]))
            if at is not None:
                period = len(tokens) - at
                found = [tokens[at + i % period] for i in range(most)]
                # Rows that are vectors have numbers below zero: nobody writes those.
                return found[: next((i for i, token in enumerate(found) if token < 0), most)]
        return []


class Drafter:
    """The guesses for one text: who guesses, how often they were right, and how long a guess is worth it.

    A guess of k tokens, each right with probability p, is confirmed up to the first wrong one. The k-th pays if
    p^k is more than the share of the step's time that a row takes; see `worth`.
    """

    __slots__ = ("_lookup", "_model", "_rate", "_since", "_tokens")

    def __init__(self, tokens: Callable[[], Sequence[int]], model: ModelDrafter | None = None) -> None:
        self._tokens = tokens
        self._lookup: Lookup | None = None
        self._model = model
        self._rate = 0.6
        self._since = 0

    @property
    def model(self) -> ModelDrafter | None:
        """The draft model's part, if there is one."""
        return self._model

    def push(self, token: int) -> None:
        """Take a token that was chosen."""
        self._since += 1
        if self._lookup is not None:
            self._lookup.push(token)

    def length(self, share: float) -> int:
        """How many tokens are worth guessing where a row takes this share of what a token takes."""
        if self._rate > share:
            return max(1, min(MOST, int(math.log(max(share, 1e-3)) / math.log(min(self._rate, 0.999)))))
        if self._since >= _RETRY:
            self._since = 0
            return 2
        return 0

    def worth(self, share: float) -> bool:
        """Whether `length` would be more than 0 for now, without counting as a try."""
        return self._rate > share or self._since >= _RETRY

    def look_up(self, most: int) -> list[int]:
        """Guess from the text itself."""
        if self._lookup is None:
            self._lookup = Lookup(self._tokens())
        return self._lookup.propose(most)

    def learn(self, guessed: int, right: int) -> None:
        """Of so many tokens that were guessed, the first so many were right."""
        for _ in range(right):
            self._rate += 0.1 * (1.0 - self._rate)
        if right < guessed:
            self._rate += 0.1 * (0.0 - self._rate)

    def close(self) -> None:
        """Give up what it holds."""
        if self._model is not None:
            self._model.close()


class ModelDrafter:
    """A text as the draft model sees it: its own context, which follows what was chosen."""

    def __init__(self, draft: DraftModel, tokens: Callable[[int], list[int]], sampler: Sampler) -> None:
        self.draft = draft
        self.context = draft.pool.context()
        self.tokens = tokens
        """Returns the text's tokens from a position on."""
        # The same random numbers on like probabilities choose the same token more often than any other rule.
        self.sampler = sampler

    def close(self) -> None:
        """Give its pages back."""
        self.context.close()


class Guesser(Protocol):
    """What is asked of the engine of a draft model."""

    pool: kv.Pool
    ctx_size: int

    @property
    def runner(self) -> Runner:
        """The runner of the draft model's plan."""

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two steps of the draft model, and return its result."""


class DraftModel:
    """A smaller model of the same vocabulary that guesses for a larger one, for all its texts in one batch.

    `vocab` is how many tokens the larger one has. One may be padded to more than the other.
    """

    def __init__(self, engine: Guesser, vocab: int) -> None:
        self._engine = engine
        self._vocab = vocab
        self.pool = engine.pool

    def propose(self, asks: Sequence[tuple[ModelDrafter, int]]) -> list[list[int]]:
        """Guess up to so many tokens for each. Empty guesses where it has no memory, or was closed."""
        try:
            return self._engine.call(lambda: self._propose(asks))
        except Exception:
            return [[] for _ in asks]  # no guess is never wrong

    def _propose(self, asks: Sequence[tuple[ModelDrafter, int]]) -> list[list[int]]:
        runner, guesses = self._engine.runner, [list[int]() for _ in asks]
        scratch: list[kv.Context] = []
        try:
            news = [ask.tokens(len(ask.context)) for ask, _ in asks]
            logits = _read(runner, [ask.context for ask, _ in asks], news)
            scratch = [ask.context.fork() for ask, _ in asks]
            active = list(range(len(asks)))
            while active:
                for i, row in zip(list(active), logits, strict=True):
                    ask, most = asks[i]
                    # The next position, as the sequence's own sampler counts it.
                    guess = ask.sampler.sample(row, len(scratch[i]), None, None)
                    if guess < self._vocab:
                        guesses[i].append(guess)
                    full = len(guesses[i]) >= most or len(scratch[i]) + 1 >= self._engine.ctx_size
                    if full or guess >= self._vocab:
                        active.remove(i)
                if active:
                    logits = _read(runner, [scratch[i] for i in active], [guesses[i][-1:] for i in active])
        except (kv.OutOfPages, ValueError):
            pass
        finally:
            for context in scratch:
                context.close()
        return guesses


def _read(runner: Runner, contexts: Sequence[kv.Context], news: Sequence[list[int]]) -> list[Floats]:
    """Compute new tokens of several contexts; return the logits after the last of each."""
    at = [0] * len(contexts)
    logits: list[Floats | None] = [None] * len(contexts)
    while any(a < len(n) for a, n in zip(at, news, strict=True)):
        room, batch, who = runner.max_rows, list[Rows](), list[int]()
        try:
            for i, (context, new) in enumerate(zip(contexts, news, strict=True)):
                n = min(room, len(new) - at[i])
                if n > 0:
                    last = at[i] + n == len(new)
                    lease = context.reserve(n)
                    batch.append(Rows(lease, new[at[i] : at[i] + n], len(context), int(last)))
                    who.append(i)
                    room -= n
            out = runner.run(batch)
        except BaseException:
            for rows in batch:
                rows.release()
            raise
        row = 0
        for i, rows in zip(who, batch, strict=True):
            rows.keep()
            at[i] += len(rows.tokens)
            if rows.wanted:
                logits[i] = out[row].copy()
                row += 1
    return [x for x in logits if x is not None]
