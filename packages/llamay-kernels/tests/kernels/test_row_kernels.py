"""Functions of one value, affine maps and norms of a row: accuracy, and the definition to the bit."""

import math

import numpy as np
import pytest
from exact import dot, fma, total
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import on_every_set, sweep, ulps, values
from plans import same_bits

from llamay_kernels import _kernels

SEEDS = st.integers(0, 2**31)
ERF = np.vectorize(math.erf, otypes=[float])
ONE = np.float32(1)


def every(step: int) -> np.ndarray:
    """Every step-th of the floats from +0 to the largest."""
    return np.arange(0, 0x7F800000, step, dtype=np.uint32).view(np.float32)


def function(name, x, by=None):
    return on_every_set(lambda: _kernels.elementary(name, x, by))


# -- functions that others consist of


def test_log1p_is_within_two_ulp():
    x = np.concatenate([every(9973), np.linspace(0, 8, 400_001, dtype=np.float32)])
    assert ulps(function("log1p", x), np.log1p(x.astype(np.float64))).max() < 2
    ends = np.array([0.0, 1e-45, 1e-40, 3.4028235e38, np.inf, np.nan], np.float32)
    exact = np.log1p(ends.astype(np.float64)).astype(np.float32)
    assert same_bits(function("log1p", ends), exact)


def test_erf_is_within_two_ulp_and_odd():
    x = np.concatenate([every(9973), np.linspace(0, 5, 200_001, dtype=np.float32)])
    y = function("erf", x)
    assert ulps(y, ERF(x.astype(np.float64))).max() < 2
    assert same_bits(_kernels.elementary("erf", -x), -y)
    ends = np.array([0.0, -0.0, 4.0, -4.0, 1e30, np.inf, -np.inf, np.nan], np.float32)
    assert same_bits(function("erf", ends), np.array([0.0, -0.0, 1, -1, 1, 1, -1, np.nan], np.float32))


def test_erf_does_not_fall():
    """Where one polynomial takes over from the other, least of all."""
    x = np.linspace(0.9, 1.1, 500_001, dtype=np.float32)
    y = _kernels.elementary("erf", np.unique(x))
    assert (np.diff(y) >= -np.spacing(ONE) / 2).all()


# -- the kinds of unary


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


def softplus(x):
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 21))))


# name: the function in float64; the distance allowed in units of the last place; from where to where
RELATIVE = {
    "sigmoid": (sigmoid, 3, (-103, 100)),
    "softplus": (softplus, 3, (-103, 100)),
    "silu": (lambda x: x * sigmoid(x), 4, (-88, 100)),
    "gelu_quick": (lambda x: x * sigmoid(1.702 * x), 4, (-1, 100)),
    "gelu_erf": (lambda x: 0.5 * x * (1 + ERF(x * math.sqrt(0.5))), 3, (0, 100)),
    "relu": (lambda x: np.maximum(x, 0), 0.5, (-100, 100)),
    "relu2": (lambda x: np.maximum(x, 0) ** 2, 1, (-100, 100)),
    "exp": (np.exp, 2, (-104, 88.72)),
    "tanh": (np.tanh, 2, (-100, 100)),
}


@pytest.mark.parametrize("kind", RELATIVE)
def test_functions_of_one_value_are_accurate(kind):
    exact, allowed, ends = RELATIVE[kind]
    x = sweep(*ends)
    assert ulps(function(kind, x), exact(x.astype(np.float64))).max() <= allowed


@pytest.mark.parametrize(("kind", "allowed"), [("gelu_erf", 1e-7), ("gelu_quick", 1e-7)])
def test_where_a_gelu_vanishes_it_is_accurate_beside_one(kind, allowed):
    """Below 0 the remainder of 1 + erf, or of the exponent, is less exact, but also small."""
    x = sweep(-100, 0)
    assert np.abs(function(kind, x) - RELATIVE[kind][0](x.astype(np.float64))).max() < allowed


HOSTILE = np.array(
    [0.0, -0.0, np.nan, np.inf, -np.inf, 1e-45, -1e-45, 3e38, -3e38, 20, 20.000002], np.float32
)


@pytest.mark.parametrize(
    ("kind", "of_zeros", "of_infinities", "of_huge"),
    [
        ("sigmoid", [0.5, 0.5], [1, 0], [1, 0]),
        ("softplus", [math.log(2)] * 2, [np.inf, 0], [3e38, 0]),
        ("relu", [0.0, -0.0], [np.inf, 0], [3e38, 0]),
        ("relu2", [0.0, 0.0], [np.inf, 0], [np.inf, 0]),
        ("gelu_erf", [0.0, -0.0], [np.inf, np.nan], [3e38, -0.0]),
        ("gelu_quick", [0.0, -0.0], [np.inf, np.nan], [3e38, -0.0]),
        ("silu", [0.0, -0.0], [np.inf, np.nan], [3e38, -0.0]),
        ("gelu_tanh", [0.0, -0.0], [np.inf, np.nan], [3e38, -0.0]),
        ("exp", [1, 1], [np.inf, 0], [np.inf, 0]),
        ("tanh", [0.0, -0.0], [1, -1], [1, -1]),
    ],
)
def test_functions_of_hostile_values(kind, of_zeros, of_infinities, of_huge):
    y = function(kind, HOSTILE)
    assert same_bits(y[:2], np.array(of_zeros, np.float32))
    assert np.isnan(y[2])
    assert same_bits(y[3:5], np.array(of_infinities, np.float32))
    assert same_bits(y[7:9], np.array(of_huge, np.float32))
    assert not np.isnan(y[[5, 6, 9, 10]]).any()


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    n=st.integers(0, 100),
    kind=st.sampled_from([*RELATIVE, "gelu_tanh"]),
    hostile=st.sampled_from([0.0, 0.2]),
)
def test_a_gate_is_its_activation_times_what_it_lets_through(seed, n, kind, hostile):
    a, b = values(seed, 2, n, hostile, 4.0)
    with np.errstate(all="ignore"):
        assert same_bits(function(kind, a, b), _kernels.elementary(kind, a) * b)


def test_unknown_functions_are_refused():
    with pytest.raises(ValueError, match="erf, log1p and the kinds of unary"):
        _kernels.elementary("cosine", HOSTILE)


# -- affine maps


def spread(vector, width):
    return None if vector is None else np.repeat(vector, width // len(vector))


@settings(max_examples=80, deadline=None)
@given(
    data=st.data(),
    seed=SEEDS,
    width=st.sampled_from([1, 6, 16, 30, 48, 64, 97, 360, 512]),
    w=st.booleans(),
    b=st.booleans(),
    hostile=st.sampled_from([0.0, 0.2]),
)
def test_affine(data, seed, width, w, b, hostile):
    counts = [n for n in range(1, width + 1) if width % n == 0]
    x = values(seed, 1, width, hostile)[0]
    vectors = [
        values(seed + i, 1, data.draw(st.sampled_from(counts)), hostile)[0] if there else None
        for i, there in ((1, w), (2, b))
    ]
    y = on_every_set(lambda: _kernels.affine(x, *vectors))
    by, plus = (spread(v, width) for v in vectors)
    with np.errstate(all="ignore"):
        wanted = fma(x, by, plus) if w and b else x * by if w else x + plus if b else x
    assert same_bits(y, wanted)


# -- norms


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    rows=st.integers(1, 4),
    width=st.integers(1, 100),
    w=st.booleans(),
    b=st.booleans(),
    hostile=st.sampled_from([0.0, 0.05]),
)
def test_norms_with_and_without_vectors(seed, rows, width, w, b, hostile):
    x, eps = values(seed, rows, width, hostile), np.float32(1e-5)
    weight, bias = values(seed + 1, 2, width, 0)
    n = np.float32(width)
    with np.errstate(all="ignore"):
        inverse = ONE / np.sqrt(dot(x, x) / n + eps)
        wanted = x * inverse[:, None]
        wanted = wanted * weight if w else wanted
        rms = on_every_set(lambda: _kernels.normalise("rms", x, 1e-5, weight if w else None))
        assert same_bits(rms, wanted)
        d = x - (total(x) / n)[:, None]
        wanted = d * (ONE / np.sqrt(dot(d, d) / n + eps))[:, None]
        wanted = wanted * weight if w else wanted
        wanted = wanted + bias if b else wanted
    layer = on_every_set(
        lambda: _kernels.normalise("layer", x, 1e-5, weight if w else None, bias if b else None)
    )
    assert same_bits(layer, wanted)
