"""`PrefixCache`: what was computed before, found again by its tokens, in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable

import llamay_kv as kv

_CHUNK = 64
# A load from disk that saves fewer tokens than this is not worth a thread's turn.
_LEAST_TOKENS = 128


class PrefixCache:
    """Computed prefixes that any later prompt may begin with.

    K/V is a function of the tokens before it alone, so what is found is what would have been computed, to the
    last bit. What belongs to a tenant is found by that tenant only.

    Args:
        pool: where the pages are.
        budget_bytes: what the pages that are kept in memory may take. They give way whenever a context
            needs pages.
        disk: prefixes that outlive the process.
        identity: what the K/V depends on; asked for once, in a thread of its own.
        owns_disk: whether to close it in the end.

    """

    def __init__(
        self,
        pool: kv.Pool,
        budget_bytes: int,
        disk: kv.DiskCache | None = None,
        identity: Callable[[], kv.Identity] | None = None,
        *,
        owns_disk: bool = False,
    ) -> None:
        self.tree = kv.PrefixTree(pool, min(budget_bytes, pool.budget_bytes))
        self.disk = disk
        self._pool = pool
        self._owns_disk = owns_disk
        self._identity = identity or kv.Identity
        self._known: kv.Identity | None = None
        self._executor: ThreadPoolExecutor | None = None
        if disk is not None:
            from concurrent.futures import ThreadPoolExecutor  # slow to import, and seldom needed

            self._executor = ThreadPoolExecutor(1, "llamay prefixes")
            self._executor.submit(self._identify)
        self._page = pool.page_tokens
        self.chunk_on_disk = 0 if disk is None else _CHUNK
        """The lengths at which the disk can keep a state are its multiples; 0 without a disk."""
        windows = [group.window for group in pool.layout.groups if group.window]
        self.recurrent = pool.layout.recurrent
        """Whether a prefix can only be used where a state was kept."""
        self.windowed = bool(windows)
        """Whether a prefix can only be used where the pages inside a window were kept."""
        self.chunk = max(self._page, min(windows) // self._page * self._page) if windows else None
        """The most tokens to compute before `keep`, so that no page is dropped without having been kept."""

    def match(self, tokens: list[int], tenant: str) -> kv.Context:
        """Return a context with the longest known prefix of the tokens; it may have none."""
        return self.tree.match(tokens, tenant=tenant)

    def shareable_length(self, context: kv.Context) -> int:
        """Return up to where others may be given what a context holds while it goes on.

        That is its last checkpoint where layers are recurrent, else its last full page: it goes on to write to the
        next one, and would have to copy it first.
        """
        if self.recurrent:
            return max(context.checkpoints, default=0)
        return len(context) // self._page * self._page

    def keep(self, context: kv.Context, tenant: str, shared: int = 0, *, up_to: int | None = None) -> None:
        """Keep what a context holds, all of it or up to a length; nothing where it cannot be cut there any more."""
        if context.marking is not None or len(context) == 0:
            return  # what somebody marked is for nobody else to find
        if up_to is None or up_to == len(context):
            self.tree.insert(context, tenant=tenant, shared=shared)
        elif up_to and context.nearest(up_to) == up_to:
            with context.fork() as cut:
                cut.truncate(up_to)
                self.tree.insert(cut, tenant=tenant, shared=shared)

    def parting(self, tokens: list[int], tenant: str) -> int:
        """Return how many tokens, from the first on, some other text begins with, whether it can be used so or not."""
        return self.tree.known(tokens, tenant=tenant)[0]

    def save(self, context: kv.Context, tenant: str) -> None:
        """Have the disk keep what a context holds. Takes microseconds: another thread writes."""
        known = self._known
        if self.disk is not None and known is not None and context.marking is None and len(context):
            self.disk.save(context, identity=known, tenant=tenant)

    def may_load(self, tokens: int, have: int) -> bool:
        """Whether the disk is worth asking for a prompt of so many tokens, of which `have` are known.

        Until the weights are hashed, which takes a large file seconds, only for what would take long itself.
        """
        missing = tokens - have
        return self._executor is not None and missing >= (
            _LEAST_TOKENS if self._known is not None else 8 * _LEAST_TOKENS
        )

    def load(
        self,
        tokens: list[int],
        tenant: str,
        onto: kv.Context,
        seconds_per_token: float | None,
        done: Callable[[kv.Context], None],
    ) -> None:
        """Call `done`, in another thread, with the longest prefix on disk, or `onto` if that is longer."""

        def work() -> None:
            found = onto
            try:
                assert self.disk is not None
                found = self.disk.load(
                    self._pool,
                    tokens,
                    identity=self._identify(),
                    tenant=tenant,
                    onto=onto,
                    seconds_per_token=seconds_per_token,
                )
            except Exception:
                pass  # a cache that cannot be read is a cache that misses; the disk cache counts why
            done(found)

        assert self._executor is not None
        self._executor.submit(work)

    def close(self) -> None:
        """Forget what is in memory, and let what is on its way to the disk arrive."""
        if self._executor is not None:
            self._executor.shutdown()
        if self.disk is not None:
            self.disk.close() if self._owns_disk else self.disk.flush()
        self.tree.clear()

    def _identify(self) -> kv.Identity:
        if self._known is None:
            self._known = self._identity()
        return self._known
