"""`State`: what a context is, shared by the caller's handle and the engine."""

from __future__ import annotations

import llamay_kv as kv
from llamay_models.engine._sampling import Sampling
from llamay_models.errors import ContextError
from llamay_models.plan._records import Floats


def split(stream: int, branch: int) -> int:
    """Return the random stream of a branch: streams of streams, so fork 2 of fork 1 is not fork 1 of fork 2."""
    return (stream * 0x9E3779B1 + branch + 1) & 0xFFFFFFFF


class State:
    """Tokens, their K/V, and the logits after the last one.

    `pending` are tokens of the context whose K/V is not computed yet: a prompt that is being read, or the
    last token of a generation, which nobody has asked to continue. `logits` belong to the last token, and
    are there only when nothing is pending. `tenant` is whose prefixes it may begin with, and add to.
    `mirostat` is the version, tau and eta of the mirostat that chose the last tokens, and its mu.
    """

    __slots__ = ("kv", "logits", "mirostat", "pending", "sampling", "stream", "tenant")

    def __init__(self, cache: kv.Context, tenant: str = "") -> None:
        self.kv = cache
        self.tenant = tenant
        self.pending: list[int] = []
        self.logits: Floats | None = None
        self.sampling: Sampling | None = None
        self.stream = 0
        self.mirostat: tuple[int, float, float, float] | None = None

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

    def fork(self) -> State:
        """Return the same, sharing everything. Costs the same at any length but for what is pending."""
        twin = State(self.kv.fork(), self.tenant)
        twin.pending, twin.logits = list(self.pending), self.logits
        twin.sampling, twin.stream, twin.mirostat = self.sampling, self.stream, self.mirostat
        return twin

    def truncate(self, n: int) -> None:
        """Keep the first n tokens. Raises ContextError if a sliding window has dropped what they need."""
        size = len(self)
        if not 0 <= n <= size:
            raise ContextError(f"cannot keep {n} tokens of a context of {size}")
        if n == size:
            return
        self.mirostat = None  # it learned from what is gone
        computed = len(self.kv)
        if n > computed:
            self.pending = self.pending[: n - computed]
        else:
            # The logits after token n - 1 are not kept, so that token is computed once more when they are
            # wanted.
            last = self.kv.token_slice(n - 1, n) if n else []
            try:
                self.kv.truncate(max(0, n - 1))
            except ValueError as error:
                raise ContextError(f"cannot go back to {n} tokens: {error}") from None
            self.pending = last
        self.logits = None
