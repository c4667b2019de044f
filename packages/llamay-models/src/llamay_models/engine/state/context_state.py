"""`State`: what a context is, shared by the caller's handle and the engine."""

from __future__ import annotations

import llamay_kv as kv
from llamay_models.backend import Inputs
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.vectors import Vectors, describe
from llamay_models.errors import ContextError
from llamay_models.plan import Floats


def branch_stream(stream: int, branch: int) -> int:
    """Return the random stream of a branch: streams of streams, so fork 2 of fork 1 is not fork 1 of fork 2."""
    return (stream * 0x9E3779B1 + branch + 1) & 0xFFFFFFFF


class State:
    """Tokens, their K/V, and the logits after the last one.

    `pending` are tokens of the context whose K/V is not computed yet: a prompt that is being read, or the
    last token of a generation, which nobody has asked to continue. `logits` belong to the last token, and
    are there only when nothing is pending. `tenant` is whose prefixes it may begin with, and add to.
    `mirostat` is the version, tau and eta of the mirostat that chose the last tokens, and its mu. `vectors` are the
    rows that are no tokens, in order; among the tokens they have ids below zero. `mixed` says that there are such rows,
    also where their vectors are not here.
    """

    __slots__ = (
        "has_vectors",
        "kv",
        "logits",
        "mirostat",
        "pending",
        "random_stream",
        "sampling",
        "tenant",
        "vectors",
    )

    def __init__(self, cache: kv.Context, tenant: str = "") -> None:
        self.kv = cache
        self.tenant = tenant
        self.pending: list[int] = []
        self.logits: Floats | None = None
        self.sampling: Sampling | None = None
        self.random_stream = 0
        self.mirostat: tuple[int, float, float, float] | None = None
        self.vectors: tuple[Vectors, ...] = ()
        self.has_vectors = False

    def __len__(self) -> int:
        return len(self.kv) + len(self.pending)

    @property
    def tokens(self) -> list[int]:
        """All tokens, computed or not."""
        return [*self.kv.tokens, *self.pending]

    def last(self, n: int) -> list[int]:
        """Return the last n tokens (all of them for -1), without reading the rest."""
        size = len(self)
        n = size if n < 0 else min(n, size)
        computed = len(self.kv)
        begin = size - n
        head = self.kv.token_slice(begin, computed) if begin < computed else []
        return [*head, *self.pending[max(0, begin - computed) :]]

    def append(self, tokens: list[int]) -> None:
        """More tokens, not computed yet."""
        self.pending += tokens
        self.logits = None

    def append_vectors(self, vectors: Vectors) -> None:
        """More rows, which are vectors, not computed yet. They begin where the context ends."""
        assert vectors.begin == len(self)
        self.vectors += (vectors,)
        self.has_vectors = True
        self.append(list(vectors.ids))

    def describe(self, ids: list[int]) -> tuple[list[int], int, Inputs | None]:
        """Return what a step is told of the rows after the computed ones: tokens, the first one's position, inputs.

        Raises ContextError for a row whose vector is not here.
        """
        return describe(self.vectors, len(self.kv), ids)

    def fork(self) -> State:
        """Return the same, sharing everything. Costs the same at any length but for what is pending."""
        twin = State(self.kv.fork(), self.tenant)
        twin.pending, twin.logits = list(self.pending), self.logits
        twin.vectors, twin.has_vectors = self.vectors, self.has_vectors
        twin.sampling, twin.random_stream, twin.mirostat = self.sampling, self.random_stream, self.mirostat
        return twin

    def truncate(self, n: int) -> None:
        """Keep the first n tokens.

        What was computed is kept up to where the layers can go back to: what lies between there and the last token is
        computed once more when somebody asks for what comes next. Raises ContextError if a sliding window has dropped
        what is needed.
        """
        size = len(self)
        if not 0 <= n <= size:
            raise ContextError(f"cannot keep {n} tokens of a context of {size}")
        if n == size:
            return
        self.mirostat = None  # it learned from what is gone
        if n > len(self.kv):
            self.pending = self.pending[: n - len(self.kv)]
        else:
            self._go_back(n)
        self.logits = None
        pool = self.kv.pool
        self.vectors = tuple(
            v if v.end <= n else v.first(n - v.begin, pool) for v in self.vectors if v.begin < n
        )

    def forget_logits(self) -> None:
        """Have the last token pending, as where nobody kept the logits after it."""
        self._go_back(len(self))
        self.logits = None

    def _go_back(self, n: int) -> None:
        """Keep n tokens, of which the last is not computed: its logits, which nobody kept, are wanted."""
        back = self.kv.nearest(max(0, n - 1))
        rest = self.kv.token_slice(back, n) if n else []
        if back < n - 1 and not self.kv.pool.layout.recurrent:
            raise ContextError(
                f"cannot go back to {n} tokens: a sliding window has dropped what is before them; "
                f"fork the context before it goes on, and truncate that"
            )
        self.kv.truncate(back)
        self.pending = rest
