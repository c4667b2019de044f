"""Routers and experts in plans: the same bits as their products, activations and sums one by one."""

import numpy as np
import pytest
from exact import fma
from format_helpers import random_data
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import POOLS, everywhere, values
from plans import evaluate, run_rows, same_bits, weight

from llamay_kernels import Plan, Threads, Weight, _kernels

KINDS = ["softmax", "sigmoid", "softmax_chosen", "sqrt_softplus"]
SEEDS = st.integers(0, 2**31)


# -- routing


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("select", [False, True], ids=["all", "selected"])
@pytest.mark.parametrize("groups", [None, (1, 1), (4, 1), (4, 2), (4, None)], ids=str)
@pytest.mark.parametrize("biased", [False, True], ids=["", "biased"])
def test_route_is_its_kernel(kind, select, groups, biased):
    bias = values(1, 1, 24, 0)
    attrs = {"kind": kind, "k": 5, "norm": int(biased), "scale": 2.5}
    parts, used = groups or (1, 1)
    if groups:
        attrs["groups"] = parts
        if used:
            attrs["groups_used"] = used
    for rows in (1, 3, 70):
        logits = values(rows, rows, 24, 0)
        outs = [
            everywhere(
                lambda threads, i=i, logits=logits: evaluate(
                    "route",
                    [logits],
                    attrs,
                    [bias] if biased else (),
                    [5, 5],
                    out=i,
                    select=select,
                    threads=threads,
                )
            )
            for i in (0, 1)
        ]
        # One group is used where nothing is said.
        wanted = _kernels.route(logits, kind, 5, bias[0] if biased else None, parts, used or 1, biased, 2.5)
        assert same_bits(outs[0], wanted[0])
        assert same_bits(outs[1], wanted[1])


# -- experts


def stacked(seed, experts, rows, cols, fmt="F32"):
    """The matrices of so many experts, on top of each other."""
    rng = np.random.default_rng(seed)
    return Weight(
        np.frombuffer(random_data(rng, fmt, experts * rows, cols), np.uint8), fmt, experts * rows, cols
    )


def product(x, w):
    plan = Plan(
        [("embed", (0,), (), (0,), {}), ("linear", (1,), (0,), (1,), {})],
        [x.shape[1], w.rows],
        [weight(x), w],
        max_rows=len(x),
    )
    return run_rows(plan, [(None, range(len(x)), 0, len(x))])


class Mixture:
    """Rows of x and their logits come from tables."""

    def __init__(self, x, logits, k, weights, act="silu", kind="softmax", select=False):
        self.x, self.logits, self.k, self.weights, self.act = x, logits, k, weights, act
        self.experts, self.kind = logits.shape[1], kind
        self.route = {"kind": kind, "k": k, "norm": 1, "scale": 1.5}
        n = 2
        records = [("embed", (i,), (), (i,), {}) for i in range(2)]
        widths = [x.shape[1], self.experts]
        if select:
            records += [("select", (2 + i,), (i,), (), {}) for i in range(2)]
            widths *= 2
            n = 4
        a, b = n - 2, n - 1
        numbers = tuple(range(2, 2 + len(weights)))
        records += [
            ("route", (n, n + 1), (b,), (), self.route),
            ("experts", (n + 2,), (a, n, n + 1), numbers, {"act": act, "experts": self.experts}),
        ]
        widths += [k, k, weights[-1].rows // self.experts]
        self.plan = Plan(records, widths, [weight(x), weight(logits), *weights], max_rows=len(x))

    def run(self, threads, rows=None):
        tokens = list(range(len(self.x))) if rows is None else list(rows)
        return run_rows(self.plan, [(None, tokens, 0, len(tokens))], threads)

    def by_parts(self):
        """Every row times every expert; the router's choice is picked from the results."""
        n, e = len(self.x), self.experts
        ids, shares = _kernels.route(self.logits, self.kind, self.k, None, 1, 1, True, 1.5)
        ids = ids.astype(int)
        products = [product(self.x, w).reshape(n, e, -1) for w in self.weights[:-1]]
        out = None
        for j in range(self.k):
            first = [p[np.arange(n), ids[:, j]] for p in products]
            h = evaluate("unary", first[:1], {"kind": self.act})
            if len(first) > 1:
                h = h * first[1]
            y = product(h, self.weights[-1]).reshape(n, e, -1)[np.arange(n), ids[:, j]]
            share = shares[:, j : j + 1]
            out = share * y if out is None else fma(share, y, out)
        return out


def mixture(seed, rows, experts, k, width, hidden, gated=True, fmt="F32", down=None, **options):
    count = 2 if gated else 1
    weights = [stacked(seed + i, experts, hidden, width, fmt) for i in range(count)]
    weights.append(stacked(seed + 9, experts, width, hidden, down or fmt))
    return Mixture(values(seed, rows, width, 0), values(seed + 5, rows, experts, 0), k, weights, **options)


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    rows=st.sampled_from([1, 2, 3, 17, 64, 65, 200]),
    experts=st.sampled_from([1, 2, 5, 16, 64]),
    k=st.integers(1, 8),
    width=st.sampled_from([16, 32, 48]),
    hidden=st.sampled_from([16, 32, 80, 256]),
    gated=st.booleans(),
    act=st.sampled_from(["silu", "relu2", "gelu_erf"]),
    kind=st.sampled_from(KINDS),
    select=st.booleans(),
)
def test_experts_are_their_parts(seed, rows, experts, k, width, hidden, gated, act, kind, select):
    m = mixture(seed, rows, experts, min(k, experts), width, hidden, gated, act=act, kind=kind, select=select)
    y = everywhere(m.run)
    assert same_bits(y, m.by_parts())


@pytest.mark.parametrize(("fmt", "down", "width", "hidden"), [
    ("Q8_0", "Q8_0", 64, 32), ("Q8_0", "F32", 32, 16), ("F32", "Q8_0", 16, 64), ("Q4_K", "Q4_K", 256, 256),
    ("Q4_K", "Q8_0", 256, 48 + 16), ("F16", "Q4_0", 48, 32), ("Q6_K", "Q5_K", 512, 256), ("BF16", "F16", 16, 16),
])  # fmt: skip
@pytest.mark.parametrize("gated", [False, True], ids=["", "gated"])
def test_quantized_experts(fmt, down, width, hidden, gated):
    for rows in (1, 3, 70):
        m = mixture(rows, rows, 6, 3, width, hidden, gated, fmt, down)
        y = everywhere(m.run)
        assert same_bits(y, m.by_parts())


def test_gate_and_what_it_lets_through_may_have_different_formats():
    for fmt in (("F32", "Q8_0"), ("Q8_0", "F32"), ("Q4_K", "Q8_0"), ("Q8_0", "Q8_0")):
        weights = [stacked(i, 4, 32, 256, f) for i, f in enumerate(fmt)] + [stacked(9, 4, 48, 32)]
        for rows in (1, 40):
            m = Mixture(values(1, rows, 256, 0), values(2, rows, 4, 0), 2, weights)
            assert same_bits(everywhere(m.run), m.by_parts())


@pytest.mark.parametrize("fmt", ["F32", "Q8_0", "Q4_K"])
def test_a_batch_is_each_of_its_rows_alone(fmt):
    m = mixture(4, 120, 64, 8, 256, 256, fmt=fmt)
    together = m.run(POOLS[1])
    assert same_bits(m.run(POOLS[3]), together)
    for i in range(0, 120, 7):
        for threads in POOLS.values():
            assert same_bits(m.run(threads, [i])[0], together[i])
    some = [5, 5, 5, 119, 0, 64] * 12
    assert same_bits(m.run(POOLS[3], some), together[some])


def test_all_rows_may_go_to_one_expert_and_to_all():
    for k in (1, 5):
        m = mixture(6, 150, 5, k, 32, 48)
        m2 = Mixture(m.x, np.zeros_like(m.logits), k, m.weights)  # the lower go first
        assert same_bits(everywhere(m2.run), m2.by_parts())


def test_many_experts_of_many_groups_of_rows():
    """Chunks of an expert's groups that are not whole."""
    m = mixture(8, 70, 3, 2, 16, 16 * 37)
    assert same_bits(everywhere(m.run), m.by_parts())
    m = mixture(8, 1, 3, 2, 16 * 37, 16 * 41)
    assert same_bits(everywhere(m.run), m.by_parts())


@pytest.mark.parametrize("kind", KINDS)
def test_logits_that_are_no_numbers_touch_their_own_rows_only(kind):
    m = mixture(3, 40, 7, 3, 32, 32, kind=kind)
    logits = m.logits.copy()
    logits[3], logits[11, 2], logits[20], logits[21] = np.nan, np.nan, np.inf, -np.inf
    hostile = Mixture(m.x, logits, 3, m.weights, kind=kind)
    y, good = everywhere(hostile.run), m.run(POOLS[1])
    others = [i for i in range(40) if i not in (3, 11, 20, 21)]
    assert same_bits(y[others], good[others])
    for i in (3, 11, 20, 21):
        assert same_bits(hostile.run(POOLS[3], [i])[0], y[i])


def test_values_that_are_no_numbers_touch_their_own_rows_only():
    m = mixture(3, 70, 7, 3, 32, 32, fmt="Q8_0")
    x = m.x.copy()
    x[9, 4], x[30] = np.nan, np.inf
    y, good = everywhere(Mixture(x, m.logits, 3, m.weights).run), m.run(POOLS[1])
    others = [i for i in range(70) if i not in (9, 30)]
    assert same_bits(y[others], good[others])
    assert np.isnan(y[[9, 30]]).all()


def test_more_rows_may_be_wanted_than_there_are():
    """Each is computed as often as it is wanted."""
    m = mixture(5, 4, 8, 3, 32, 32, select=True)
    rows, wanted = np.arange(4, dtype=np.int32), np.tile(np.arange(4, dtype=np.int32), 40)
    out = np.zeros((160, 32), np.float32)
    everywhere(lambda threads: m.plan.run(rows, rows, [], [], wanted, out, threads) or out)
    assert same_bits(out, np.tile(m.run(POOLS[1]), (40, 1)))
    one = np.zeros((3, 32), np.float32)
    rows = rows[:1]
    everywhere(lambda threads: m.plan.run(rows, rows, [], [], np.zeros(3, np.int32), one, threads) or one)
    assert same_bits(one, np.tile(m.run(POOLS[1])[:1], (3, 1)))


def test_ids_may_be_selected_ones():
    """Selected rows of a router's choice are still a router's choice."""
    m = mixture(5, 9, 8, 3, 32, 32)
    records = [
        ("embed", (0,), (), (0,), {}),
        ("embed", (1,), (), (1,), {}),
        ("route", (2, 3), (1,), (), m.route),
        ("select", (4,), (0,), (), {}),
        ("select", (5,), (2,), (), {}),
        ("select", (6,), (3,), (), {}),
        ("experts", (7,), (4, 5, 6), (2, 3, 4), {"act": "silu", "experts": 8}),
    ]
    plan = Plan(records, [32, 8, 3, 3, 32, 3, 3, 32], [weight(m.x), weight(m.logits), *m.weights], max_rows=9)
    y = everywhere(lambda threads: run_rows(plan, [(None, range(9), 0, 4)], threads))
    assert same_bits(y, m.run(POOLS[1])[5:])


@pytest.mark.timeout(60)
def test_threads_that_come_late_neither_wait_for_ever_nor_change_anything():
    """More threads than processors: some threads look at a stage when later stages have overwritten its inputs.

    They have to count as many pieces of the stage as the other threads.
    """
    rng = np.random.default_rng(0)
    x, logits = values(1, 6, 32, 0), values(2, 6, 8, 0)
    first = [stacked(3, 8, 16, 32), stacked(4, 8, 16, 32), stacked(5, 8, 32, 16)]
    records = [("embed", (i,), (), (i,), {}) for i in range(2)]
    widths = [32, 8]
    for layer in range(6):  # each layer reuses the memory of the layer before
        n, at = len(widths), 0 if layer == 0 else len(widths) - 1
        records += [
            ("scale", (n,), (1,), (), {"by": float(rng.choice([-1, 1]) * (layer + 1))}),
            ("route", (n + 1, n + 2), (n,), (), {"kind": "softmax", "k": 3, "norm": 1, "scale": 1.0}),
            ("experts", (n + 3,), (at, n + 1, n + 2), (2, 3, 4), {"act": "silu", "experts": 8}),
        ]
        widths += [8, 3, 3, 32]
    plan = Plan(records, widths, [weight(x), weight(logits), *first], max_rows=6)
    rows = [(None, range(6), 0, 6)]
    wanted = run_rows(plan, rows)
    many = Threads(8, grain=0)
    for _ in range(300):
        assert same_bits(run_rows(plan, rows, many), wanted)
