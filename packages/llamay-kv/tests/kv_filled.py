"""Contexts filled with values that tell their token and position, and the check that they still hold them."""

import numpy as np

from llamay_kv import Group, Layer, Layout
from llamay_kv._kv import crc64

FULL = Layout([Group.full([Layer(0, 1, 2, 2)], "f32")])


def fill(context, tokens, chunk=10**9):
    """Values are a function of token and position, so that any mix-up shows."""
    layout = context.pool.layout
    for at in range(0, len(tokens), chunk):
        part = np.asarray(tokens[at : at + chunk])
        with context.reserve(len(part)) as lease:
            base = (part % 97 + np.arange(lease.begin, lease.begin + len(part)) * 100).astype("f4")
            for group in layout.groups:
                for layer in group.layers:
                    k = base[:, None, None] + np.zeros((1, layer.kv_heads, layer.k_dim), "f4")
                    if group.kind == "state":
                        lease.write_state(layer.index, *state_after([*context.tokens, *part.tolist()], layer))
                    else:
                        lease.write(layer.index, k, -k[:, :, : layer.v_dim])
            lease.commit(part.tolist())
    return context


def state_after(tokens, layer):
    """A state that depends on every token and on their order."""
    crc = crc64(np.array(tokens, np.int32).tobytes()) % 65521
    return tuple(np.full((layer.kv_heads, dim), crc, "f4") for dim in (layer.k_dim, layer.v_dim))


def check(context, tokens):
    assert context.tokens == list(tokens)
    base = np.asarray(tokens) % 97 + np.arange(len(tokens)) * 100
    first = context.first_positions()
    for g, group in enumerate(context.pool.layout.groups):
        for layer in group.layers:
            if group.kind == "state":
                for at in {*context.checkpoints, len(context)} - {0}:
                    for got, want in zip(
                        context.state(layer.index, at), state_after(context.tokens[:at], layer), strict=True
                    ):
                        assert (got == want).all()
                continue
            k, v = context.read(layer.index, first[g])
            assert (k[:, 0, 0] == base[first[g] :]).all()
            assert (v[:, 0, 0] == -base[first[g] :]).all()
