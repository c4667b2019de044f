"""Attention over leased pages: against a slow reference, and the same bits however it is cut."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import F16, F32, FULL, Q8, VQ8, WINDOW, Context, GroupSpec, LayerSpec, rounded
from plans import same_bits, weight

import llamay_kernels as lk
from llamay_kernels import Plan, Threads

PRECISIONS = {"f32": F32, "f16": F16, "vq8": VQ8, "q8": Q8}
POOLS = {n: Threads(n, grain=0) for n in (1, 2, 5)}


@dataclass(frozen=True)
class Case:
    """`layer` attentions of one shape over random queries, keys and values of `rows` positions."""

    rows: int
    heads: int = 4
    kv_heads: int = 2
    k_dim: int = 16
    v_dim: int = 16
    window: int = 0
    softcap: float = 0.0
    seed: int = 0
    layers: tuple[int, ...] = (0,)
    spread: float = 1.0

    def inputs(self):
        rng = np.random.default_rng(self.seed)
        widths = self.heads * self.k_dim, self.kv_heads * self.k_dim, self.kv_heads * self.v_dim
        return [(rng.standard_normal((self.rows, w)) * self.spread).astype(np.float32) for w in widths]

    def plan(self) -> Plan:
        inputs = self.inputs()
        widths = [x.shape[1] for x in inputs]
        records = [("embed", (i,), (), (i,), {}) for i in range(3)]
        sums = None
        for layer in self.layers:
            attrs = {
                "layer": layer,
                "heads": self.heads,
                "kv_heads": self.kv_heads,
                "k_dim": self.k_dim,
                "v_dim": self.v_dim,
                "scale": self.k_dim**-0.5,
                "window": self.window,
                "softcap": self.softcap,
            }
            widths.append(self.heads * self.v_dim)
            records.append(("attention", (len(widths) - 1,), (0, 1, 2), (), attrs))
            if sums is not None:
                widths.append(widths[-1])
                records.append(("add", (len(widths) - 1,), (sums, len(widths) - 2), (), {}))
            sums = len(widths) - 1
        return Plan(records, widths, [weight(x) for x in inputs], max_rows=max(self.rows, 64))

    def context(self, **options) -> Context:
        spec = [LayerSpec(layer, self.kv_heads, self.k_dim, self.v_dim) for layer in self.layers]
        return Context((GroupSpec(tuple(spec)),), capacity=self.rows + 16, **options)


def run(plan: Plan, context: Context, splits: list[int], threads: Threads = POOLS[1]) -> np.ndarray:
    """The rows in runs of the given sizes, one context."""
    outs, at = [], 0
    for n in splits:
        rows = np.arange(at, at + n, dtype=np.int32)
        out = np.full((n, plan.output_width), np.nan, np.float32)
        plan.run(rows, rows, [context.reserve(n)], [n], np.arange(n, dtype=np.int32), out, threads)
        context.commit(n)
        outs.append(out)
        at += n
    return np.concatenate(outs)


def reference(case: Case, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """In float64, row by row, from keys and values as they were stored."""
    q = case.inputs()[0].reshape(case.rows, case.heads, case.k_dim).astype(np.float64)
    group = case.heads // case.kv_heads
    out = np.empty((case.rows, case.heads, case.v_dim))
    for t in range(case.rows):
        first = max(0, t + 1 - case.window) if case.window else 0
        for h in range(case.heads):
            s = keys[first : t + 1, h // group].astype(np.float64) @ q[t, h] * case.k_dim**-0.5
            if case.softcap:
                s = case.softcap * np.tanh(s / case.softcap)
            p = np.exp(s - s.max())
            out[t, h] = p @ values[first : t + 1, h // group].astype(np.float64) / p.sum()
    return out.reshape(case.rows, -1)


def splits(rng: np.random.Generator, rows: int) -> list[int]:
    sizes = []
    while sum(sizes) < rows:
        sizes.append(int(min(rows - sum(sizes), rng.choice([1, 1, 2, 3, 17, 64, 65, 200]))))
    return sizes


SHAPES = [
    Case(150, heads=4, kv_heads=2),
    Case(70, heads=3, kv_heads=3, k_dim=24, v_dim=40),
    Case(200, heads=8, kv_heads=1, k_dim=64, v_dim=64),
    Case(90, heads=5, kv_heads=1, k_dim=80, v_dim=17),
    Case(150, window=40),
    Case(200, window=64, heads=7, kv_heads=1),
    Case(140, window=1),
    Case(100, softcap=5.0, spread=3.0),
    Case(70, heads=60, kv_heads=1, k_dim=3, v_dim=5),
]


@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_attention_is_what_its_definition_says(case, dtype):
    context = case.context(dtype=dtype)
    y = run(case.plan(), context, [case.rows])
    keys, values = context.stored(0)
    _, k, v = case.inputs()
    assert same_bits(keys, rounded(k.reshape(keys.shape), dtype, value=False))
    assert same_bits(values, rounded(v.reshape(values.shape), dtype, value=True))
    assert np.abs(y - reference(case, keys, values)).max() < 3e-6 * case.spread


@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
@pytest.mark.parametrize("case", SHAPES, ids=str)
def test_no_cut_of_the_work_changes_a_bit(case, dtype):
    """Prefill and decode, any runs, page sizes, threads and kernel sets."""
    plan, rng = case.plan(), np.random.default_rng(case.rows)
    lk.use_isa("portable")
    whole = run(plan, case.context(dtype=dtype), [case.rows])
    cuts = [[case.rows], [1] * case.rows, splits(rng, case.rows), splits(rng, case.rows)]
    for isa in lk.runnable_isas():
        lk.use_isa(isa)
        for i, cut in enumerate(cuts):
            page, pool = (16, 32, 64, 256)[i], POOLS[(1, 2, 5, 2)[i]]
            context = case.context(dtype=dtype, page_tokens=page, block_pages=(1, 2, 4, 8)[i], seed=i)
            assert same_bits(whole, run(plan, context, cut, pool)), (isa, cut, page)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 160),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 7),
    k_dim=st.integers(1, 40),
    v_dim=st.integers(1, 40),
    window=st.sampled_from([0, 0, 1, 15, 16, 17, 63, 64, 65, 100]),
    softcap=st.sampled_from([0.0, 10.0]),
    dtype=st.sampled_from(list(PRECISIONS.values())),
    page=st.sampled_from([16, 32, 64, 128]),
    threads=st.sampled_from([1, 2, 5]),
    isa=st.sampled_from(lk.runnable_isas()),
)
def test_any_shape_and_any_cut(
    seed, rows, kv_heads, group, k_dim, v_dim, window, softcap, dtype, page, threads, isa
):
    case = Case(rows, kv_heads * group, kv_heads, k_dim, v_dim, window, softcap, seed)
    lk.use_isa(lk.runnable_isas()[0])
    plan, context = case.plan(), case.context(dtype=dtype)
    whole = run(plan, context, [rows])
    assert np.abs(whole - reference(case, *context.stored(0))).max() < 1e-5
    lk.use_isa(isa)
    cut = splits(np.random.default_rng(seed), rows)
    assert same_bits(whole, run(plan, case.context(dtype=dtype, page_tokens=page), cut, POOLS[threads]))


@pytest.mark.parametrize("threads", POOLS)
def test_a_batch_of_contexts_is_each_of_them_alone(threads):
    """Some decode, some prefill, of different lengths, page sizes and precisions, in one run."""
    case = Case(330, heads=6, kv_heads=2, window=0, layers=(3, 7))
    plan, rng = case.plan(), np.random.default_rng(5)
    lengths, news = [0, 5, 64, 300, 130, 1], [7, 1, 1, 3, 150, 1]
    pages, dtypes = [16, 64, 32, 64, 256, 64], [F32, F16, VQ8, Q8, F16, F32]
    contexts, alone = [], []
    for length, new, page, dtype in zip(lengths, news, pages, dtypes, strict=True):
        pair = [case.context(page_tokens=page, dtype=dtype) for _ in range(2)]
        for c in pair:
            if length:
                run(plan, c, [length])
        contexts.append(pair[0])
        rows = np.arange(length, length + new, dtype=np.int32)
        out = np.empty((new, plan.output_width), np.float32)
        plan.run(rows, rows, [pair[1].reserve(new)], [new], np.arange(new, dtype=np.int32), out, POOLS[1])
        alone.append(out)
    rows = np.concatenate([np.arange(n, n + m) for n, m in zip(lengths, news, strict=True)]).astype(np.int32)
    big = replace(case, rows=330).plan()
    wanted = rng.permutation(len(rows)).astype(np.int32)
    out = np.empty((len(rows), big.output_width), np.float32)
    leases = [c.reserve(m) for c, m in zip(contexts, news, strict=True)]
    big.run(rows, rows, leases, news, wanted, out, POOLS[threads])
    assert same_bits(out, np.concatenate(alone)[wanted])


def test_pages_behind_the_window_may_be_gone():
    case = Case(200, window=40)
    plan = case.plan()
    whole = run(plan, case.context(), [200])
    spec = GroupSpec((LayerSpec(0, case.kv_heads, case.k_dim, case.v_dim),), WINDOW, 40)
    context = Context((spec,), capacity=216, page_tokens=16)
    parts = [run_from(plan, context, 0, 120)]
    context.tables[0][: (120 - 39) // 16] = -1  # the next row looks back to 81
    parts += [run_from(plan, context, 120, 1)]
    parts += [run_from(plan, context, 121, 79)]
    assert same_bits(whole, np.concatenate(parts))


def run_from(plan: Plan, context: Context, at: int, n: int) -> np.ndarray:
    rows = np.arange(at, at + n, dtype=np.int32)
    out = np.empty((n, plan.output_width), np.float32)
    plan.run(rows, rows, [context.reserve(n)], [n], np.arange(n, dtype=np.int32), out, POOLS[2])
    context.commit(n)
    return out


@pytest.mark.parametrize("kind", [FULL, WINDOW])
def test_what_is_not_visible_may_be_anything(kind):
    """Reserved, unwritten and masked positions hold NaN bytes here; a row that read one would be NaN."""
    case = Case(100, window=20)
    spec = GroupSpec(
        (LayerSpec(0, case.kv_heads, case.k_dim, case.v_dim),), kind, 20 if kind == WINDOW else 0
    )
    for dtype in PRECISIONS.values():
        for isa in lk.runnable_isas():
            lk.use_isa(isa)
            context = Context((spec,), capacity=128, dtype=dtype)
            assert np.isfinite(run(case.plan(), context, [1, 30, 1, 1, 60, 7], POOLS[2])).all()


def test_a_nan_key_reaches_only_the_rows_that_see_it():
    case = Case(100, window=10)
    inputs = case.inputs()
    inputs[1][30] = np.nan
    plan = case.plan()
    records = [("embed", (i,), (), (i,), {}) for i in range(3)]
    attrs = {
        "layer": 0,
        "heads": 4,
        "kv_heads": 2,
        "k_dim": 16,
        "v_dim": 16,
        "scale": 0.25,
        "window": 10,
        "softcap": 0.0,
    }
    records.append(("attention", (3,), (0, 1, 2), (), attrs))
    poisoned = Plan(records, [64, 32, 32, 64], [weight(x) for x in inputs], max_rows=128)
    clean = run(plan, case.context(), [100])
    for cut in ([100], [1] * 100, [29, 3, 68]):
        y = run(poisoned, case.context(), cut, POOLS[2])
        touched = np.isnan(y).any(1)
        assert touched.tolist() == [30 <= t < 40 for t in range(100)]
        assert same_bits(y[~touched], clean[~touched])


def test_keys_too_large_for_f16_become_infinite_and_stay_defined():
    case = Case(5, spread=1e5)
    a, b = (run(case.plan(), case.context(dtype=F16), cut) for cut in ([5], [1] * 5))
    assert same_bits(a, b)


def test_writing_without_outputs_writes_the_same_pages():
    case = Case(150, layers=(0, 1))
    plan = case.plan()
    with_outputs, without = case.context(), case.context()
    run(plan, with_outputs, [150])
    rows = np.arange(150, dtype=np.int32)
    nothing = np.empty((0, plan.output_width), np.float32)
    plan.run(rows, rows, [without.reserve(150)], [150], np.empty(0, np.int32), nothing, POOLS[2])
    without.commit(150)
    for layer in (0, 1):
        for a, b in zip(with_outputs.stored(layer), without.stored(layer), strict=True):
            assert same_bits(a, b)


@pytest.mark.parametrize("new", [2, 5, 12])
@pytest.mark.parametrize("start", [250, 255, 256, 314, 319, 380])
def test_a_few_rows_at_the_end_of_a_long_context_whose_blocks_are_shared_out(start, new):
    """The rows may lie in two blocks; both must be written before any thread reads them."""
    case = Case(start + new, heads=4, kv_heads=1)
    plan = case.plan()
    whole = run(plan, case.context(), [start + new])
    for pool in POOLS.values():
        for _ in range(3):
            assert same_bits(whole, run(plan, case.context(), [start, new], pool))


# -- branches of one context


def branches(case: Case, dtype: int, page: int, rng: np.random.Generator) -> list[tuple[Context, Context]]:
    """Branches of branches, of different lengths; beside each one a context of its own that holds the same."""
    plan = case.plan()

    def alone(n):
        context = case.context(dtype=dtype, page_tokens=page)
        if n:
            run(plan, context, [n])
        return context

    trunk = case.context(dtype=dtype, page_tokens=page, spare=2000)
    run(plan, trunk, [int(case.rows * 0.6)])
    bough = trunk.fork()
    at = trunk.n_tokens
    run_from(plan, bough, at, int(case.rows * 0.2))
    out = []
    for i in range(9):
        parent = (trunk, bough, bough)[i % 3]
        child = parent.fork(int(rng.integers(1, parent.n_tokens)) if i % 4 == 3 else None)
        if i % 2:
            run_from(plan, child, child.n_tokens, int(rng.integers(1, 20)))
        out.append((child, alone(child.n_tokens)))
    order = rng.permutation(len(out))
    return [out[i] for i in order]


@pytest.mark.parametrize("dtype", PRECISIONS.values(), ids=PRECISIONS)
@pytest.mark.parametrize(
    "case",
    [
        Case(400, heads=4, kv_heads=2),
        Case(400, heads=7, kv_heads=1, window=100),
        Case(300, heads=3, kv_heads=3, k_dim=24, v_dim=40, layers=(0, 1)),
        Case(400, heads=60, kv_heads=1),
        Case(330, window=1),
    ],
    ids=str,
)
def test_branches_that_share_pages_are_each_as_if_alone(case, dtype):
    """However many pages they share, and however the work of all of them is cut."""
    plan, rng = case.plan(), np.random.default_rng(case.rows)
    for page, isa in zip((16, 64, 128, 32), lk.runnable_isas(), strict=False):
        lk.use_isa(isa)
        pairs = branches(case, dtype, page, rng)
        news = [int(rng.choice([1, 1, 1, 2, 5])) for _ in pairs]
        rows = [
            np.arange(c.n_tokens, c.n_tokens + n, dtype=np.int32)
            for (c, _), n in zip(pairs, news, strict=True)
        ]
        expected = [run_from(plan, own, own.n_tokens, n) for (_, own), n in zip(pairs, news, strict=True)]
        for pool in POOLS.values():
            at, out = np.concatenate(rows), np.empty((sum(news), plan.output_width), np.float32)
            leases = [c.reserve(n) for (c, _), n in zip(pairs, news, strict=True)]
            plan.run(at, at, leases, news, np.arange(len(at), dtype=np.int32), out, pool)
            assert same_bits(out, np.concatenate(expected)), (isa, page)
        for (shared, own), n in zip(pairs, news, strict=True):
            shared.commit(n)
            for layer in case.layers:
                for a, b in zip(shared.stored(layer), own.stored(layer), strict=True):
                    assert same_bits(a, b)


# -- int8


@pytest.mark.parametrize("isa", lk.runnable_isas())
def test_int8_is_rounded_as_defined_whatever_the_vector_holds(isa):
    lk.use_isa(isa)
    rng = np.random.default_rng(1)
    x = rng.standard_normal((64, 17)) * 10.0 ** rng.integers(-42, 38, (64, 1))
    x = x.astype(np.float32)
    x[1], x[2, 3], x[3, 5], x[4, 16], x[5] = 0, np.inf, -np.inf, np.nan, -1e-45
    x[6], x[7, :4] = np.arange(17) - 8.5, (127, 0.5, 1.5, -2.5)
    x[7, 4:] = 0
    records = [("embed", (i,), (), (i,), {}) for i in range(3)]
    attrs = {"layer": 0, "heads": 1, "kv_heads": 1, "k_dim": 17, "v_dim": 17, "scale": 1.0, "window": 0}
    records.append(("attention", (3,), (0, 1, 2), (), {**attrs, "softcap": 0.0}))
    plan = Plan(records, [17] * 4, [weight(np.zeros_like(x)), weight(x), weight(x)], max_rows=64)
    context = Context((GroupSpec((LayerSpec(0, 1, 17, 17),)),), capacity=64, dtype=Q8)
    run(plan, context, [64])
    for stored in context.stored(0):
        assert same_bits(stored[:, 0], rounded(x, Q8, value=True))


def test_a_vector_that_is_not_finite_makes_only_rows_that_see_it_nan():
    case = Case(60, window=7)
    clean = run(case.plan(), case.context(dtype=Q8), [60])
    inputs = case.inputs()
    for poisoned in (1, 2):
        changed = [x.copy() for x in inputs]
        changed[poisoned][20, 3] = np.inf
        attrs = {"layer": 0, "heads": 4, "kv_heads": 2, "k_dim": 16, "v_dim": 16, "scale": 0.25, "window": 7}
        records = [("embed", (i,), (), (i,), {}) for i in range(3)]
        records.append(("attention", (3,), (0, 1, 2), (), {**attrs, "softcap": 0.0}))
        plan = Plan(records, [64, 32, 32, 64], [weight(x) for x in changed], max_rows=128)
        for cut in ([60], [1] * 60):
            y = run(plan, case.context(dtype=Q8), cut)
            touched = np.isnan(y).any(1)
            assert touched.tolist() == [20 <= t < 27 for t in range(60)]
            assert same_bits(y[~touched], clean[~touched])
