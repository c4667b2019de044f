"""Models of recurrent layers over leases of states, with a slow reference."""

import numpy as np
from kernel_sets import POOLS, values
from pages import FULL, STATE, Context, GroupSpec, LayerSpec
from plans import ATTENTION, run_rows, weight
from recurrent_reference import conv_reference, scan_reference

from llamay_kernels import Plan

ROWS = 220
EMBED = ("embed", (0,), (), (0,), {})


class Recurrent:
    """A convolution and a scan of one layer, of inputs that come from tables; its output is both, side by side."""

    def __init__(self, seed=0, taps=4, channels=33, heads=4, groups=2, k_dim=8, v_dim=5, mapped="grouped",
                 by_column=True, corrected=True, bias=True, layer=3):  # fmt: skip
        self.heads, self.groups, self.k_dim, self.v_dim, self.mapped = heads, groups, k_dim, v_dim, mapped
        sizes = [channels, groups * k_dim, heads * (k_dim if by_column else 1), groups * k_dim, heads * v_dim]
        sizes += [heads * k_dim] * 2 if corrected else []
        self.x = [values(seed + i, ROWS, size, 0) for i, size in enumerate(sizes)]
        self.x[2] = np.exp(-np.abs(self.x[2]))
        for i in range(5, len(self.x)):
            self.x[i] /= np.float32(k_dim)
        self.w, self.bias = (
            values(seed + 20, channels, taps, 0),
            values(seed + 21, 1, channels, 0)[0] if bias else None,
        )
        weights = [*self.x, self.w] + ([self.bias] if bias else [])
        n = len(self.x)
        records = [("embed", (i,), (), (i,), {}) for i in range(n)]
        attrs = {
            "layer": layer,
            "heads": heads,
            "groups": groups,
            "k_dim": k_dim,
            "v_dim": v_dim,
            "map": mapped,
        }
        records += [
            ("conv", (n,), (0,), tuple(range(n, len(weights))), {"layer": layer}),
            ("scan", (n + 1,), tuple(range(1, n)), (), attrs),
            ("concat", (n + 2,), (n, n + 1), (), {"heads": 1}),
        ]
        widths = [*sizes, channels, heads * v_dim, channels + heads * v_dim]
        self.plan = Plan(records, widths, [weight(w) for w in weights], max_rows=ROWS)
        self.spec = GroupSpec((LayerSpec(layer, 1, (taps - 1) * channels, heads * v_dim * k_dim),), STATE)
        self.layer = layer

    def context(self, seed=0, **options):
        return Context((self.spec,), seed=seed, **options)

    def reference(self, tokens, carried=None, state=None):
        """The outputs of a text, and the state after it."""
        x = [part[tokens] for part in self.x]
        y, carried = conv_reference(x[0], self.w, self.bias, carried)
        r, w, k, v, *ab = x[1:]
        outs, states = [], []
        for h in range(self.heads):
            g = h % self.groups if self.mapped == "tiled" else h // (self.heads // self.groups)

            def part(array, i, size):
                return array[:, i * size : (i + 1) * size]

            own = [
                part(r, g, self.k_dim),
                part(w, h, w.shape[1] // self.heads),
                part(k, g, self.k_dim),
                part(v, h, self.v_dim),
            ]
            own += [part(array, h, self.k_dim) for array in ab]
            out, after = scan_reference(
                *own, state=None if state is None else state.reshape(self.heads, self.v_dim, -1)[h]
            )
            outs.append(out)
            states.append(after)
        return np.concatenate([y, *outs], 1), carried.reshape(-1), np.stack(states).reshape(-1)


def step(plan, context, tokens, threads=POOLS[1], wanted=None, states=None):
    context.reserve(len(tokens), states)
    return run_rows(
        plan, [(context, tokens, context.n_tokens, len(tokens) if wanted is None else wanted)], threads
    )


def hybrid():
    """A convolution alone, a scan alone, both, and attention, with their layers in two groups of states."""
    table, to_kv = values(1, ROWS, 32, 0), values(2, 16, 32, 0)
    taps, w = values(3, 32, 3, 0), np.full((1, 32), 0.9, np.float32)
    scan = {"heads": 4, "groups": 4, "k_dim": 8, "v_dim": 8, "map": "grouped"}
    records = [
        EMBED,
        ("conv", (1,), (0,), (2,), {"layer": 0}),
        ("affine", (2,), (1,), (3,), {"has": "w"}),
        ("unary", (3,), (2,), (), {"kind": "sigmoid"}),
        ("scan", (4,), (1, 3, 2, 1), (), {**scan, "layer": 1}),
        ("linear", (5,), (4,), (1,), {}),
        ("attention", (6,), (4, 5, 5), (), {**ATTENTION, "layer": 2}),
        ("conv", (7,), (6,), (2,), {"layer": 3}),
        ("scan", (8,), (7, 3, 2, 7), (), {**scan, "layer": 3}),
        ("add", (9,), (8, 0), (), {}),
        ("select", (10,), (9,), (), {}),
        ("linear", (11,), (10,), (4,), {}),
    ]
    widths = [32, 32, 32, 32, 32, 16, 32, 32, 32, 32, 32, 40]
    plan = Plan(
        records, widths, [weight(x) for x in (table, to_kv, taps, w, values(4, 40, 32, 0))], max_rows=ROWS
    )
    groups = (
        GroupSpec((LayerSpec(3, 1, 64, 256), LayerSpec(0, 1, 64, 0), LayerSpec(7, 2, 5, 6)), STATE),
        GroupSpec((LayerSpec(2, 2, 8, 8),), FULL),
        GroupSpec((LayerSpec(1, 1, 0, 256),), STATE),
    )
    return plan, groups


HYBRID, GROUPS = hybrid()
