"""The obvious store: every context owns a full copy of everything."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import numpy as np

from llamay_kv import Layout

Pair = tuple[np.ndarray, np.ndarray]


@dataclass
class ReferenceContext:
    """Token ids, and for each layer one (K, V) for each position, as stored."""

    layout: Layout
    tokens: list[int] = field(default_factory=list)
    values: dict[int, list[Pair]] = field(default_factory=dict)
    side: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    dropped: dict[int, int] = field(default_factory=dict)  # by group: positions that are gone

    def fork(self) -> ReferenceContext:
        return deepcopy(self)

    def append(self, tokens: list[int], rows: dict[int, Pair], page_tokens: int) -> None:
        if tokens:
            self.side = {}
        self.tokens += tokens
        for layer, (k, v) in rows.items():
            for i in range(len(tokens)):
                self.values.setdefault(layer, []).append((k[i].copy(), v[i].copy()))
        for g, group in enumerate(self.layout.groups):
            if group.kind == "window":
                pages = max(0, len(self.tokens) + 1 - group.window) // page_tokens
                self.dropped[g] = max(self.dropped.get(g, 0), pages * page_tokens)

    def may_truncate(self, n: int) -> bool:
        return n == 0 or all(
            group.kind == "full" or max(0, n + 1 - group.window) >= self.dropped.get(g, 0)
            for g, group in enumerate(self.layout.groups)
        )

    def truncate(self, n: int, page_tokens: int) -> None:
        if n == len(self.tokens):
            return
        del self.tokens[n:]
        for rows in self.values.values():
            del rows[n:]
        self.side = {}
        pages = -(-n // page_tokens)
        self.dropped = {g: min(at, pages * page_tokens) for g, at in self.dropped.items()}

    def overwrite(self, layer: int, begin: int, k: np.ndarray, v: np.ndarray) -> None:
        for i in range(len(k)):
            self.values[layer][begin + i] = (k[i].copy(), v[i].copy())
        self.side = {}

    def begin(self, layer: int) -> int:
        """The first position of the layer that is still there."""
        for g, group in enumerate(self.layout.groups):
            if any(entry.index == layer for entry in group.layers):
                return self.dropped.get(g, 0)
        raise KeyError(layer)

    def read(self, layer: int) -> Pair:
        rows = self.values.get(layer, [])[self.begin(layer) :]
        return np.array([k for k, _ in rows]), np.array([v for _, v in rows])
