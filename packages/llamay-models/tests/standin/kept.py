"""What the stand-in keeps of a text: through the lease, as it is stored."""

from __future__ import annotations

import numpy as np


class Kept:
    """Keys, values and states of one text in a step of `n` rows, by layer.

    Everything is written to the lease and read back from it, so that what an operation sees is what a later step
    will: rounded to the pool's precision, states to float32 after each row.
    """

    def __init__(self, lease, n):
        self._lease, self._at = lease, 0
        if n > len(lease):
            raise ValueError(f"{n} rows, but the lease has {len(lease)} positions")
        layout = lease.context.pool.layout
        self._groups = {layer.index: g for g, group in enumerate(layout.groups) for layer in group.layers}
        self._layers = {layer.index: layer for group in layout.groups for layer in group.layers}
        self._rows = {}
        self._states = {}

    @property
    def may_go_on(self):
        return self._at < len(self._lease) and (not self._lease.states or self._at + 1 in self._lease.states)

    def go_on(self):
        """Go on with rows behind those that were computed, in the same lease."""

    def step(self, stage, args):
        """Return the outputs of one row, of an operation that keeps something."""
        if stage.memory.kind == "state":
            return self._step_state(stage, args)
        keys, values = stage.kind.keep(args, stage.attrs)
        rows = self._positions(stage.memory.layer)
        self._lease.write(stage.memory.layer, _single(keys[None]), _single(values[None]), offset=self._at)
        at = self._lease.begin + self._at
        rows.append(*self._lease.read(stage.memory.layer, at, at + 1))
        return stage.kind.step(rows.kept, args, stage.weights, stage.attrs)[1]

    def end_of_row(self):
        """The states after a row are those that the next one begins with."""
        self._at += 1
        if self._at in self._lease.states:
            for layer, parts in self._states.items():
                where = self._layers[layer]
                k, v = (parts.get(part, np.zeros(0)) for part in ("conv", "scan"))
                self._lease.write_state(
                    layer,
                    _single(k.reshape(where.kv_heads, -1)),
                    _single(v.reshape(where.kv_heads, -1)),
                    after=self._at,
                )

    def _step_state(self, stage, args):
        layer = stage.memory.layer
        if layer not in self._states:
            k, v = self._lease.read_state(layer, after=self._at)
            self._states[layer] = {
                "conv": k.reshape(-1).astype(np.float64),
                "scan": v.reshape(-1).astype(np.float64),
            }
        part = "conv" if stage.memory.k_dim else "scan"
        (state,), outs = stage.kind.step((self._states[layer][part],), args, stage.weights, stage.attrs)
        self._states[layer][part] = _single(state).astype(np.float64)
        return outs

    def _positions(self, layer):
        if layer not in self._rows:
            first = self._lease.context.first_positions()[self._groups[layer]]
            end = self._lease.begin + self._at
            self._rows[layer] = Positions(*self._lease.read(layer, min(first, end), end))
        return self._rows[layer]


class Positions:
    """Keys and values of the last positions of a layer, in float64, with room for more."""

    def __init__(self, k, v):
        self._n = len(k)
        self._k, self._v = (np.zeros((len(x) + 64, *x.shape[1:])) for x in (k, v))
        self._k[: self._n], self._v[: self._n] = k, v

    def append(self, k, v):
        if self._n == len(self._k):
            self._k, self._v = (np.concatenate([x, np.zeros_like(x)]) for x in (self._k, self._v))
        self._k[self._n], self._v[self._n] = k[0], v[0]
        self._n += 1

    @property
    def kept(self):
        return self._k[: self._n], self._v[: self._n]


def _single(x):
    return np.ascontiguousarray(x, np.float32)
