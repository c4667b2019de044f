"""`kv_pool`: the pool of a model's contexts."""

from __future__ import annotations

import llamay_kv
from llamay_models.backend import Backend

# One of so many parts of the budget is what the checkpoints of one context may take where layers are recurrent.
_PARTS = 8


def kv_pool(
    layout: llamay_kv.Layout,
    page_tokens: int,
    budget_bytes: int,
    backend: Backend,
    spill: llamay_kv.Spill | None = None,
) -> llamay_kv.Pool:
    """Return a pool in the backend's memory. A pool of a layout that keeps nothing takes no memory.

    ValueError if the budget, which callers know as kv_budget, is less than a single context needs, or more than there
    are addresses.
    """
    if not layout.groups:
        return llamay_kv.Pool(layout, page_tokens, budget_bytes=0)
    least = _least_bytes(layout, page_tokens)
    if budget_bytes < least:
        raise ValueError(f"kv_budget must be at least {least} bytes for this model, not {budget_bytes}")
    if budget_bytes >= 1 << 64:
        raise ValueError(f"kv_budget must be less than 2**64 bytes, not {budget_bytes}")
    allocator = None if backend.memory is None else backend.memory()
    try:
        return llamay_kv.Pool(
            layout,
            page_tokens,
            budget_bytes=budget_bytes,
            checkpoint_bytes=budget_bytes // _PARTS if layout.recurrent else None,
            spill=spill,
            allocator=allocator,
        )
    except RuntimeError as error:
        if allocator is not None:
            raise
        raise ValueError(f"kv_budget of {budget_bytes} is too much: {error}") from error


def _least_bytes(layout: llamay_kv.Layout, page_tokens: int) -> int:
    """Return the bytes of one page of every group, and enough for one checkpoint in its part of the budget."""
    pages = llamay_kv.Pool(layout, page_tokens, pages=1).page_bytes
    state = sum(n for n, group in zip(pages, layout.groups, strict=True) if group.kind == "state")
    return max(sum(pages), _PARTS * state)
