"""`PrefixCache`: computed prefixes, found again by their tokens, in memory and on disk."""

from __future__ import annotations

from collections.abc import Callable

import llamay_kv as kv

_CHUNK = 64
# A load from disk that saves fewer tokens costs more than it saves.
_LEAST_TOKENS = 128


class PrefixCache:
    """Computed prefixes that later prompts may begin with.

    K/V is a function of the tokens before it alone, so a cached prefix equals the computed one to the last bit. The
    prefixes of a tenant are found by that tenant only.

    Args:
        pool: the pool of the pages.
        budget_bytes: the most bytes of pages that are kept in memory. They are given up whenever a context needs pages.
        disk: the disk cache, whose prefixes outlive the process; None for none.
        identity: returns everything that the K/V depends on; called once, on a thread of its own.
        owns_disk: whether the disk cache is closed with this object.

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
        """The disk cache keeps states at the multiples of this length; 0 without a disk cache."""
        windows = [group.window for group in pool.layout.groups if group.window]
        self.recurrent = pool.layout.recurrent
        """Whether a prefix can be used only where a state was kept."""
        self.windowed = bool(windows)
        """Whether a prefix can be used only where the pages inside a window were kept."""
        self.chunk = max(self._page, min(windows) // self._page * self._page) if windows else None
        """The most tokens to compute before a `keep`, so that no page is dropped before it is kept."""

    def match(self, tokens: list[int], tenant: str) -> kv.Context:
        """Return a context with the longest known prefix of the tokens, which may be empty."""
        return self.tree.match(tokens, tenant=tenant)

    def shareable_length(self, context: kv.Context) -> int:
        """Return the length up to which a context can be shared while it continues.

        That is its last checkpoint where layers are recurrent, else the end of its last full page: it writes to the
        next page, and would have to copy that first.
        """
        if self.recurrent:
            return max(context.checkpoints, default=0)
        return len(context) // self._page * self._page

    def keep(self, context: kv.Context, tenant: str, shared: int = 0, *, up_to: int | None = None) -> None:
        """Keep a context, whole or up to a length; nothing where it cannot be cut at that length any more."""
        if context.marking is not None or len(context) == 0:
            return  # marked contexts are shared with nobody
        if up_to is None or up_to == len(context):
            self.tree.insert(context, tenant=tenant, shared=shared)
        elif up_to and context.nearest(up_to) == up_to:
            with context.fork() as cut:
                cut.truncate(up_to)
                self.tree.insert(cut, tenant=tenant, shared=shared)

    def parting(self, tokens: list[int], tenant: str) -> int:
        """Return the length of the longest beginning in common with a known text, usable as a prefix or not."""
        return self.tree.known(tokens, tenant=tenant)[0]

    def save(self, context: kv.Context, tenant: str) -> None:
        """Have the disk cache keep a context. Takes microseconds: another thread writes."""
        known = self._known
        if self.disk is not None and known is not None and context.marking is None and len(context):
            self.disk.save(context, identity=known, tenant=tenant)

    def may_load(self, tokens: int, have: int) -> bool:
        """Return whether to ask the disk cache for a prompt of `tokens` tokens, of which `have` are known.

        Until the weights are hashed, which takes seconds for a large file, only long prompts are worth it.
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
        """Call `done`, on another thread, with the longest prefix on disk, or with `onto` if that is longer."""

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
            except BaseException:
                pass  # a cache that cannot be read misses; the disk cache counts why
            done(found)

        assert self._executor is not None
        self._executor.submit(work)

    def close(self) -> None:
        """Drop the prefixes in memory, and finish the writes to the disk."""
        if self._executor is not None:
            self._executor.shutdown()
        if self.disk is not None:
            self.disk.close() if self._owns_disk else self.disk.flush()
        self.tree.clear()

    def _identify(self) -> kv.Identity:
        if self._known is None:
            self._known = self._identity()
        return self._known
