"""Layouts with recurrent states, and contexts whose states are functions of their tokens."""

import numpy as np

from llamay_kv import Group, Layer, Layout

HYBRID = Layout(
    [
        Group.full([Layer(0, 1, 4, 4)], "f32"),
        Group.recurrent([Layer(1, 2, 3, 5), Layer(2, 1, 0, 7)], "f32"),
    ]
)
STRIDED = Layout([Group.recurrent([Layer(0, 1, 2, 4)], "f32", stride=10), Group.full([Layer(1, 1, 2, 2)])])


def step(state, tokens):
    """One recurrent layer: its state depends on every token before it and on their order."""
    for token in tokens:
        state = np.float32(0.5) * state + np.float32(token)
    return state


def states_of(layout, tokens):
    return {
        layer.index: tuple(
            step(np.zeros((layer.kv_heads, dim), "f4"), tokens) for dim in (layer.k_dim, layer.v_dim)
        )
        for group in layout.groups
        if group.kind == "state"
        for layer in group.layers
    }


def feed(context, tokens, at=None, checkpoints=False):
    """Commit tokens with K/V and states that are functions of the history."""
    layout, before = context.pool.layout, context.tokens
    tokens = list(tokens)
    stops = {*(at or ()), len(tokens)}
    if at is None:
        strides = [g.stride for g in layout.groups if g.stride]
        stops |= {n for n in range(1, len(tokens)) for s in strides if (len(before) + n) % s == 0}
    with context.reserve(len(tokens), states=at) as lease:
        for group in layout.groups:
            for layer in group.layers:
                if group.kind != "state":
                    ids = np.array(tokens, "f4")[:, None, None]
                    k = ids + np.zeros((1, layer.kv_heads, layer.k_dim), "f4")
                    lease.write(layer.index, k, k[:, :, : layer.v_dim])
        for n in sorted(stops):
            for layer, (k, v) in states_of(layout, before + tokens[:n]).items():
                lease.write_state(layer, k, v, after=n)
        lease.commit(tokens, checkpoints=checkpoints)
    return context


def check(context, at=None):
    n = len(context) if at is None else at
    for layer, pair in states_of(context.pool.layout, context.tokens[:n]).items():
        for got, want in zip(context.state(layer, at), pair, strict=True):
            np.testing.assert_array_equal(got, want)
