"""The choice of experts for a row, and the sum of their outputs, against a slow reference."""

import numpy as np
import pytest
from exact import fma, total
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import on_every_set, values
from plans import same_bits

from llamay_kernels import _kernels

KINDS = ["softmax", "sigmoid", "softmax_chosen", "sqrt_softplus"]
SEEDS = st.integers(0, 2**31)
FLOOR = np.float32(6.103515625e-5)


def softmax(x):
    e = _kernels.elementary("exp", x - x.max())
    return e / total(e)


def route_reference(logits, kind, k, bias=None, groups=1, groups_used=1, norm=False, scale=1.0):
    """One row."""
    if kind == "softmax":
        p = softmax(logits)
    elif kind == "sigmoid":
        p = _kernels.elementary("sigmoid", logits)
    elif kind == "sqrt_softplus":
        p = np.sqrt(_kernels.elementary("softplus", logits))
    else:
        p = logits
    s = p if bias is None else p + bias
    parts = s.reshape(groups, -1)
    size = parts.shape[1]
    worth = np.sort(parts, axis=1)[:, -2:].sum(1) if size > 1 else parts[:, 0]
    used = sorted(range(groups), key=lambda g: (-worth[g], g))[:groups_used]
    candidates = [i for i in range(len(s)) if i // size in used]
    ids = sorted(candidates, key=lambda i: (-s[i], i))[:k]
    weights = p[ids]
    if kind == "softmax_chosen":
        weights = softmax(weights)
    if norm:
        weights = weights / max(total(weights), FLOOR)
    return np.array(ids, np.float32), weights * np.float32(scale)


def shapes(draw):
    groups = draw(st.sampled_from([1, 1, 1, 2, 4, 8]))
    size = draw(st.integers(1, 40))
    used = draw(st.integers(1, groups))
    k = draw(st.integers(1, min(used * size, 20)))
    return groups * size, k, groups, used


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    seed=SEEDS,
    kind=st.sampled_from(KINDS),
    biased=st.booleans(),
    norm=st.booleans(),
    scale=st.sampled_from([1.0, 2.5]),
    coarse=st.booleans(),
)
def test_routing(data, seed, kind, biased, norm, scale, coarse):
    """With coarse logits many are equal, and the lower id goes first."""
    experts, k, groups, used = shapes(data.draw)
    logits = values(seed, 5, experts, 0, 2.0)
    bias = values(seed + 1, 1, experts, 0)[0] if biased else None
    if coarse:
        logits = np.round(logits)
        bias = None if bias is None else np.round(bias)
    options = (kind, k, bias, groups, used, norm, scale)
    ids, weights = on_every_set(lambda: _kernels.route(logits, *options))
    for i in range(len(logits)):
        wanted = route_reference(logits[i], *options)
        assert same_bits(ids[i], wanted[0])
        assert same_bits(weights[i], wanted[1])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=SEEDS, kind=st.sampled_from(KINDS), norm=st.booleans(), biased=st.booleans())
def test_hostile_logits_choose_different_experts_that_exist(data, seed, kind, norm, biased):
    experts, k, groups, used = shapes(data.draw)
    logits = values(seed, 6, experts, data.draw(st.sampled_from([0.1, 0.9])), 30.0)
    logits[0], logits[1], logits[2] = np.nan, np.inf, -np.inf
    bias = values(seed + 1, 1, experts, 0.2)[0] if biased else None
    options = (kind, k, bias, groups, used, norm, 1.5)
    ids, _ = on_every_set(lambda: _kernels.route(logits, *options))
    for row in ids:
        assert len(set(row.tolist())) == k
        assert all(0 <= i < experts and i == int(i) for i in row)


def test_an_expert_whose_logit_is_not_a_number_comes_last():
    logits = np.array([[np.nan, -np.inf, 0.0, np.nan, 1.0]], np.float32)
    ids, weights = on_every_set(lambda: _kernels.route(logits, "sigmoid", 5))
    assert ids.tolist() == [[4, 2, 1, 0, 3]]
    assert np.isnan(weights[0]).tolist() == [False, False, False, True, True]


def test_both_zeros_are_equal():
    ids, _ = on_every_set(
        lambda: _kernels.route(np.array([[-0.0, 0.0, -0.0, -1]], np.float32), "softmax_chosen", 3)
    )
    assert ids.tolist() == [[0, 1, 2]]


def test_as_many_experts_as_there_may_be():
    logits = values(3, 2, 4096, 0)
    ids, _ = on_every_set(lambda: _kernels.route(logits, "softmax", 4096))
    assert same_bits(ids, np.argsort(-logits, axis=1, kind="stable").astype(np.float32))
    with pytest.raises(ValueError, match="so many cannot be chosen"):
        _kernels.route(values(3, 2, 4097, 0), "softmax", 1)


def test_weights_that_vanish_are_not_divided_by_nothing():
    logits = np.full((1, 4), -50, np.float32)
    _, weights = on_every_set(lambda: _kernels.route(logits, "sigmoid", 2, norm=True))
    assert np.all(weights > 0)
    assert np.all(weights < 1e-17)


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    n=st.integers(1, 9),
    width=st.one_of(st.integers(1, 70), st.integers(100, 200)),
    hostile=st.sampled_from([0.0, 0.1]),
)
def test_what_experts_make_is_added_up_in_order(seed, n, width, hostile):
    weights, y = values(seed, 1, n, hostile)[0], values(seed + 1, n, width, hostile)
    cuts = sorted(np.random.default_rng(seed).integers(0, width + 1, 2).tolist())
    out = on_every_set(lambda: _kernels.combine(weights, y, cuts))
    with np.errstate(all="ignore"):
        wanted = weights[0] * y[0]
    for j in range(1, n):
        wanted = fma(weights[j], y[j], wanted)
    assert same_bits(out, wanted)
