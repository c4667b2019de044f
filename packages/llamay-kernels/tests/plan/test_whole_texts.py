"""Rows that read all rows of their text, later ones too: attention with the mask "full", and pooling."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import POOLS, everywhere, values
from pages import Context
from plans import ATTENTION, run_rows, same_bits, weight

from llamay_kernels import Plan, PlanError

LENGTHS = [1, 3, 47, 64, 65, 300]
FULL = {**ATTENTION, "mask": "full"}


def attention_plan(q, k, v, attrs, *after):
    """Attention over rows of tables, whose numbers are the tokens."""
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [
        ("attention", (3,), (0, 1, 2), (), attrs),
        *after,
    ]
    widths = [x.shape[1] for x in (q, k, v)] + [attrs["heads"] * attrs["v_dim"]] * (1 + len(after))
    return Plan(records, widths, [weight(x) for x in (q, k, v)], max_rows=1000)


def inputs(seed, rows, a):
    sizes = a["heads"] * a["k_dim"], a["kv_heads"] * a["k_dim"], a["kv_heads"] * a["v_dim"]
    return [values(seed + i, rows, size, 0) for i, size in enumerate(sizes)]


def attend(q, k, v, a):
    """softmax(scale q k) v in float64 over all rows."""
    q, k, v = (
        x.astype(np.float64).reshape(len(x), n, -1)
        for x, n in ((q, a["heads"]), (k, a["kv_heads"]), (v, a["kv_heads"]))
    )
    k, v = (np.repeat(x, a["heads"] // a["kv_heads"], axis=1) for x in (k, v))
    s = np.einsum("ihd,jhd->hij", q, k) * a["scale"]
    if a["softcap"]:
        s = a["softcap"] * np.tanh(s / a["softcap"])
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), v).reshape(len(q), -1)


def texts_of(lengths, wanted=None):
    """Texts whose tokens are the numbers of the step's rows."""
    texts, at = [], 0
    for n in lengths:
        texts.append((None, list(range(at, at + n)), 0, n if wanted is None else min(n, wanted)))
        at += n
    return texts


@pytest.mark.parametrize("changed", [
    {}, {"heads": 1, "kv_heads": 1}, {"heads": 12, "kv_heads": 1, "k_dim": 20, "v_dim": 12}, {"softcap": 2.0},
    {"heads": 2, "kv_heads": 2, "k_dim": 64, "v_dim": 64}, {"heads": 60, "kv_heads": 1},
], ids=str)  # fmt: skip
def test_several_texts_of_one_step_are_each_alone(changed):
    a = FULL | changed
    x = inputs(1, sum(LENGTHS), a)
    plan = attention_plan(*x, a)
    texts = texts_of(LENGTHS)
    together = everywhere(lambda threads: run_rows(plan, texts, threads))
    backwards = run_rows(plan, texts[::-1], POOLS[3])
    at = 0
    for text, n in zip(texts, LENGTHS, strict=True):
        alone = run_rows(plan, [text], POOLS[3])
        assert same_bits(alone, together[at : at + n])
        assert same_bits(alone, run_rows(plan, [text], POOLS[1]))
        assert same_bits(alone, backwards[sum(LENGTHS) - at - n :][:n])
        wanted = attend(*(part[at : at + n] for part in x), a)
        assert np.abs(alone - wanted).max() < 3e-6
        at += n


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    lengths=st.lists(st.sampled_from([1, 1, 2, 15, 17, 48, 64, 65, 129, 200]), min_size=1, max_size=5),
    kv_heads=st.integers(1, 3),
    group=st.sampled_from([1, 2, 5, 49]),
    k_dim=st.integers(1, 20),
    v_dim=st.integers(1, 20),
)
def test_any_texts_of_any_shape(seed, lengths, kv_heads, group, k_dim, v_dim):
    a = FULL | {"heads": kv_heads * group, "kv_heads": kv_heads, "k_dim": k_dim, "v_dim": v_dim}
    x = inputs(seed, sum(lengths), a)
    plan = attention_plan(*x, a)
    together = run_rows(plan, texts_of(lengths), POOLS[3])
    assert same_bits(run_rows(plan, texts_of(lengths), POOLS[1]), together)
    at = 0
    for n in lengths:
        assert np.abs(together[at : at + n] - attend(*(part[at : at + n] for part in x), a)).max() < 3e-6
        at += n


def test_layers_of_different_shapes_follow_each_other():
    """They share the memory in which keys and values of a text stand."""
    first = {**FULL, "layer": 0}
    second = {**FULL, "layer": 1, "heads": 2, "kv_heads": 1, "k_dim": 16, "v_dim": 16}
    q, k, v = inputs(3, 200, first)
    narrow = values(9, 200, 16, 0)
    records = [("embed", (i,), (), (i,), {}) for i in range(4)]
    records += [
        ("attention", (4,), (0, 1, 2), (), first),
        ("attention", (5,), (4, 3, 3), (), second),
        ("attention", (6,), (5, 1, 2), (), {**first, "layer": 2}),
    ]
    plan = Plan(records, [32, 16, 16, 16, 32, 32, 32], [weight(x) for x in (q, k, v, narrow)], max_rows=200)
    y = everywhere(lambda threads: run_rows(plan, texts_of([130, 1, 69]), threads))
    at = 0
    for n in (130, 1, 69):
        parts = [x[at : at + n] for x in (q, k, v, narrow)]
        middle = attend(attend(*parts[:3], first), parts[3], parts[3], second)
        assert np.abs(y[at : at + n] - attend(middle, *parts[1:3], first)).max() < 1e-5
        at += n


def test_a_run_without_texts_is_one_text():
    a, rows = FULL, np.arange(70, dtype=np.int32)
    x = inputs(5, 70, a)
    plan = attention_plan(*x, a)
    out = np.zeros((70, 32), np.float32)
    plan.run(rows, rows, [], [], rows, out, POOLS[3])
    assert same_bits(out, run_rows(plan, texts_of([70])))
    assert plan.whole_texts


def test_a_text_that_has_tokens_before_is_refused():
    plan = attention_plan(*inputs(5, 70, FULL), FULL)
    context = Context(()).reserve(3)
    alone = run_rows(plan, [(context, [0, 1, 2], 0, 3)])
    assert same_bits(alone, run_rows(plan, [(None, [0, 1, 2], 0, 3)]))
    context.commit(3)
    with pytest.raises(
        ValueError, match=r"leases\[0\] has 3 tokens already, but rows of this plan read later rows"
    ):
        run_rows(plan, [(context.reserve(3), [0, 1, 2], 0, 3)])


# -- pooling


def pool_plan(x, kind, *between):
    records = [("embed", (0,), (), (0,), {}), *between]
    records.append(("pool", (len(records),), (len(records) - 1,), (), {"kind": kind}))
    return Plan(records, [x.shape[1]] * len(records), [weight(x)], max_rows=1000)


def pooled(x, kind):
    if kind != "mean":
        return x[0 if kind == "cls" else -1]
    total = x[0].copy()
    for row in x[1:]:
        total += row
    return total * (np.float32(1) / np.float32(len(x)))


@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_pooling(kind):
    x = values(7, sum(LENGTHS), 37, 0)
    plan = pool_plan(x, kind)
    assert plan.whole_texts
    parts = np.split(x, np.cumsum(LENGTHS)[:-1])
    wanted = np.stack([pooled(part, kind) for part in parts])
    texts = texts_of(LENGTHS, 1)
    assert same_bits(everywhere(lambda threads: run_rows(plan, texts, threads)), wanted)
    # Each row that is wanted gets its text's; where none is, none.
    texts = [(*text[:3], i % 3) for i, text in enumerate(texts) if i % 3 <= len(text[1])]
    rows = [
        row
        for row, length, i in zip(wanted, LENGTHS, range(9), strict=False)
        if i % 3 <= length
        for _ in range(i % 3)
    ]
    assert same_bits(everywhere(lambda threads: run_rows(plan, texts, threads)), np.stack(rows))


@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_what_is_pooled_may_be_computed_and_go_on(kind):
    """A whole encoder: attention, a norm, pooling, a product of the pooled rows, beside selected rows."""
    a, lengths = FULL, [5, 1, 90]
    q, k, v = inputs(11, 96, a)
    head = values(12, 8, 32, 0)
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [
        ("attention", (3,), (0, 1, 2), (), a),
        ("rms_norm", (4,), (3,), (), {"eps": 1e-6}),
        ("pool", (5,), (4,), (), {"kind": kind}),
        ("select", (6,), (4,), (), {}),
        ("add", (7,), (5, 6), (), {}),
        ("linear", (8,), (7,), (3,), {}),
    ]
    plan = Plan(
        records, [32, 16, 16, 32, 32, 32, 32, 32, 8], [weight(x) for x in (q, k, v, head)], max_rows=96
    )
    normed_plan = Plan(records[:5], [32, 16, 16, 32, 32], [weight(x) for x in (q, k, v)], max_rows=96)
    y = everywhere(lambda threads: run_rows(plan, texts_of(lengths, 1), threads))
    normed = run_rows(normed_plan, texts_of(lengths))
    parts = np.split(normed, np.cumsum(lengths)[:-1])
    sums = np.stack([pooled(part, kind) + part[-1] for part in parts])
    table = Plan(
        [("embed", (0,), (), (0,), {}), ("linear", (1,), (0,), (1,), {})],
        [32, 8],
        [weight(sums), weight(head)],
        max_rows=3,
    )
    assert same_bits(y, run_rows(table, [(None, [0, 1, 2], 0, 3)]))


# -- refused plans


@pytest.mark.parametrize("whole", ["attention", "pool"])
@pytest.mark.parametrize("keeping", ["attention", "conv", "scan"])
def test_a_plan_of_whole_texts_keeps_nothing(whole, keeping):
    records = [("embed", (0,), (), (0,), {})]
    small = {"heads": 2, "kv_heads": 2, "k_dim": 2, "v_dim": 2, "scale": 1.0, "window": 0, "softcap": 0.0}
    scan = {"layer": 3, "heads": 1, "groups": 1, "k_dim": 4, "v_dim": 4, "map": "grouped"}
    records.append({
        "attention": ("attention", (1,), (0, 0, 0), (), {**small, "layer": 3}),
        "conv": ("conv", (1,), (0,), (1,), {"layer": 3}),
        "scan": ("scan", (1,), (0, 0, 0, 0), (), scan),
    }[keeping])  # fmt: skip
    records.append({
        "attention": ("attention", (2,), (1, 1, 1), (), {**small, "layer": 0, "mask": "full"}),
        "pool": ("pool", (2,), (1,), (), {"kind": "mean"}),
    }[whole])  # fmt: skip
    weights = [weight(np.ones((8, 4))), weight(np.ones((4, 2)))]
    message = "a plan whose rows read later rows of their text keeps nothing between steps, but layer 3 does"
    with pytest.raises(PlanError, match=message):
        Plan(records, [4] * 3, weights, max_rows=4)
