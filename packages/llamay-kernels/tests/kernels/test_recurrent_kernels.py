"""Convolutions and scans: the same bits as their definition in numpy, however the work is split."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import on_every_set, values
from plans import same_bits
from recurrent_reference import conv_reference, scan_reference

from llamay_kernels import _kernels

SEEDS = st.integers(0, 2**31)


def cuts(seed: int, n: int) -> list[int]:
    """Where parts of n channels end; often there is one part."""
    rng = np.random.default_rng(seed)
    return sorted(rng.integers(0, n + 1, rng.integers(0, 4)).tolist())


# -- convolutions


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    rows=st.integers(0, 12),
    channels=st.one_of(st.integers(1, 70), st.sampled_from([511, 512, 513, 1100])),
    taps=st.integers(1, 20),
    bias=st.booleans(),
    carried=st.booleans(),
    hostile=st.sampled_from([0.0, 0.1]),
)
def test_convolution(seed, rows, channels, taps, bias, carried, hostile):
    x, weight = values(seed, rows, channels, hostile), values(seed + 1, channels, taps, 0)
    extra = (
        values(seed + 2, 1, channels, hostile)[0] if bias else None,
        values(seed + 3, taps - 1, channels, hostile) if carried else None,
    )
    y, state = on_every_set(lambda: _kernels.conv(x, weight, *extra, cuts(seed, channels)))
    wanted, kept = conv_reference(x, weight, *extra)
    assert same_bits(y, wanted)
    assert same_bits(state, kept)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, rows=st.integers(1, 30), channels=st.integers(1, 40), taps=st.integers(1, 6))
def test_rows_of_a_convolution_may_come_one_after_another(seed, rows, channels, taps):
    x, weight = values(seed, rows, channels, 0), values(seed + 1, channels, taps, 0)
    whole, after = _kernels.conv(x, weight)
    state, at, parts = None, 0, []
    rng = np.random.default_rng(seed)
    while at < rows:
        n = int(rng.choice([1, 1, 2, 3, 7]))
        y, state = _kernels.conv(x[at : at + n], weight, None, state)
        parts.append(y)
        at += n
    assert same_bits(np.concatenate(parts), whole)
    assert same_bits(state, after)


def test_a_token_shift_is_a_convolution_by_two_taps():
    x = values(0, 5, 33, 0)
    y, state = _kernels.conv(x, np.tile(np.float32([1, 0]), (33, 1)))
    assert same_bits(y, np.concatenate([np.zeros((1, 33), np.float32), x[:-1]]))
    assert same_bits(state, x[-1:])


# -- scans


def scan_inputs(seed, rows, k_dim, v_dim, by_column, corrected, hostile=0.0):
    x = [values(seed + i, rows, d, hostile) for i, d in enumerate([k_dim, k_dim, k_dim, v_dim, k_dim, k_dim])]
    r, w, k, v, a, b = x
    w = np.exp(-np.abs(w)) if by_column else np.exp(-np.abs(w[:, :1]))
    a, b = a / np.float32(k_dim), b / np.float32(k_dim)
    return [r, w, k, v, a, b] if corrected else [r, w, k, v]


SCANS = {
    "rows": st.integers(1, 9),
    "k_dim": st.one_of(st.integers(1, 70), st.sampled_from([128, 130])),
    "v_dim": st.one_of(st.integers(1, 9), st.sampled_from([70, 129])),
    "by_column": st.booleans(),
    "corrected": st.booleans(),
}


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS,
    **SCANS,
    begun=st.booleans(),
    in_place=st.booleans(),
    hostile=st.sampled_from([0.0, 0.0, 0.02]),
)
def test_scan(seed, rows, k_dim, v_dim, by_column, corrected, begun, in_place, hostile):
    inputs = scan_inputs(seed, rows, k_dim, v_dim, by_column, corrected, hostile)
    state = values(seed + 9, v_dim, k_dim, hostile) if begun else None

    def compute():
        return _kernels.scan(*inputs, state=state, cuts=cuts(seed, v_dim), in_place=in_place)

    y, after = on_every_set(compute)
    wanted, kept = scan_reference(*inputs, state=state)
    assert same_bits(y, wanted)
    assert same_bits(after, kept)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, **SCANS)
def test_rows_of_a_scan_may_come_one_after_another(seed, rows, k_dim, v_dim, by_column, corrected):
    inputs = scan_inputs(seed, 3 * rows, k_dim, v_dim, by_column, corrected)
    whole, after = _kernels.scan(*inputs)
    state, at, parts = None, 0, []
    rng = np.random.default_rng(seed)
    while at < len(whole):
        n = int(rng.choice([1, 1, 2, 5]))
        y, state = _kernels.scan(*(x[at : at + n] for x in inputs), state=state)
        parts.append(y)
        at += n
    assert same_bits(np.concatenate(parts), whole)
    assert same_bits(state, after)


@pytest.mark.parametrize("corrected", [False, True])
def test_scan_over_many_rows_stays_near_float64(corrected):
    inputs = scan_inputs(5, 300, 64, 48, True, corrected)
    y, _ = on_every_set(lambda: _kernels.scan(*inputs))
    r, w, k, v, *ab = (x.astype(np.float64) for x in inputs)
    s, wanted = np.zeros((48, 64)), []
    for t in range(300):
        left = np.outer(s @ ab[0][t], ab[1][t]) if corrected else 0
        s = s * w[t] + np.outer(v[t], k[t]) + left
        wanted.append(s @ r[t])
    assert np.abs(y - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_a_delta_rule_replaces_what_a_key_held():
    """With w 1, a = -k and b = k of unit length, the state gives back for each key the last value written to it."""
    keys = np.eye(4, dtype=np.float32)[[0, 1, 0, 2]]
    new = values(1, 4, 6, 0)
    one = np.ones((4, 1), np.float32)
    _, state = _kernels.scan(keys, one, keys, new, -keys, keys)
    assert np.allclose(state.T, np.stack([new[2], new[1], new[3], np.zeros(6, np.float32)]), atol=1e-6)


def test_lanes_without_an_element_are_not_touched():
    """Not even by a zero, which would turn a -0 that is there into +0."""
    tiny = np.full((1, 20), 1e-30, np.float32)
    nothing = np.zeros((1, 20), np.float32)
    y, _ = on_every_set(
        lambda: _kernels.scan(tiny, np.ones((1, 1), np.float32), nothing, nothing[:, :1], state=-tiny)
    )
    assert y[0, 0] == 0
    assert np.signbit(y[0, 0])
