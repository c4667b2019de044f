"""How many bytes of pages a sequence is going to take."""

from __future__ import annotations

import llamay_kv as kv


class PageDemand:
    """The pages that some positions take, by the layout of the pool."""

    def __init__(self, pool: kv.Pool, chunk: int) -> None:
        page = pool.page_tokens
        self._page = page
        groups = list(zip(pool.page_bytes, pool.layout.groups, strict=True))
        # Behind a window pages are dropped: no more are held than it and one chunk span.
        self._groups = [
            (size, -(-(group.window + chunk) // page) + 1 if group.window else None)
            for size, group in groups
            if group.kind != "state"
        ]
        # A step reads one state and writes another; what else is kept can be done without.
        self._states = 2 * sum(size for size, group in groups if group.kind == "state")

    def __call__(self, begin: int, end: int) -> int:
        """Bytes of the pages that a context of `begin` tokens takes to have `end`.

        A page that is partly filled counts as one to take: it may have to be copied.
        """
        if begin >= end:
            return 0
        pages = -(-end // self._page) - begin // self._page
        return self._states + sum(
            size * (pages if most is None else min(pages, most)) for size, most in self._groups
        )
