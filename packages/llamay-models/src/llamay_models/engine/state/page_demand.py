"""`PageDemand`: the bytes of pages that a sequence is going to take."""

from __future__ import annotations

import llamay_kv as kv


class PageDemand:
    """Computes the bytes of the pages of positions, by the layout of the pool."""

    def __init__(self, pool: kv.Pool, chunk: int) -> None:
        page = pool.page_tokens
        self._page = page
        groups = list(zip(pool.page_bytes, pool.layout.groups, strict=True))
        # Pages behind a window are dropped: a context holds no more than the window and one chunk span.
        self._groups = [
            (size, -(-(group.window + chunk) // page) + 1 if group.window else None)
            for size, group in groups
            if group.kind != "state"
        ]
        # A step reads one state and writes another; further states are optional.
        self._states = 2 * sum(size for size, group in groups if group.kind == "state")

    def __call__(self, begin: int, end: int) -> int:
        """Return the bytes of the pages that a context of `begin` tokens needs to grow to `end` tokens.

        A partly filled page counts as a new one, since it may have to be copied.
        """
        if begin >= end:
            return 0
        pages = -(-end // self._page) - begin // self._page
        return self._states + sum(
            size * (pages if most is None else min(pages, most)) for size, most in self._groups
        )
