"""Operations that compute each row by itself, through plans: against numpy, on all rows and on selected ones."""

import math

import numpy as np
import pytest
from exact import dot, fma
from kernel_sets import everywhere, values
from plans import evaluate, run_rows, same_bits, weight

from llamay_kernels import Plan, _kernels

ROWS = (1, 3, 70)
KINDS = ["silu", "gelu_tanh", "sigmoid", "tanh", "relu", "relu2", "gelu_erf", "gelu_quick", "softplus", "exp"]


def computed(op, inputs, attrs=None, weights=(), out_widths=None, **options):
    """On every kernel set, with one thread and three."""
    return everywhere(
        lambda threads: evaluate(op, inputs, attrs, weights, out_widths, threads=threads, **options)
    )


@pytest.fixture(params=[False, True], ids=["all", "selected"])
def select(request):
    return request.param


# -- functions of one value


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


MEANINGS = {
    "silu": lambda x: x * sigmoid(x),
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu_erf": lambda x: x / 2 * (1 + np.vectorize(math.erf, otypes=[float])(x / np.sqrt(2))),
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "exp": np.exp,
}


@pytest.mark.parametrize("kind", KINDS)
def test_unary(kind, select):
    for rows in ROWS:
        x = values(rows, rows, 37, 0, 2.0)
        y = computed("unary", [x], {"kind": kind}, select=select)
        assert same_bits(y, _kernels.elementary(kind, x.reshape(-1)).reshape(x.shape))
        wanted = MEANINGS[kind](x.astype(np.float64))
        assert np.abs(y - wanted).max() <= 1e-6 * max(1.0, np.abs(wanted).max())


@pytest.mark.parametrize("kind", KINDS)
def test_fused_activations_are_those_of_one_value(kind, select):
    x, gate, up = values(1, 5, 24, 0), values(2, 40, 24, 0), values(3, 40, 24, 0)
    a, b = (evaluate("linear", [x], {}, [w], [40], select=select) for w in (gate, up))
    activated = evaluate("unary", [a], {"kind": kind})
    assert same_bits(computed("linear_act", [x], {"act": kind}, [gate], [40], select=select), activated)
    both = evaluate("mul", [activated, b])
    assert same_bits(computed("glu", [x], {"act": kind}, [gate, up], [40], select=select), both)


# -- moving columns


@pytest.mark.parametrize(
    ("heads", "start", "width", "head"), [(1, 0, 5, 5), (3, 2, 4, 7), (16, 0, 1, 9), (2, 8, 8, 16)]
)
def test_columns(heads, start, width, head, select):
    for rows in ROWS:
        x = values(rows, rows, heads * head, 0.1)
        attrs = {"heads": heads, "start": start, "width": width}
        y = computed("columns", [x], attrs, (), [heads * width], select=select)
        assert same_bits(y, x.reshape(rows, heads, head)[:, :, start : start + width].reshape(rows, -1))


@pytest.mark.parametrize(("heads", "a_head", "b_head"), [(1, 5, 3), (4, 2, 7), (16, 1, 1), (2, 16, 48)])
def test_concat(heads, a_head, b_head, select):
    for rows in ROWS:
        a, b = values(1, rows, heads * a_head, 0.1), values(2, rows, heads * b_head, 0.1)
        y = computed("concat", [a, b], {"heads": heads}, (), [heads * (a_head + b_head)], select=select)
        parts = [x.reshape(rows, heads, -1) for x in (a, b)]
        assert same_bits(y, np.concatenate(parts, 2).reshape(rows, -1))


# -- vectors times values, by channel or by part


def spread(vector, width):
    """Value i stands for the i-th of len(vector) equal parts."""
    return np.repeat(vector, width // vector.shape[-1], axis=-1)


@pytest.mark.parametrize("has", ["w", "b", "wb"])
@pytest.mark.parametrize("parts", [1, 4, 36])
def test_affine(has, parts, select):
    width = 36
    w, b = values(1, 1, parts, 0)[0], values(2, 1, parts, 0)[0]
    for rows in ROWS:
        x = values(rows, rows, width, 0.05)
        y = computed("affine", [x], {"has": has}, [{"w": w, "b": b}[name] for name in has], select=select)
        with np.errstate(all="ignore"):
            if has == "wb":
                wanted = fma(x, spread(w, width), spread(b, width))
            else:
                wanted = x * spread(w, width) if has == "w" else x + spread(b, width)
        assert same_bits(y, wanted)


def test_affine_vectors_may_have_different_parts():
    x, w, b = values(1, 3, 12, 0), values(2, 1, 3, 0)[0], values(3, 1, 12, 0)[0]
    assert same_bits(computed("affine", [x], {"has": "wb"}, [w, b]), fma(x, spread(w, 12), b))


@pytest.mark.parametrize("heads", [1, 4, 36])
def test_mul_heads(heads, select):
    for rows in ROWS:
        x, g = values(rows, rows, 36, 0.05), values(rows + 1, rows, heads, 0.05)
        y = computed("mul_heads", [x, g], select=select)
        with np.errstate(all="ignore"):
            assert same_bits(y, x * spread(g, 36))


# -- norms


def rms_norm(x, groups, eps):
    parts = x.reshape(-1, x.shape[-1] // groups)
    inverse = np.float32(1) / np.sqrt(dot(parts, parts) / np.float32(parts.shape[1]) + np.float32(eps))
    return (parts * inverse[:, None]).reshape(x.shape)


@pytest.mark.parametrize(("width", "groups", "length"), [
    (40, None, 0), (40, 1, 0), (40, 5, 0), (40, None, 8), (40, 5, 8), (40, 5, 40), (40, 1, 40), (40, 40, 1), (7, 7, 7),
])  # fmt: skip
def test_rms_norm(width, groups, length, select):
    w = [values(3, 1, length, 0)[0]] if length else []
    attrs = {"eps": 1e-6} | ({} if groups is None else {"groups": groups})
    parts = groups or (width // length if length else 1)
    for rows in ROWS:
        x, residual = values(rows, rows, width, 0), values(rows + 1, rows, width, 0)
        wanted = rms_norm(x, parts, 1e-6)
        if length:
            wanted = wanted * np.tile(w[0], width // length)
        assert same_bits(computed("rms_norm", [x], attrs, w, select=select), wanted)
        added = computed("rms_norm_add", [residual, x], attrs, w, select=select)
        assert same_bits(added, residual + wanted)
        both = [
            computed("add_rms_norm", [x, residual], attrs, w, [width, width], out=i, select=select)
            for i in (0, 1)
        ]
        total = x + residual
        assert same_bits(both[0], total)
        assert same_bits(both[1], evaluate("rms_norm", [total], attrs, w))


def test_layer_norm_without_weights(select):
    for rows in ROWS:
        x = values(rows, rows, 33, 0, 3.0)
        y = computed("layer_norm", [x], {"eps": 1e-6}, select=select)
        d = x.astype(np.float64) - x.mean(-1, keepdims=True, dtype=np.float64)
        assert np.abs(y - d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-6)).max() < 2e-6
        ones = np.ones(33, np.float32)
        assert same_bits(y, evaluate("layer_norm", [x], {"eps": 1e-6}, [ones]))


# -- rotations


def rope(x, positions, head_dim, style, freqs, factor, offset=0, axes=None):
    """positions: (rows,) or (rows, axes)."""
    rows, n = len(x), len(freqs)
    at = np.asarray(positions).reshape(rows, -1)
    out = x.reshape(rows, -1, head_dim).copy()
    for i, f in enumerate(freqs):
        axis = axes[i] if axes is not None and at.shape[1] > 1 else 0
        angle = at[:, axis, None] * np.float64(f)
        c, s = (np.float32(factor) * g(angle).astype(np.float32) for g in (np.cos, np.sin))
        first, second = (i, i + n) if style == "half" else (2 * i, 2 * i + 1)
        a, b = (x.reshape(rows, -1, head_dim)[:, :, offset + j] for j in (first, second))
        out[:, :, offset + first] = fma(a, c, -(b * s))
        out[:, :, offset + second] = fma(b, c, a * s)
    return out.reshape(x.shape)


@pytest.mark.parametrize("style", ["half", "pairs"])
@pytest.mark.parametrize(("heads", "head_dim", "pairs", "offset"), [
    (3, 16, 8, 0), (3, 16, 4, 0), (3, 16, 4, 8), (3, 16, 3, 5), (1, 70, 32, 6), (2, 9, 1, 7), (4, 64, 16, 32),
])  # fmt: skip
def test_rope_from_an_offset_on(style, heads, head_dim, pairs, offset, select):
    freqs = 10000.0 ** -(np.arange(pairs) / pairs)
    attrs = {"head_dim": head_dim, "style": style, "freqs": freqs, "factor": 1.25, "offset": offset}
    for rows in ROWS:
        x, positions = values(rows, rows, heads * head_dim, 0), 7 + np.arange(rows)
        y = computed("rope", [x], attrs, positions=positions, select=select)
        assert same_bits(y, rope(x, positions, head_dim, style, freqs, 1.25, offset))
        w = values(5, 1, head_dim, 0)[0]
        both = computed("rope_norm", [x], {**attrs, "eps": 1e-6}, [w], positions=positions, select=select)
        normed = evaluate("rms_norm", [x], {"eps": 1e-6}, [w])
        assert same_bits(both, rope(normed, positions, head_dim, style, freqs, 1.25, offset))


@pytest.mark.parametrize("style", ["half", "pairs"])
@pytest.mark.parametrize("select", [False, True], ids=["all", "selected"])
def test_rope_by_positions_of_several_axes(style, select):
    freqs, axes = 100.0 ** -(np.arange(6) / 6), [0, 1, 2, 0, 1, 2]
    attrs = {"head_dim": 14, "style": style, "freqs": freqs, "factor": 1.0, "offset": 1, "axes": axes}
    x = values(3, 90, 28, 0)
    records = [("embed", (0,), (), (0,), {})]
    if select:
        records.append(("select", (1,), (0,), (), {}))
    records.append(("rope", (len(records),), (len(records) - 1,), (), attrs))
    plan = Plan(records, [28] * len(records), [weight(x)], max_rows=90)
    rng = np.random.default_rng(1)
    for counts in ([1], [3], [1, 70, 2], [5, 5, 5]):
        at, texts, positions = 0, [], []
        for i, n in enumerate(counts):
            several = rng.integers(0, 3000, (n, 3)).astype(np.int32)
            # A text that does not say so has one position on every axis.
            inputs = None if i == 1 else {"positions": several}
            texts.append((None, range(at, at + n), 40, n, inputs))
            positions.append(np.repeat(40 + np.arange(n), 3).reshape(n, 3) if i == 1 else several)
            at += n
        y = everywhere(lambda threads, texts=texts: run_rows(plan, texts, threads))
        assert same_bits(y, rope(x[:at], np.concatenate(positions), 14, style, freqs, 1.0, 1, axes))
    alone = run_rows(plan, [(None, [4, 5], 9, 2)])
    assert same_bits(alone, rope(x[4:6], [9, 10], 14, style, freqs, 1.0, 1, axes))
    with pytest.raises(ValueError, match="positions have 2 axes but the plan turns by 3"):
        run_rows(plan, [(None, [4, 5], 9, 2, {"positions": np.zeros((2, 2), np.int32)})])
    bad = np.array([[0, 0, 0], [0, 0, -1]], np.int32)
    with pytest.raises(ValueError, match=r"positions\[1, 2\] is -1, which is out of range"):
        run_rows(plan, [(None, [4, 5], 9, 2, {"positions": bad})])
