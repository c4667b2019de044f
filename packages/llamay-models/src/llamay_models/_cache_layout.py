"""What a model's K/V cache looks like, read off its plan."""

from __future__ import annotations

from typing import Literal, get_args

import llamay_kv
from llamay_models.plan import Program

Precision = Literal["f16", "f32", "vq8", "q8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def cache_layout(program: Program, precision: Precision) -> llamay_kv.Layout:
    """One group for each way of looking back: all positions, or a window of so many."""
    groups: dict[int, list[llamay_kv.Layer]] = {}
    for record in program.records:
        if record.op == "attention":
            a = record.attrs
            layer = llamay_kv.Layer(a["layer"], a["kv_heads"], a["k_dim"], a["v_dim"])
            groups.setdefault(a["window"], []).append(layer)
    return llamay_kv.Layout(
        llamay_kv.Group.sliding(window, layers, precision)
        if window
        else llamay_kv.Group.full(layers, precision)
        for window, layers in sorted(groups.items())
    )
