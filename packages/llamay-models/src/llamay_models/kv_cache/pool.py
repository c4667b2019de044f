"""`kv_pool`: the pool of a model's contexts."""

from __future__ import annotations

import llamay_kv
from llamay_models.backend import Backend

# The share of the budget that the checkpoints of one context may take where layers are recurrent.
_CHECKPOINTS = 1 / 8


def kv_pool(
    layout: llamay_kv.Layout,
    page_tokens: int,
    budget_bytes: int,
    backend: Backend,
    spill: llamay_kv.Spill | None = None,
) -> llamay_kv.Pool:
    """Return a pool in the backend's memory. A pool of a layout that keeps nothing takes no memory."""
    if not layout.groups:
        return llamay_kv.Pool(layout, page_tokens, budget_bytes=0)
    return llamay_kv.Pool(
        layout,
        page_tokens,
        budget_bytes=budget_bytes,
        checkpoint_bytes=int(budget_bytes * _CHECKPOINTS) if layout.recurrent else None,
        spill=spill,
        allocator=None if backend.memory is None else backend.memory(),
    )
