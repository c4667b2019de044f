"""`State`: the contents of a context, shared by the caller's handle and the engine."""

from __future__ import annotations

import llamay_kv as kv
from llamay_models.backend import RowInputs
from llamay_models.engine.sampling import Sampling
from llamay_models.engine.state.vectors import Vectors, describe
from llamay_models.errors import ContextError
from llamay_models.plan import Floats


def branch_stream(stream: int, branch: int) -> int:
    """Return the random stream of a branch. Fork 2 of fork 1 has another one than fork 1 of fork 2."""
    return (stream * 0x9E3779B1 + branch + 1) & 0xFFFFFFFF


class State:
    """Tokens, their K/V, and the logits after the last one.

    Attributes:
        kv: the computed tokens and their K/V.
        pending: the tokens whose K/V is not computed yet: a prompt in prefill, or the last token of a generation.
        logits: the logits after the last token; None while tokens are pending.
        tenant: the tenant whose prefixes the context may begin with, and adds to.
        sampling: the options of the last generation; None before the first.
        random_stream: the stream of the seed from which tokens are drawn.
        mirostat: the version, tau and eta of the mirostat that chose the last tokens, and its mu; None for none.
        vectors: the rows that are vectors, in order; among the tokens they have ids below zero.
        has_vectors: whether there are such rows, also where their vectors are not in memory.

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
        """Return the last n tokens (all of them for -1), without copying the rest."""
        size = len(self)
        n = size if n < 0 else min(n, size)
        computed = len(self.kv)
        begin = size - n
        head = self.kv.token_slice(begin, computed) if begin < computed else []
        return [*head, *self.pending[max(0, begin - computed) :]]

    def append(self, tokens: list[int]) -> None:
        """Append tokens, which are then pending."""
        self.pending += tokens
        self.logits = None

    def append_vectors(self, vectors: Vectors) -> None:
        """Append rows that are vectors, which are then pending. They begin where the context ends."""
        assert vectors.begin == len(self)
        self.vectors += (vectors,)
        self.has_vectors = True
        self.append(list(vectors.ids))

    def describe(self, ids: list[int]) -> tuple[list[int], int, RowInputs | None]:
        """Return the rows after the computed ones as a step takes them: tokens, the first position, inputs.

        Raises ContextError for a row whose vector is not in memory.
        """
        return describe(self.vectors, len(self.kv), ids)

    def fork(self) -> State:
        """Return a copy that shares all pages. The cost depends on the number of pending tokens only."""
        twin = State(self.kv.fork(), self.tenant)
        twin.pending, twin.logits = list(self.pending), self.logits
        twin.vectors, twin.has_vectors = self.vectors, self.has_vectors
        twin.sampling, twin.random_stream, twin.mirostat = self.sampling, self.random_stream, self.mirostat
        return twin

    def go_back_to(self, before: State) -> None:
        """Become a fork that was made of this state earlier. The fork must not be used any more."""
        self.kv.close()
        self.kv, self.pending, self.logits = before.kv, before.pending, before.logits
        self.vectors, self.has_vectors = before.vectors, before.has_vectors

    def truncate(self, n: int) -> None:
        """Keep the first n tokens.

        K/V is kept up to the last position that the layers can go back to. The tokens from there on become pending, and
        are computed again when the context continues. Raises ContextError if a sliding window has dropped pages that
        are needed.
        """
        size = len(self)
        if not 0 <= n <= size:
            raise ContextError(f"cannot keep {n} tokens of a context of {size}")
        if n == size:
            return
        self.mirostat = None  # it learned from tokens that are removed
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
        """Make the last token pending, as where the logits after it were not kept."""
        self._go_back(len(self))
        self.logits = None

    def _go_back(self, n: int) -> None:
        """Keep n tokens, of which the last becomes pending: the logits after it are not kept anywhere."""
        back = self.kv.nearest(max(0, n - 1))
        rest = self.kv.token_slice(back, n) if n else []
        if back < n - 1 and not self.kv.pool.layout.recurrent:
            raise ContextError(
                f"cannot go back to {n} tokens: a sliding window has dropped what is before them; "
                f"fork the context before it goes on, and truncate that"
            )
        self.kv.truncate(back)
        self.pending = rest
