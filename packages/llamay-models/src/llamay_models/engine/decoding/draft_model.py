"""`DraftModel`: a smaller model that drafts the next tokens for a larger one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import llamay_kv as kv
from llamay_models.backend import Sampler
from llamay_models.engine.runner import Runner, StepRows
from llamay_models.plan.records import Floats

T = TypeVar("T")


class DraftModelContext:
    """A text as the draft model sees it: a context of its own, which follows the chosen tokens."""

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


class DraftEngine(Protocol):
    """The engine of a draft model, as another engine sees it."""

    pool: kv.Pool
    ctx_size: int

    @property
    def runner(self) -> Runner:
        """The runner of the draft model's plan."""

    def call(self, function: Callable[[], T]) -> T:
        """Run a function between two steps of the draft model, and return its result."""


class DraftModel:
    """A smaller model of the same vocabulary, which drafts for all texts of a larger one in one batch.

    `vocab` is the number of tokens of the larger model. One vocabulary may be padded to more tokens than the other.
    """

    def __init__(self, engine: DraftEngine, vocab: int) -> None:
        self._engine = engine
        self._vocab = vocab
        self.pool = engine.pool

    def propose(self, asks: Sequence[tuple[DraftModelContext, int]]) -> list[list[int]]:
        """Return a draft for each context, of at most the number of tokens beside it.

        Drafts are empty where the draft model has no memory, or was closed.
        """
        try:
            return self._engine.call(lambda: self._propose(asks))
        except Exception:
            return [[] for _ in asks]  # without a draft the text goes on all the same

    def _propose(self, asks: Sequence[tuple[DraftModelContext, int]]) -> list[list[int]]:
        runner, drafts = self._engine.runner, [list[int]() for _ in asks]
        scratch: list[kv.Context] = []
        try:
            news = [ask.tokens(len(ask.context)) for ask, _ in asks]
            logits = _compute(runner, [ask.context for ask, _ in asks], news)
            scratch = [ask.context.fork() for ask, _ in asks]
            active = list(range(len(asks)))
            while active:
                for i, row in zip(list(active), logits, strict=True):
                    ask, most = asks[i]
                    # The next position, as the sequence's own sampler counts it.
                    token = ask.sampler.sample(row, len(scratch[i]), None, None)
                    if token < self._vocab:
                        drafts[i].append(token)
                    full = len(drafts[i]) >= most or len(scratch[i]) + 1 >= self._engine.ctx_size
                    if full or token >= self._vocab:
                        active.remove(i)
                if active:
                    logits = _compute(runner, [scratch[i] for i in active], [drafts[i][-1:] for i in active])
        except (kv.OutOfPagesError, ValueError):
            pass
        finally:
            for context in scratch:
                context.close()
        return drafts


def _compute(runner: Runner, contexts: Sequence[kv.Context], news: Sequence[list[int]]) -> list[Floats]:
    """Compute new tokens of several contexts, and return the logits after the last token of each."""
    at = [0] * len(contexts)
    logits: list[Floats | None] = [None] * len(contexts)
    while any(a < len(n) for a, n in zip(at, news, strict=True)):
        room, batch, owners = runner.max_rows, list[StepRows](), list[int]()
        try:
            for i, (context, new) in enumerate(zip(contexts, news, strict=True)):
                n = min(room, len(new) - at[i])
                if n > 0:
                    last = at[i] + n == len(new)
                    lease = context.reserve(n)
                    batch.append(StepRows(lease, new[at[i] : at[i] + n], len(context), int(last)))
                    owners.append(i)
                    room -= n
            out = runner.run(batch)
        except BaseException:
            for rows in batch:
                rows.release()
            raise
        row = 0
        for i, rows in zip(owners, batch, strict=True):
            rows.commit_all()
            at[i] += len(rows.tokens)
            if rows.wanted:
                logits[i] = out[row].copy()
                row += 1
    return [x for x in logits if x is not None]
