"""`cache_layout`: the layout of a model's K/V cache, read off its plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import llamay_kv
from llamay_models.plan import Memory, Program, memories

Precision = Literal["f16", "f32", "vq8", "q8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


def cache_layout(program: Program, precision: Precision) -> llamay_kv.Layout:
    """Return a layout with a group for each way in which the plan's operations keep something.

    Groups that keep all positions come first, then windows from the narrowest on, latent rows, and states. States are
    F32 whatever the precision of K and V; latent rows, whose values are a part of their keys, are F16 where only values
    would be int8. Raises PlanError where two operations keep values that cannot share a layer.
    """
    kept: dict[tuple[int, int], list[Memory]] = {}
    for memory in memories(program):
        kept.setdefault((_ORDER.index(memory.kind), memory.window), []).append(memory)
    return llamay_kv.Layout(_group(members, precision) for _, members in sorted(kept.items()))


_ORDER = ("full", "window", "latent", "state")


def _group(members: list[Memory], precision: Precision) -> llamay_kv.Group:
    first = members[0]
    if first.kind == "state":
        return llamay_kv.Group.recurrent(_states(members), "f32")
    layers = [llamay_kv.Layer(m.layer, m.heads, m.k_dim, m.v_dim) for m in members]
    if first.kind == "latent":
        return llamay_kv.Group.latent(layers, "f16" if precision == "vq8" else precision)
    if first.kind == "window":
        return llamay_kv.Group.sliding(first.window, layers, precision)
    return llamay_kv.Group.full(layers, precision)


def _states(members: Iterable[Memory]) -> list[llamay_kv.Layer]:
    """Return the states of layers. A layer's convolution and its scan are one state, in this order."""
    sizes: dict[int, tuple[int, int]] = {}
    for m in members:
        k_dim, v_dim = sizes.get(m.layer, (0, 0))
        sizes[m.layer] = (k_dim + m.k_dim, v_dim + m.v_dim)
    return [llamay_kv.Layer(layer, 1, k_dim, v_dim) for layer, (k_dim, v_dim) in sizes.items()]
