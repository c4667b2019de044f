"""Attention whose values are the first numbers of its keys: the bits of attention over planes that hold them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_sets import on_every_set, values
from pages import F16, F32, Q8, VQ8, rounded
from plans import same_bits

from llamay_kernels import _kernels

PRECISIONS = {"f32": F32, "f16": F16, "vq8": VQ8, "q8": Q8}


def inputs(seed, positions, rows, heads, kv_heads, k_dim, hostile=0.0):
    """Queries of some positions, in order, and the keys of all."""
    rng = np.random.default_rng(seed)
    at = sorted(rng.choice(positions, min(rows, positions), replace=False).tolist())
    q = values(seed + 1, len(at), heads * k_dim, 0)
    return q, values(seed + 2, positions, kv_heads * k_dim, hostile), at


def attend(q, k, rows, v=None, **options):
    return on_every_set(lambda: _kernels.paged_attention(q, k, v, rows, **options))


def first_numbers(k, kv_heads, v_dim):
    return np.ascontiguousarray(k.reshape(len(k), kv_heads, -1)[..., :v_dim].reshape(len(k), -1))


SHAPES = [  # heads, kv_heads, k_dim, v_dim
    (16, 1, 72, 64),
    (4, 1, 40, 32),
    (128, 1, 24, 16),
    (6, 2, 19, 13),
    (1, 1, 5, 5),
    (3, 3, 64, 1),
]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_values_in_keys_are_as_values_in_planes(shape, precision):
    heads, kv_heads, k_dim, v_dim = shape
    dtype = PRECISIONS[precision]
    q, k, rows = inputs(3, 200, 40, heads, kv_heads, k_dim)
    options = {"heads": heads, "kv_heads": kv_heads, "v_dim": v_dim, "scale": k_dim**-0.5}
    latent = attend(q, k, rows, **options, precision=dtype)
    # Keys of vq8 are f16: so are the values in them.
    plain = F16 if dtype == VQ8 else dtype
    assert same_bits(latent, attend(q, k, rows, **options, precision=plain, copied=True))
    if dtype != Q8:  # a vector of values would have a scale of its own
        v = first_numbers(k, kv_heads, v_dim)
        assert same_bits(latent, attend(q, k, rows, v, **options, precision=plain))
    stored = rounded(k.reshape(200, kv_heads, k_dim), dtype, value=False).astype(np.float64)
    for i, t in enumerate(rows):
        for h in range(heads):
            keys = stored[: t + 1, h // (heads // kv_heads)]
            s = keys @ q[i, h * k_dim : (h + 1) * k_dim] * k_dim**-0.5
            p = np.exp(s - s.max())
            wanted = p @ keys[:, :v_dim] / p.sum()
            assert np.abs(latent[i, h * v_dim : (h + 1) * v_dim] - wanted).max() < 3e-6


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    positions=st.integers(1, 300),
    rows=st.integers(1, 60),
    kv_heads=st.integers(1, 2),
    group=st.sampled_from([1, 2, 5, 7, 16, 50]),
    v_dim=st.integers(1, 40),
    rest=st.integers(0, 20),
    window=st.sampled_from([0, 0, 1, 17, 64, 100]),
    softcap=st.sampled_from([0.0, 5.0]),
    precision=st.sampled_from(list(PRECISIONS.values())),
    page=st.sampled_from([16, 32, 64, 256]),
    pieces=st.sampled_from([1, 1, 2, 3]),
    hostile=st.sampled_from([0.0, 0.0, 0.001]),
)
def test_any_shape_any_page_and_any_cut(
    seed, positions, rows, kv_heads, group, v_dim, rest, window, softcap, precision, page, pieces, hostile
):
    q, k, at = inputs(seed, positions, rows, kv_heads * group, kv_heads, v_dim + rest, hostile)
    options = {
        "heads": kv_heads * group,
        "kv_heads": kv_heads,
        "v_dim": v_dim,
        "scale": 0.2,
        "window": window,
        "softcap": softcap,
    }
    latent = attend(q, k, at, **options, precision=precision, page_tokens=page, pieces=pieces)
    plain = F16 if precision == VQ8 else precision
    assert same_bits(latent, attend(q, k, at, **options, precision=plain, copied=True))


def test_rows_alone_are_as_rows_together():
    q, k, rows = inputs(5, 400, 30, 16, 1, 72)
    options = {"heads": 16, "kv_heads": 1, "v_dim": 64, "scale": 0.1, "precision": F16}
    together = _kernels.paged_attention(q, k, None, rows, **options)
    for i, t in enumerate(rows):
        alone = _kernels.paged_attention(q[i : i + 1], k[: t + 1], None, [t], **options, pieces=1 + i % 4)
        assert same_bits(alone[0], together[i])


def test_pages_of_keys_alone_are_refused_for_more_values_than_they_have():
    q, k, rows = inputs(5, 4, 2, 1, 1, 8)
    with pytest.raises(ValueError, match="fewer numbers than v_dim"):
        _kernels.paged_attention(q, k, None, rows, heads=1, kv_heads=1, v_dim=9, scale=1.0)
