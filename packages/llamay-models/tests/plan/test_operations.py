"""Each operation means what its formula says, row by row as for whole texts, and refuses what does not fit."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay_models.errors import PlanError
from llamay_models.plan import (
    ArrayTensor,
    Inputs,
    Memory,
    Reference,
    Rope,
    RowByRow,
    Rows,
    Trace,
    evaluate,
    inputs,
    memories,
    whole_text,
)

from ..architecture_names import DECODERS

TOKENS = [5, 2, 7, 7, 0, 3]


def Weight(name, *shape, values=None):
    """A weight of normal numbers, or of those that are given."""
    rng = np.random.default_rng([*name.encode(), *shape])
    return ArrayTensor(name, np.asarray(rng.normal(size=shape) if values is None else values, np.float32))


def table(width, name="table"):
    return Weight(name, 8, width)


def computed(build, rows=TOKENS, width=12):
    """Return x, what is built of it, and the trace of that."""
    g, t = Reference(rows), Trace()
    x = g.embed(table(width), 8, width)
    y = build(g, x)
    build(t, t.embed(table(width), 8, width))
    return x.array, (y if isinstance(y, tuple) else (y,)), t.program()


def result(build, rows=TOKENS, width=12):
    x, (y,), _ = computed(build, rows, width)
    return x, y.array


# -- one row as a whole text


@pytest.mark.parametrize("name", DECODERS)
def test_a_text_read_row_by_row_gives_what_it_gives_as_a_whole(small_model, name):
    model, tokens = small_model(name), [3, 14, 15, 9, 26, 5, 35, 8, 9, 7, 9, 3]
    text = RowByRow(model.trace())
    rows = np.array([text.read(token) for token in tokens])
    np.testing.assert_allclose(rows, model.reference(tokens), rtol=1e-9, atol=1e-9)


def test_a_row_by_row_text_takes_vectors_types_and_positions():
    def build(g):
        x = g.given(g.embed(table(12), 8, 12))
        x = g.add(x, g.embed_types(Weight("types", 3, 12), 3, 12))
        q = g.rope(x, 2, Rope(6, 100.0), axes=[0, 1, 0])
        return g.attention(0, q, q, x, heads=2, kv_heads=2, scale=0.4)

    vector, positions, types = np.arange(12.0), [[0, 0], [1, 5], [2, 1]], [0, 2, 1]
    rows = Rows([4, 0, 6], positions=positions, types=types, vectors={1: vector})
    whole = build(Reference(rows)).array
    g = Trace()
    build(g)
    text = RowByRow(g.program())
    one = [
        text.read(4, position=[0, 0]),
        text.read(vector=vector, position=[1, 5], type=2),
        text.read(6, position=[2, 1], type=1),
    ]
    np.testing.assert_allclose(one, whole, rtol=1e-12)
    assert inputs(g.program()) == Inputs(tokens=8, types=3, axes=2, vector=12)


def test_a_text_that_must_be_one_step_is_not_read_row_by_row(small_model):
    program = small_model("bert").trace()
    assert whole_text(program)
    assert not whole_text(small_model("llama").trace())
    with pytest.raises(PlanError, match="must be one step"):
        RowByRow(program)


# -- what they compute


@pytest.mark.parametrize(
    ("kind", "function"),
    [
        ("silu", lambda x: x / (1 + math.exp(-x))),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x))),
        ("tanh", math.tanh),
        ("relu", lambda x: max(x, 0.0)),
        ("relu2", lambda x: max(x, 0.0) ** 2),
        ("exp", math.exp),
        ("softplus", lambda x: math.log(1 + math.exp(x))),
        ("gelu_erf", lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2))),
        ("gelu_quick", lambda x: x / (1 + math.exp(-1.702 * x))),
        ("gelu_tanh", lambda x: x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))),
    ],
)
def test_unary_functions(kind, function):
    values = [-9.0, -1.5, -0.25, 0.0, 0.5, 1.0, 3.0, 19.0, 21.0]
    g = Reference([0])
    x = g.embed(Weight("x", values=[values]), 1, len(values))
    np.testing.assert_allclose(
        g.unary(x, kind).array[0], [function(v) for v in values], rtol=1e-10, atol=1e-15
    )


def test_unary_functions_of_large_numbers_stay_finite():
    g = Reference([0])
    x = g.embed(Weight("x", values=[[-1e4, 1e4]]), 1, 2)
    for kind in ("silu", "sigmoid", "tanh", "softplus", "gelu_erf", "gelu_quick", "gelu_tanh"):
        assert np.isfinite(g.unary(x, kind).array).all(), kind


def test_affine_by_number_by_part_and_as_a_whole():
    w, b = Weight("w", 12), Weight("b", 12)
    x, y = result(lambda g, x: g.affine(x, w, b))
    np.testing.assert_allclose(y, x * w.values + b.values)
    heads = Weight("heads", 3)
    x, y = result(lambda g, x: g.affine(x, heads, None, parts=3))
    np.testing.assert_allclose(y, x * np.repeat(heads.values, 4))
    x, y = result(lambda g, x: g.affine(x, None, Weight("one", values=[2.5]), parts=1))
    np.testing.assert_allclose(y, x + 2.5)


def test_mul_heads_multiplies_each_part_with_one_number():
    x, y = result(lambda g, x: g.mul_heads(x, g.columns(x, 0, 3)))
    np.testing.assert_allclose(y, x * np.repeat(x[:, :3], 4, axis=1))


def test_columns_and_concat_work_inside_each_head():
    x, y = result(lambda g, x: g.columns(x, 1, 2, heads=3))
    assert np.array_equal(y, x[:, [1, 2, 5, 6, 9, 10]])
    x, y = result(lambda g, x: g.concat(g.columns(x, 2, 2, heads=3), g.columns(x, 0, 2, heads=3), heads=3))
    assert np.array_equal(y, x[:, [2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9]])
    x, y = result(lambda g, x: g.concat(x, x))
    assert np.array_equal(y, np.concatenate([x, x], 1))


def test_rms_norm_in_groups_with_weights_of_their_own_and_without():
    def normed(x, eps=1e-5):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)

    own, shared = Weight("own", 12), Weight("shared", 4)
    x, y = result(lambda g, x: g.rms_norm(x, own, 1e-5, 3, own=True))
    parts = normed(x.reshape(-1, 3, 4)).reshape(x.shape)
    np.testing.assert_allclose(y, parts * own.values)
    _, y = result(lambda g, x: g.rms_norm(x, shared, 1e-5, 3))
    np.testing.assert_allclose(y, parts * np.tile(shared.values, 3))
    _, y = result(lambda g, x: g.rms_norm(x, None, 1e-5, 3))
    np.testing.assert_allclose(y, parts)
    _, y = result(lambda g, x: g.rms_norm(x, None, 1e-5))
    np.testing.assert_allclose(y, normed(x))


def test_groups_of_a_norm_are_recorded_only_where_the_weight_does_not_say_them():
    def attrs(build):
        return computed(build)[2].records[-1].attrs

    shared, own = Weight("shared", 4), Weight("own", 12)
    assert attrs(lambda g, x: g.rms_norm(x, shared, 1e-5, 3)) == {"eps": 1e-5}
    assert attrs(lambda g, x: g.rms_norm(x, None, 1e-5)) == {"eps": 1e-5}
    assert attrs(lambda g, x: g.rms_norm(x, own, 1e-5, 3, own=True)) == {"eps": 1e-5, "groups": 3}
    assert attrs(lambda g, x: g.rms_norm(x, None, 1e-5, 3)) == {"eps": 1e-5, "groups": 3}


def test_layer_norm_without_weights():
    x, y = result(lambda g, x: g.layer_norm(x, None, None, 1e-5))
    np.testing.assert_allclose(y, (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5))


def test_rope_leaves_what_lies_outside_its_dimensions():
    rope = Rope(4, 100.0, "pairs")
    x, y = result(lambda g, x: g.rope(x, 2, rope, offset=2))
    assert np.array_equal(y.reshape(-1, 2, 6)[:, :, :2], x.reshape(-1, 2, 6)[:, :, :2])
    inner = x.reshape(-1, 2, 6)[:, :, 2:]
    pairs = inner[..., 0::2] + 1j * inner[..., 1::2]
    turned = pairs * np.exp(1j * np.arange(len(x))[:, None, None] * rope.frequencies())
    np.testing.assert_allclose(y.reshape(-1, 2, 6)[:, :, 2::2], turned.real, atol=1e-12)
    np.testing.assert_allclose(y.reshape(-1, 2, 6)[:, :, 3::2], turned.imag, atol=1e-12)


def test_rope_by_several_axes_turns_each_pair_by_its_own():
    rope, axes = Rope(6, 100.0), [0, 1, 2]
    positions = np.array([[0, 0, 0], [3, 1, 2], [3, 2, 0], [4, 4, 4], [5, 5, 5], [6, 6, 6]])
    x, y = result(lambda g, x: g.rope(x, 2, rope, axes=axes), Rows(TOKENS, positions=positions))
    for axis in range(3):
        _, one = result(lambda g, x: g.rope(x, 2, rope), Rows(TOKENS, positions=positions[:, axis]))
        pair = [axis, axis + 3, axis + 6, axis + 9]
        np.testing.assert_allclose(y[:, pair], one[:, pair])
    _, text = result(lambda g, x: g.rope(x, 2, rope, axes=axes))
    _, plain = result(lambda g, x: g.rope(x, 2, rope))
    assert np.array_equal(text, plain)
    assert np.array_equal(result(lambda g, x: g.rope(x, 2, None))[1], x)


def test_attention_over_a_whole_text_sees_rows_after_its_own():
    def build(g, x, mask="full"):
        return g.attention(0, x, x, x, heads=3, kv_heads=3, scale=0.5, mask=mask)

    rows = Rows(TOKENS, texts=[4, 2])
    x, y = result(build, rows)
    for span in (slice(0, 4), slice(4, 6)):
        part = x[span].reshape(-1, 3, 4)
        for head in range(3):
            score = part[:, head] @ part[:, head].T * 0.5
            share = np.exp(score) / np.exp(score).sum(1, keepdims=True)
            np.testing.assert_allclose(y[span].reshape(-1, 3, 4)[:, head], share @ part[:, head])
    _, causal = result(lambda g, x: build(g, x, "causal"), rows)
    np.testing.assert_allclose(causal[[3, 5]], y[[3, 5]])
    assert not np.allclose(causal[0], y[0])


def test_attention_over_latent_rows_takes_its_values_from_the_keys():
    def latent(g, x):
        return g.attention(0, x, g.columns(x, 0, 6), None, heads=2, kv_heads=1, scale=0.5, v_from_k=4)

    def plain(g, x):
        k, v = g.columns(x, 0, 6), g.columns(x, 0, 4)
        return g.attention(0, x, k, v, heads=2, kv_heads=1, scale=0.5)

    assert np.array_equal(result(latent)[1], result(plain)[1])
    assert memories(computed(latent)[2]) == [Memory("latent", 0, 1, 6, 0)]
    assert memories(computed(plain)[2]) == [Memory("full", 0, 1, 6, 4)]


def test_conv_is_a_causal_convolution_of_each_channel_by_itself():
    w, b = Weight("w", 12, 4), Weight("b", 12)
    x, y = result(lambda g, x: g.conv(0, x, w, 4, b), Rows(TOKENS, texts=[5, 1]))
    for channel in range(12):
        taps = w.values[channel, ::-1].astype(float)
        expected = np.convolve(x[:5, channel], taps)[:5] + b.values[channel]
        np.testing.assert_allclose(y[:5, channel], expected, atol=1e-12)
    np.testing.assert_allclose(y[5], x[5] * w.values[:, -1] + b.values)


def scanned(parts, groups, mapped, w_each, update):
    """The definition, number by number."""
    heads, k_dim, v_dim = 4, 3, 2
    r, w, k, v, a, b = parts
    rows = len(r)
    state, out = np.zeros((heads, v_dim, k_dim)), np.zeros((rows, heads, v_dim))
    for t in range(rows):
        for h in range(heads):
            of = h // (heads // groups) if mapped == "grouped" else h % groups
            before = state[h].copy()
            for i in range(v_dim):
                along = sum(before[i, j] * a[t][h * k_dim + j] for j in range(k_dim)) if update else 0.0
                for j in range(k_dim):
                    decay = w[t][h * k_dim + j] if w_each else w[t][h]
                    state[h, i, j] = before[i, j] * decay + v[t][h * v_dim + i] * k[t][of * k_dim + j]
                    state[h, i, j] += along * b[t][h * k_dim + j]
                out[t, h, i] = sum(state[h, i, j] * r[t][of * k_dim + j] for j in range(k_dim))
    return out.reshape(rows, -1)


@pytest.mark.parametrize("update", [False, True])
@pytest.mark.parametrize("w_each", [False, True])
@pytest.mark.parametrize(("groups", "mapped"), [(4, "grouped"), (2, "grouped"), (2, "tiled"), (1, "tiled")])
def test_scan_is_its_definition_number_by_number(groups, mapped, w_each, update):
    widths = [groups * 3, 12 if w_each else 4, groups * 3, 8, 12, 12]

    def parts(g, x):
        return [g.columns(x, sum(widths[:i]), width) for i, width in enumerate(widths)]

    def build(g, x):
        r, w, k, v, a, b = parts(g, x)
        extra = (a, b) if update else ()
        return g.scan(0, r, g.unary(w, "sigmoid"), k, v, *extra, heads=4, groups=groups, map=mapped)

    x, y = result(build, width=sum(widths))
    cut = np.split(x, np.cumsum(widths)[:-1], axis=1)
    cut[1] = 1 / (1 + np.exp(-cut[1]))
    np.testing.assert_allclose(y, scanned(cut, groups, mapped, w_each, update), rtol=1e-10, atol=1e-12)


def test_scan_with_an_update_is_the_gated_delta_rule():
    """Yang et al. 2024: `S = g S (I - beta k k^T) + beta v k^T`, with keys of length 1, is `a = -g k`, `b = beta k`."""

    def build(g, x):
        k = g.rms_norm(g.columns(x, 0, 3), None, 0.0)
        k = g.scale(k, 1 / math.sqrt(3))
        decay, beta = (g.unary(g.columns(x, i, 1), "sigmoid") for i in (3, 4))
        v = g.columns(x, 5, 2)
        a = g.scale(g.mul_heads(k, decay), -1.0)
        return g.scan(0, k, decay, k, g.mul_heads(v, beta), a, g.mul_heads(k, beta), heads=1)

    x, y = result(build)
    state = np.zeros((2, 3))
    for row, out in zip(x, y, strict=True):
        k = row[:3] / np.linalg.norm(row[:3])
        decay, beta = 1 / (1 + np.exp(-row[3:5]))
        state = decay * state @ (np.eye(3) - beta * np.outer(k, k)) + beta * np.outer(row[5:7], k)
        np.testing.assert_allclose(out, state @ k, atol=1e-12)


def test_what_is_kept_of_a_layer():
    def build(g, x):
        x = g.conv(3, x, Weight("w", 12, 4), 4)
        return g.scan(3, x, x, x, x, heads=4, groups=4)

    program = computed(build)[2]
    assert memories(program) == [
        Memory("state", 3, k_dim=36, v_dim=0),
        Memory("state", 3, k_dim=0, v_dim=4 * 3 * 3),
    ]


# -- experts


def routed(logits, k, bias=None, **how):
    g = Reference([0])
    x = g.embed(Weight("x", values=[logits]), 1, len(logits))
    bias = None if bias is None else Weight("bias", values=bias)
    ids, weights = g.route(x, k, bias, **how)
    return ids.array[0].astype(int).tolist(), weights.array[0]


def test_experts_are_chosen_by_softmax_and_weighed_by_their_share():
    logits = np.array([1.0, 3.0, 0.0, 2.0])
    share = np.exp(logits) / np.exp(logits).sum()
    ids, weights = routed(logits, 2, norm=False)
    assert ids == [1, 3]
    np.testing.assert_allclose(weights, share[ids])
    _, weights = routed(logits, 2, norm=True, scale=2.5)
    np.testing.assert_allclose(weights, 2.5 * share[ids] / share[ids].sum())
    ids, chosen = routed(logits, 2, kind="softmax_chosen", norm=False)
    np.testing.assert_allclose(chosen, np.exp([3.0, 2.0]) / np.exp([3.0, 2.0]).sum())


def test_a_bias_chooses_and_does_not_weigh():
    ids, weights = routed([0.0, 1.0, -1.0], 2, [0.0, -9.0, 0.5], kind="sigmoid", norm=False)
    assert ids == [2, 0]
    np.testing.assert_allclose(weights, [1 / (1 + math.e), 0.5])
    _, weights = routed([4.0], 1, kind="sqrt_softplus", norm=False)
    assert weights[0] == pytest.approx(math.sqrt(math.log(1 + math.exp(4.0))))


def test_of_equals_the_lower_number_comes_first():
    assert routed([1.0, 2.0, 2.0, 1.0, 2.0], 4)[0] == [1, 2, 4, 0]


def test_groups_are_chosen_by_their_two_best():
    #            group 0         group 1         group 2
    logits = [5.0, -9.0, -9.0, 3.0, 3.0, -9.0, 4.0, 1.5, 1.0]
    how = {"kind": "softmax_chosen", "norm": False, "groups": 3}
    assert routed(logits, 3, groups_used=1, **how)[0] == [3, 4, 5]
    assert routed(logits, 3, groups_used=2, **how)[0] == [6, 3, 4]
    assert routed(logits, 3, groups_used=3, **how)[0] == [0, 6, 3]
    single = {**how, "groups": 3, "groups_used": 2}
    assert routed([1.0, 3.0, 2.0], 2, **single)[0] == [1, 2]  # a group of one has no second


def test_weights_that_are_all_tiny_are_not_blown_up():
    _, weights = routed([-30.0, -31.0], 1, kind="sigmoid")
    assert weights[0] == pytest.approx(1 / (1 + math.exp(30)) / 2**-14)


@pytest.mark.parametrize("gated", [True, False])
def test_experts_are_the_weighted_sum_of_what_the_chosen_make_of_a_row(gated):
    gate, up, down = (Weight(n, *s) for n, s in (("g", (5, 7, 12)), ("u", (5, 7, 12)), ("d", (5, 12, 7))))

    def build(g, x):
        ids, weights = g.route(g.columns(x, 0, 5), 2)
        made = g.experts(x, ids, weights, gate if gated else None, up, down, experts=5, hidden=7, act="relu2")
        return made, ids, weights

    x, (made, ids, weights), program = computed(build)
    for row in range(len(x)):
        total = np.zeros(12)
        for e, weight in zip(ids.array[row].astype(int), weights.array[row], strict=True):
            hidden = up.values[e] @ x[row]
            acted = np.maximum(gate.values[e] @ x[row] if gated else hidden, 0) ** 2
            total += weight * (down.values[e] @ (acted * hidden if gated else acted))
        np.testing.assert_allclose(made.array[row], total, rtol=1e-5)
    assert [program.tensors[w].rows for w in program.records[-1].weights] == [35, 35, 60][1 - gated :]


# -- rows


@pytest.mark.parametrize("kind", ["mean", "cls", "last"])
def test_a_text_is_pooled_in_place_of_the_rows_that_want_an_output(kind):
    x, y = result(lambda g, x: g.pool(x, kind), Rows(TOKENS, wanted=[5, 1, 3], texts=[4, 2]))
    one = {"mean": lambda t: t.mean(0), "cls": lambda t: t[0], "last": lambda t: t[-1]}[kind]
    np.testing.assert_allclose(y, [one(x[4:]), one(x[:4]), one(x[:4])])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"texts": [2, 2]}, "texts of [2, 2] rows do not make up 6 rows"),
        ({"types": [0]}, "there are 1 types for 6 rows"),
        ({"positions": np.zeros((5, 2), int)}, "there are 5 positions for 6 rows"),
        ({"wanted": [6]}, "each row that wanted names must be a whole number from 0 to 5, not 6"),
        (
            {"vectors": {-1: np.zeros(3)}},
            "each row that vectors names must be a whole number from 0 to 5, not -1",
        ),
    ],
)
def test_rows_that_do_not_fit_each_other_are_refused(how, message):
    with pytest.raises(PlanError, match=re.escape(message)):
        Rows(TOKENS, **how)


def test_a_position_has_the_axes_that_are_asked_for():
    rope = Rope(6, 100.0)
    with pytest.raises(PlanError, match="positions have 2 axes; there is no axis 2"):
        result(lambda g, x: g.rope(x, 2, rope, axes=[0, 1, 2]), Rows(TOKENS, positions=np.zeros((6, 2), int)))


# -- what does not fit


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda g, x: g.unary(x, "swish"), "unary: kind must be one of silu, "),
        (lambda g, x: g.softcap(x, 0.0), "softcap: cap must be a finite number above 0, not 0.0"),
        (
            lambda g, x: g.affine(x, Weight("w", 12), parts=5),
            "affine: table has 12 values, which do not divide",
        ),
        (
            lambda g, x: g.affine(x, Weight("w", 4)),
            "affine: w is a vector of 4 but a vector of 12 is needed here",
        ),
        (lambda g, x: g.affine(x, None, None), "affine has 0 weights, but it takes: w or b, b?"),
        (
            lambda g, x: g.mul_heads(x, g.columns(x, 0, 5)),
            "mul_heads: table has 12 values, which do not divide into 5",
        ),
        (lambda g, x: g.columns(x, 3, 2, heads=3), "columns: 2 values from 3 on, but a head of table has 4"),
        (
            lambda g, x: g.columns(x, 0, 1, heads=5),
            "columns: table has 12 values, which do not divide into 5 heads",
        ),
        (
            lambda g, x: g.concat(x, g.columns(x, 0, 5), 3),
            "table.0 has 5 values, which do not divide into 3 heads",
        ),
        (
            lambda g, x: g.rope(x, 3, Rope(4, 9.0), offset=2),
            "rope: rotates 4 dimensions from 2 on but a head of table",
        ),
        (lambda g, x: g.rope(x, 3, Rope(4, 9.0), axes=[1]), "rope: axes has 1 entries for 2 pairs"),
        (
            lambda g, x: g.attention(0, x, x, x, heads=1, kv_heads=1, scale=1.0, mask="full", window=3),
            "attention: a row that sees its whole text has no window, but window is 3",
        ),
        (
            lambda g, x: g.attention(0, x, x, None, heads=1, kv_heads=1, scale=1.0, mask="full", v_from_k=3),
            "attention: a row that sees its whole text has no v_from_k, but v_from_k is 3",
        ),
        (
            lambda g, x: g.attention(0, x, x, x, heads=1, kv_heads=1, scale=1.0, v_from_k=3),
            "attention: values come either as v or as the first v_from_k numbers of the keys",
        ),
        (
            lambda g, x: g.attention(0, x, x, None, heads=1, kv_heads=1, scale=1.0, v_from_k=13),
            "attention: 13 values cannot be the first 13 of 12 numbers of a key",
        ),
        (lambda g, x: g.conv(0, x, Weight("w", 12, 4), 3), "conv: w is 12 x 4 but 12 x 3 is needed here"),
        (lambda g, x: g.conv(0, x, Weight("w", 12, 1), 1), "conv: a convolution of 1 taps keeps nothing"),
        (lambda g, x: g.scan(0, x, x, x, x, heads=3, groups=2), "scan: 3 heads do not divide among 2 groups"),
        (lambda g, x: g.scan(0, x, x, x, x, x, heads=3), "scan: a and b come together or not at all"),
        (
            lambda g, x: g.scan(0, x, g.columns(x, 0, 5), x, x, heads=3),
            "scan: table.0 has 5 values but heads * k_dim is 12",
        ),
        (lambda g, x: g.route(x, 13), "route: 13 experts cannot be chosen from the 12 of table"),
        (
            lambda g, x: g.route(x, 5, groups=3, groups_used=1),
            "route: 5 experts cannot be chosen from the 12 of table",
        ),
        (lambda g, x: g.route(x, 1, groups=3, groups_used=4), "route: 4 of 3 groups cannot be used"),
        (
            lambda g, x: g.experts(
                x, *g.route(x, 2), None, Weight("up", 3, 7, 12), Weight("down", 4, 12, 7), experts=4, hidden=7
            ),
            "experts: up is 21 x 12 but 4 of 7 x 12 is needed here",
        ),
        (lambda g, x: g.pool(x, "max"), "pool: kind must be one of mean, cls, last, not 'max'"),
        (
            lambda g, x: g.layer_norm(x, None, Weight("b", 12), 1e-5),
            "layer_norm: table has a bias, b, but no weight",
        ),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_traced(build, message):
    g = Trace()
    x = g.embed(table(12), 8, 12)
    with pytest.raises(PlanError, match=re.escape(message)):
        build(g, x)


@pytest.mark.parametrize("shape", [(12,), (12, 1), (1, 12), (3, 4), (1, 12, 1)])
def test_a_vector_may_come_with_dimensions_that_do_not_count(shape):
    w = Weight("w", *shape)
    x, y = result(lambda g, x: g.affine(x, w))
    np.testing.assert_allclose(y, x * w.values.reshape(-1))


# -- any wiring


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_wiring_reads_the_same_row_by_row(data):
    g, values = Trace(), []
    values.append(g.given(g.embed(table(12), 8, 12)))
    for i in range(data.draw(st.integers(1, 12))):
        x, y = (values[data.draw(st.integers(0, len(values) - 1))] for _ in range(2))
        op = data.draw(st.sampled_from(sorted(STEPS)))
        values.append(g.rms_norm(STEPS[op](g, i, x, y), None, 1e-5))
    program = g.program()
    tokens = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=7))
    text = RowByRow(program)
    rows = np.array([text.read(token) for token in tokens])
    np.testing.assert_allclose(rows, evaluate(program, tokens), rtol=1e-9, atol=1e-9)


STEPS = {
    "linear": lambda g, i, x, y: g.linear(x, Weight(f"l{i}", 12, 12), 12),
    "add": lambda g, i, x, y: g.add(x, y),
    "affine": lambda g, i, x, y: g.affine(x, Weight(f"w{i}", 3), Weight(f"b{i}", 3), parts=3),
    "unary": lambda g, i, x, y: g.unary(x, "gelu_erf"),
    "heads": lambda g, i, x, y: g.mul_heads(x, g.columns(y, 1, 1, heads=4)),
    "halves": lambda g, i, x, y: g.concat(g.columns(x, 0, 2, 3), g.columns(y, 2, 2, 3), 3),
    "rope": lambda g, i, x, y: g.rope(x, 3, Rope(2, 50.0), offset=1),
    "attention": lambda g, i, x, y: g.attention(2 * i, x, y, y, heads=3, kv_heads=3, scale=0.5),
    "window": lambda g, i, x, y: g.attention(2 * i, x, y, x, heads=3, kv_heads=3, scale=0.5, window=2),
    "latent": lambda g, i, x, y: g.linear(
        g.attention(2 * i, x, y, None, heads=1, kv_heads=1, scale=0.5, v_from_k=8), Weight(f"o{i}", 12, 8), 12
    ),
    "conv": lambda g, i, x, y: g.conv(2 * i + 1, x, Weight(f"c{i}", 12, 3), 3),
    "scan": lambda g, i, x, y: g.scan(
        2 * i, x, g.unary(y, "sigmoid"), y, x, g.scale(y, -0.1), x, heads=4, groups=4
    ),
    "experts": lambda g, i, x, y: g.experts(
        x,
        *g.route(g.columns(y, 0, 4), 2, kind="sigmoid"),
        Weight(f"g{i}", 4, 5, 12),
        Weight(f"u{i}", 4, 5, 12),
        Weight(f"d{i}", 4, 12, 5),
        experts=4,
        hidden=5,
    ),
}
