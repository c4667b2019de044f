"""Attention over latent groups through plans: pages hold keys only, whose first numbers are the values."""

import numpy as np
import pytest
from kernel_sets import POOLS, everywhere, values
from pages import F16, F32, FULL, LATENT, Q8, VQ8, Context, GroupSpec, LayerSpec, rounded
from plans import run_rows, same_bits, weight

from llamay_kernels import Plan, PlanError

PRECISIONS = {"f32": F32, "f16": F16, "vq8": VQ8, "q8": Q8}
ROWS = 130


class Latent:
    def __init__(self, heads, kv_heads, k_dim, v_dim, layers=(2,)):
        self.attrs = {
            "heads": heads, "kv_heads": kv_heads, "k_dim": k_dim, "v_dim": v_dim, "v_from_k": v_dim,
            "scale": k_dim**-0.5, "window": 0, "softcap": 0.0,
        }  # fmt: skip
        self.q, self.k = values(1, ROWS, heads * k_dim, 0), values(2, ROWS, kv_heads * k_dim, 0)
        records = [("embed", (0,), (), (0,), {}), ("embed", (1,), (), (1,), {})]
        widths = [heads * k_dim, kv_heads * k_dim]
        for layer in layers:
            records.append(("attention", (len(widths),), (0, 1), (), {**self.attrs, "layer": layer}))
            widths.append(heads * v_dim)
        self.plan = Plan(records, widths, [weight(self.q), weight(self.k)], max_rows=ROWS)
        self.groups = (GroupSpec(tuple(LayerSpec(layer, kv_heads, k_dim, 0) for layer in layers), LATENT),)

    def wanted(self, dtype):
        a = self.attrs
        kv_heads, k_dim = a["kv_heads"], a["k_dim"]
        keys = rounded(self.k.reshape(ROWS, kv_heads, k_dim), dtype, value=False).astype(np.float64)
        keys = np.repeat(keys, a["heads"] // kv_heads, axis=1)
        q = self.q.reshape(ROWS, a["heads"], k_dim).astype(np.float64)
        s = np.einsum("ihd,jhd->hij", q, keys) * a["scale"]
        s = np.where(np.tril(np.ones((ROWS, ROWS), bool)), s, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        return np.einsum("hij,jhd->ihd", p / p.sum(-1, keepdims=True), keys[:, :, : a["v_dim"]]).reshape(
            ROWS, -1
        )


SHAPES = [(16, 1, 72, 64), (4, 1, 40, 32), (6, 2, 19, 13), (1, 1, 5, 5), (50, 1, 24, 1)]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_prefill_is_decode_and_both_are_attention(shape, precision):
    model, dtype = Latent(*shape), PRECISIONS[precision]
    tokens = list(range(ROWS))

    def prefill(threads):
        context = Context(model.groups, capacity=ROWS, dtype=dtype).reserve(ROWS)
        return run_rows(model.plan, [(context, tokens, 0, ROWS)], threads)

    together = everywhere(prefill)
    assert np.abs(together - model.wanted(dtype)).max() < 3e-6
    for n_threads, threads in POOLS.items():
        for most in (1, 50):
            rng = np.random.default_rng(most)
            context, at = (
                Context(model.groups, capacity=ROWS, dtype=dtype, page_tokens=16 if n_threads == 1 else 64),
                0,
            )
            while at < ROWS:
                n = min(ROWS - at, int(rng.integers(1, most + 1)))
                y = run_rows(model.plan, [(context.reserve(n), tokens[at : at + n], at, n)], threads)
                assert same_bits(y, together[at : at + n])
                context.commit(n)
                at += n


def test_forks_share_their_first_pages():
    model = Latent(16, 1, 40, 32)
    parent = Context(model.groups, capacity=144, dtype=F16, page_tokens=16, spare=20)
    run_rows(model.plan, [(parent.reserve(130), list(range(130)), 0, 1)], POOLS[3])
    parent.commit(130)
    children = [parent.fork() for _ in range(3)]
    tokens = [[1, 2], [3, 4], [5, 6]]
    alone = [
        run_rows(model.plan, [(c.fork().reserve(2), t, 130, 2)])
        for c, t in zip(children, tokens, strict=True)
    ]
    texts = [(c.reserve(2), t, 130, 2) for c, t in zip(children, tokens, strict=True)]
    for threads in POOLS.values():
        assert same_bits(run_rows(model.plan, texts, threads), np.concatenate(alone))


MODEL = Latent(4, 1, 8, 6)


def refuse(groups, message, dtype=F32, plan=MODEL.plan):
    context = Context(groups, dtype=dtype).reserve(3)
    before = context.arenas[0].copy()
    with pytest.raises(ValueError, match=message):
        run_rows(plan, [(context, [0, 1, 2], 0, 3)])
    assert (context.arenas[0] == before).all()


def test_groups_that_do_not_fit_are_refused():
    layer = LayerSpec(2, 1, 8, 0)
    refuse(
        (GroupSpec((layer,), FULL),), r"layer 2: the plan keeps keys only, but its group is not latent \(2\)"
    )
    refuse(
        (GroupSpec((LayerSpec(2, 1, 8, 6),), LATENT),),
        "layer 2: it holds 1 heads of 8 and 6 but the plan has 1 heads of 8 and 0",
    )
    refuse(
        (GroupSpec((LayerSpec(2, 1, 9, 0),), LATENT),),
        "layer 2: it holds 1 heads of 9 and 0 but the plan has",
    )
    refuse(
        (GroupSpec((LayerSpec(2, 2, 8, 0),), LATENT),),
        "layer 2: it holds 2 heads of 8 and 0 but the plan has",
    )


# -- plans that cannot be

Q, K, V = (values(i, 5, width, 0) for i, width in enumerate((32, 8, 6)))
SHAPE = {**MODEL.attrs, "layer": 0}
PLAIN = {name: value for name, value in SHAPE.items() if name != "v_from_k"}
REFUSED = [
    (
        (0, 1),
        PLAIN,
        "takes q, k and v, or q and k where v_from_k says how many numbers of a key are its value",
    ),
    ((0, 1, 2), SHAPE, "takes q, k and v, or q and k where v_from_k says"),
    ((0, 1), {**SHAPE, "v_from_k": 5}, "v_from_k is 5 but v_dim is 6 and a key has 8 numbers"),
    ((0, 1), {**SHAPE, "v_from_k": 9, "v_dim": 9}, "v_from_k is 9 but v_dim is 9 and a key has 8 numbers"),
    ((0, 1), {**SHAPE, "window": 4}, "with v_from_k there is no window"),
    ((0, 1), {**SHAPE, "mask": "full"}, 'with the mask "full" there is neither a window nor v_from_k'),
    (
        (0, 1, 2),
        {**PLAIN, "mask": "full", "window": 4},
        'with the mask "full" there is neither a window nor v_from_k',
    ),
    ((0, 1, 2), {**PLAIN, "mask": "prefix"}, 'mask must be one of "causal", "full", not "prefix"'),
    ((0, 1, 2), {**PLAIN, "softcap": -1.0}, "softcap must not be negative; 0 is none"),
    ((0, 1, 1), PLAIN, r"value 1 has width 8 but kv_heads \* v_dim is 6"),
    ((0, 0, 2), PLAIN, r"value 0 has width 32 but kv_heads \* k_dim is 8"),
    ((0,), PLAIN, "takes 2 to 3 args, not 1"),
]


@pytest.mark.parametrize(("args", "attrs", "message"), REFUSED, ids=[x[2] for x in REFUSED])
def test_attentions_that_cannot_be(args, attrs, message):
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [("attention", (3,), args, (), attrs)]
    with pytest.raises(PlanError, match=rf"record 3 \(attention\): {message}"):
        Plan(records, [32, 8, 6, 24], [weight(x) for x in (Q, K, V)], max_rows=4)


def test_the_output_of_attention_has_a_width():
    records = [("embed", (i,), (), (i,), {}) for i in range(3)] + [("attention", (3,), (0, 1, 2), (), PLAIN)]
    with pytest.raises(PlanError, match=r"value 3 has width 23 but heads \* v_dim is 24"):
        Plan(records, [32, 8, 6, 23], [weight(x) for x in (Q, K, V)], max_rows=4)
    causal = [*records[:3], ("attention", (3,), (0, 1, 2), (), {**PLAIN, "mask": "causal"})]
    assert not Plan(causal, [32, 8, 6, 24], [weight(x) for x in (Q, K, V)], max_rows=4).whole_texts
