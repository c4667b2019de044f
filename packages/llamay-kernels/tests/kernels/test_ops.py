"""Every operation against a slow reference in float64, and every kernel set against the portable one, to the bit."""

import ctypes
import platform
import sys

import numpy as np
import plans
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import on_every_set, sweep, ulps, values
from plans import evaluate, same_bits

import llamay_kernels as lk
from llamay_kernels import _kernels

# -- elementary functions


def test_exp_is_within_two_ulp_and_equal_in_every_set():
    x = sweep(-104.0, 88.72)
    y = on_every_set(lambda: _kernels.elementary("exp", x))
    assert ulps(y, np.exp(x.astype(np.float64))).max() < 2


def test_exp_at_its_ends():
    x = np.array([0.0, -0.0, -103.9, -104.1, -1e30, 88.74, 1e30, -np.inf, np.inf, np.nan], np.float32)
    y = on_every_set(lambda: _kernels.elementary("exp", x))
    assert y[:2].tolist() == [1.0, 1.0]
    assert 0 < y[2] < 1e-44
    assert y[3:5].tolist() == [0.0, 0.0]
    assert not np.signbit(y[3:5]).any()
    assert y[5:9].tolist() == [np.inf, np.inf, 0.0, np.inf]
    assert np.isnan(y[9])


def test_tanh_is_within_two_ulp_odd_and_equal_in_every_set():
    x = sweep(-20.0, 20.0)
    y = on_every_set(lambda: _kernels.elementary("tanh", x))
    assert ulps(y, np.tanh(x.astype(np.float64))).max() < 2
    assert same_bits(_kernels.elementary("tanh", -x), -y)
    ends = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30], np.float32)
    assert same_bits(_kernels.elementary("tanh", ends), np.array([1, -1, np.nan, 0.0, -0.0, 1], np.float32))


@pytest.mark.parametrize("largest", [3.0, 1e3, 1e6, 1e9])
def test_sines_and_cosines_are_exact_far_beyond_float32(largest):
    x = np.random.default_rng(0).uniform(-largest, largest, 200_000)
    y = _kernels.sincos(x)
    assert np.abs(y[:, 0] - np.sin(x)).max() < 4e-16
    assert np.abs(y[:, 1] - np.cos(x)).max() < 4e-16
    assert same_bits(_kernels.sincos(np.zeros(1)).astype(np.float32), np.array([[0.0, 1.0]], np.float32))


# -- operations against their meaning


def silu(x):
    return x / (1 + np.exp(-x))


UNARY = {
    "unary": ({"kind": "silu"}, silu),
    "softcap": ({"cap": 30.0}, lambda x: 30 * np.tanh(x / 30)),
    "scale": ({"by": 0.37}, lambda x: x * np.float64(np.float32(0.37))),
}
BINARY = {"add": np.add, "mul": np.multiply}
WIDTHS = st.integers(1, 70)
SEEDS = st.integers(0, 2**31)


@pytest.mark.parametrize("op", UNARY)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 9), width=WIDTHS, hostile=st.sampled_from([0.0, 0.2]))
def test_functions_of_one_value(op, seed, rows, width, hostile):
    attrs, exact = UNARY[op]
    x = values(seed, rows, width, hostile, 4.0)
    y = on_every_set(lambda: evaluate(op, [x], attrs))
    if not hostile:
        wanted = exact(x.astype(np.float64))
        assert np.abs(y - wanted).max() <= 4e-7 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("op", BINARY)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 9), width=WIDTHS)
def test_functions_of_two_values_are_rounded_once(op, seed, rows, width):
    a, b = values(seed, rows, width, 0.2), values(seed + 1, rows, width, 0.2)
    with np.errstate(all="ignore"):
        assert same_bits(on_every_set(lambda: evaluate(op, [a, b])), BINARY[op](a, b))


def rms_norm(x, w, eps):
    x = x.reshape(len(x), -1, len(w)).astype(np.float64)
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w).reshape(len(x), -1)


@settings(max_examples=30, deadline=None)
@given(
    seed=SEEDS,
    rows=st.integers(1, 9),
    groups=st.integers(1, 4),
    width=WIDTHS,
    hostile=st.sampled_from([0.0, 0.05]),
)
def test_rms_norm(seed, rows, groups, width, hostile):
    x, w = values(seed, rows, groups * width, hostile), values(seed + 1, 1, width, 0)[0]
    y = on_every_set(lambda: evaluate("rms_norm", [x], {"eps": 1e-6}, [w]))
    if not hostile:
        wanted = rms_norm(x, w, 1e-6)
        assert np.abs(y - wanted).max() <= 5e-7 * np.abs(wanted).max()


def layer_norm(x, w, b, eps):
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * w + b


@settings(max_examples=30, deadline=None)
@given(
    seed=SEEDS,
    rows=st.integers(1, 9),
    width=st.integers(2, 70),
    offset=st.sampled_from([0.0, 10.0]),
    hostile=st.sampled_from([0.0, 0.05]),
    select=st.booleans(),
)
def test_layer_norm(seed, rows, width, offset, hostile, select):
    x = values(seed, rows, width, hostile) + np.float32(offset)
    w, b = values(seed + 1, 2, width, 0)
    eps = {"eps": 1e-5}
    y = on_every_set(lambda: evaluate("layer_norm", [x], eps, [w, b], select=select))
    assert same_bits(evaluate("layer_norm", [x], eps, [w]) + b, y)
    if not hostile:
        wanted = layer_norm(x, w, b, 1e-5)
        spread = x.astype(np.float64).std(-1, keepdims=True)
        # The mean is rounded once more than the values, which shows where they lie close together far from 0.
        allowed = 2e-6 * (1 + (np.abs(x).max() + 1e-30) / spread) * np.abs(w).max()
        assert (np.abs(y - wanted) <= allowed).all()


def test_layer_norm_of_equal_values_is_the_bias():
    x, w, b = np.full((2, 33), 0.75, np.float32), *values(3, 2, 33, 0)
    y = on_every_set(lambda: evaluate("layer_norm", [x], {"eps": 1e-5}, [w, b]))
    assert np.array_equal(y, np.stack([b, b]))


def test_learned_positions_are_looked_up_by_position_not_by_token():
    table = values(0, 7, 20, 0)
    plan = lk.Plan([("embed_positions", (0,), (), (0,), {})], [20], [plans.weight(table)], max_rows=3)
    out = np.zeros((3, 20), np.float32)
    tokens, rows = np.array([900, 901, 902], np.int32), np.arange(3, dtype=np.int32)
    plan.run(tokens, np.array([6, 0, 3], np.int32), [], [], rows, out, plans.ONE)
    assert same_bits(out, table[[6, 0, 3]])
    with pytest.raises(ValueError, match=r"positions\[1\] is 7; the model has 7"):
        plan.run(tokens, np.array([6, 7, 3], np.int32), [], [], rows, out, plans.ONE)


def rope(x, positions, head_dim, style, freqs, factor):
    x = x.reshape(len(x), -1, head_dim).astype(np.float64)
    n = len(freqs)
    y = x.copy()
    first, second = (
        (slice(0, n), slice(n, 2 * n)) if style == "half" else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
    )
    angle = np.asarray(positions)[:, None, None] * freqs
    c, s = np.cos(angle) * factor, np.sin(angle) * factor
    y[..., first] = x[..., first] * c - x[..., second] * s
    y[..., second] = x[..., second] * c + x[..., first] * s
    return y.reshape(len(x), -1)


@pytest.mark.parametrize("style", ["half", "pairs"])
@settings(max_examples=25, deadline=None)
@given(
    seed=SEEDS,
    rows=st.integers(1, 9),
    heads=st.integers(1, 3),
    pairs=st.integers(1, 40),
    rest=st.integers(0, 9),
    select=st.booleans(),
)
def test_rope(style, seed, rows, heads, pairs, rest, select):
    rng = np.random.default_rng(seed)
    head_dim = 2 * pairs + rest
    freqs = 10000.0 ** (-np.arange(pairs) / pairs)
    positions = rng.integers(0, 100_000, rows)
    x = values(seed, rows, heads * head_dim, 0)
    attrs = {"head_dim": head_dim, "style": style, "freqs": freqs, "factor": 1.25}
    y = on_every_set(lambda: evaluate("rope", [x], attrs, positions=positions, select=select))
    assert np.abs(y - rope(x, positions, head_dim, style, freqs, 1.25)).max() < 1e-6 * np.abs(x).max() * 4
    kept = x.reshape(rows, heads, head_dim)[..., 2 * pairs :]
    assert same_bits(y.reshape(rows, heads, head_dim)[..., 2 * pairs :], kept)


def test_rope_at_position_zero_changes_nothing():
    x = values(0, 3, 32, 0)
    attrs = {"head_dim": 16, "style": "half", "freqs": np.ones(8), "factor": 1.0}
    assert same_bits(evaluate("rope", [x], attrs, positions=[0, 0, 0]), x)


# -- fused operations are the same bits as their parts


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 9), width=WIDTHS)
def test_fused_norms_equal_their_parts(seed, rows, width):
    a, b, w = (values(seed + i, rows if i < 2 else 1, width, 0.02) for i in range(3))
    eps = {"eps": 1e-5}
    total = evaluate("add", [a, b])
    norm = evaluate("rms_norm", [total], eps, [w])
    assert same_bits(evaluate("add_rms_norm", [a, b], eps, [w], [width, width], out=0), total)
    assert same_bits(evaluate("add_rms_norm", [a, b], eps, [w], [width, width], out=1), norm)
    post = evaluate("add", [a, evaluate("rms_norm", [b], eps, [w])])
    assert same_bits(evaluate("rms_norm_add", [a, b], eps, [w]), post)


@settings(max_examples=15, deadline=None)
@given(
    seed=SEEDS,
    rows=st.integers(1, 9),
    heads=st.integers(1, 3),
    pairs=st.integers(1, 20),
    style=st.sampled_from(["half", "pairs"]),
)
def test_fused_norm_and_rotation_equal_their_parts(seed, rows, heads, pairs, style):
    x, w = values(seed, rows, heads * 2 * pairs, 0), values(seed + 1, 1, 2 * pairs, 0)
    turn = {"head_dim": 2 * pairs, "style": style, "freqs": 1.0 / (1 + np.arange(pairs)), "factor": 1.0}
    positions = list(range(7, 7 + rows))
    parts = evaluate("rope", [evaluate("rms_norm", [x], {"eps": 1e-6}, [w])], turn, positions=positions)
    assert same_bits(evaluate("rope_norm", [x], {"eps": 1e-6, **turn}, [w], positions=positions), parts)


@settings(max_examples=15, deadline=None)
@given(
    seed=SEEDS,
    rows=st.sampled_from([1, 3, 5, 70]),
    width=WIDTHS,
    hidden=st.integers(1, 300),
    act=st.sampled_from(["silu", "gelu_tanh", "relu2", "gelu_erf"]),
)
def test_fused_products_equal_their_parts(seed, rows, width, hidden, act):
    x, residual = values(seed, rows, width, 0), values(seed + 1, rows, hidden, 0)
    gate, up = values(seed + 2, hidden, width, 0), values(seed + 3, hidden, width, 0)
    bias = values(seed + 4, 1, hidden, 0)
    with_gate, with_up = (evaluate("linear", [x], {}, [w], [hidden]) for w in (gate, up))
    activated = evaluate("mul", [evaluate("unary", [with_gate], {"kind": act}), with_up])
    many = lk.Threads(3, grain=0)
    for threads in (plans.ONE, many):
        assert same_bits(evaluate("glu", [x], {"act": act}, [gate, up], [hidden], threads=threads), activated)
        group = {"bias": (False, True)}
        biased = evaluate("linear", [x], {}, [up, bias], [hidden])
        for out, wanted in ((0, with_gate), (1, biased)):
            y = evaluate(
                "linear_group", [x], group, [gate, up, bias], [hidden, hidden], out=out, threads=threads
            )
            assert same_bits(y, wanted)
    for weights in ([gate], [up, bias]):
        acted = evaluate("unary", [evaluate("linear", [x], {}, weights, [hidden])], {"kind": act})
        y = evaluate("linear_act", [x], {"act": act}, weights, [hidden], threads=many)
        assert same_bits(y, acted)
    biased = evaluate("add", [residual, evaluate("linear", [x], {}, [up, bias], [hidden])])
    assert same_bits(evaluate("linear_add", [residual, x], {}, [up, bias], [hidden], threads=many), biased)
    added = evaluate("add", [residual, with_up])
    plan_inputs = [residual, x]
    assert same_bits(evaluate("linear_add", plan_inputs, {}, [up], [hidden], threads=many), added)


def test_linear_is_a_chain_of_fused_additions():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((3, 40), (20, 40)))
    y = on_every_set(lambda: evaluate("linear", [x], {}, [w], [20]))
    chain = np.zeros((3, 20), np.float32)
    for k in range(
        40
    ):  # a float64 product of float32 is exact, and so nearly always is this sum before it is rounded
        chain = (w[:, k].astype(np.float64) * x[:, k, None].astype(np.float64) + chain).astype(np.float32)
    assert np.abs(y - chain).max() <= np.spacing(np.float32(np.abs(chain).max()))
    assert (y == chain).mean() > 0.99


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux", reason="knows one layout"
)
def test_denormals_survive_a_library_that_switched_them_off():
    """Some libraries set flush-to-zero for the threads of a process; a run works without it and puts it back."""
    libm, environment = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)()  # fenv_t: MXCSR is the last word

    def control(value: int | None = None) -> int:
        libm.fegetenv(environment)
        before = environment[7]
        if value is not None:
            environment[7] = value
            libm.fesetenv(environment)
        return before

    tiny = np.full((1, 16), 1e-40, np.float32)
    half = tiny * np.float32(0.5)
    before = control(control() | 0x8040)
    try:
        computed = [
            evaluate("scale", [tiny], {"by": 0.5}, threads=t) for t in (plans.ONE, lk.Threads(2, grain=0))
        ]
        assert control() & 0x8040 == 0x8040
    finally:
        control(before)
    assert half[0, 0] > 0
    assert all(same_bits(half, c) for c in computed)
