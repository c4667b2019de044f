"""A plan run by the kernels, in steps of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import llamay_kernels as kernels
import llamay_kv
from llamay_models.kv_cache.layout import cache_layout
from llamay_models.plan import Program, fuse, whole_text
from llamay_models.tensors import pack


def computed(
    program: Program, tokens: Sequence[int], steps: Sequence[int], types: Sequence[int] | None = None
) -> np.ndarray:
    """Return what the kernels make of a text that comes in steps: float32 (rows, output width), with F32 K/V.

    An encoder's text is one step, whatever `steps` says; `types` has the type of each of its tokens.
    """
    tokens = list(tokens)
    threads = kernels.Threads(2)
    fused = fuse(program)
    plan = kernels.Plan(fused.records, fused.widths, pack(fused.tensors, threads), max_rows=32)
    out, done = np.zeros((len(tokens), fused.output_width), np.float32), 0
    if whole_text(program):
        more: dict[str, Any] = {} if types is None else {"types": np.array(types, np.int32)}
        plan.run_rows([(None, tokens, 0, len(tokens), more)], out, threads)
        return out
    context = llamay_kv.Pool(cache_layout(fused, "f32"), 16, budget_bytes=64 << 20).context()
    for size in steps:
        step, rows = tokens[done : done + size], np.zeros((size, fused.output_width), np.float32)
        with context.reserve(size) as lease:
            plan.run_rows([(lease, step, done, size)], rows, threads)
            lease.commit(step)
        out[done : done + size], done = rows, done + size
    return out
