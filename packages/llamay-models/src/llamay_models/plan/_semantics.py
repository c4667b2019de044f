"""What every operation means, in float64: the specification that kernels, fusions and backends answer to.

Slow and obvious on purpose, and never to be optimised. One context, positions from 0, no pages. Each
function takes the arguments' arrays (rows, width), the weights and the record's attributes, and returns
the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamay_models.plan._records import Doubles, Program, Tensor


@dataclass(frozen=True)
class Rows:
    """The rows of a step: their tokens, and which of them want an output (all where it is None)."""

    tokens: Sequence[int]
    wanted: Sequence[int] | None = None


Meaning = Callable[[Rows, Sequence[Doubles], Sequence[Tensor], Mapping[str, Any]], tuple[Doubles, ...]]


def matrix(w: Tensor) -> Doubles:
    """Return a weight's values as float64, (rows, cols)."""
    return w.dequantize().astype(np.float64)


def vector(w: Tensor) -> Doubles:
    """Return a vector's values as float64."""
    return w.dequantize().astype(np.float64).reshape(-1)


def embed(rows: Rows, weights: Sequence[Tensor]) -> Doubles:
    table = weights[0].dequantize()
    return np.asarray(table[np.asarray(rows.tokens)], np.float64)


def embed_positions(rows: Rows, weights: Sequence[Tensor]) -> Doubles:
    return np.asarray(weights[0].dequantize()[: len(rows.tokens)], np.float64)


def linear(x: Doubles, w: Tensor, bias: Tensor | None = None) -> Doubles:
    y: Doubles = x @ matrix(w).T
    return y if bias is None else y + vector(bias)


def rms_norm(x: Doubles, w: Tensor, eps: float) -> Doubles:
    weight = vector(w)
    groups = x.reshape(len(x), x.shape[1] // len(weight), len(weight))
    y: Doubles = groups / np.sqrt((groups * groups).mean(-1, keepdims=True) + eps) * weight
    return y.reshape(x.shape)


def layer_norm(x: Doubles, w: Tensor, bias: Tensor | None = None, *, eps: float) -> Doubles:
    centred = x - x.mean(-1, keepdims=True)
    y: Doubles = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * vector(w)
    return y if bias is None else y + vector(bias)


def rope(x: Doubles, *, head_dim: int, style: str, freqs: Doubles, factor: float) -> Doubles:
    heads = x.reshape(len(x), x.shape[1] // head_dim, head_dim).copy()
    n = len(freqs)
    first, second = (
        (slice(0, n), slice(n, 2 * n)) if style == "half" else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
    )
    angle = np.arange(len(x))[:, None, None] * freqs
    a, b = heads[:, :, first].copy(), heads[:, :, second].copy()
    cos, sin = np.cos(angle) * factor, np.sin(angle) * factor
    heads[:, :, first], heads[:, :, second] = a * cos - b * sin, b * cos + a * sin
    return heads.reshape(x.shape)


def attention(
    q: Doubles,
    k: Doubles,
    v: Doubles,
    *,
    layer: int,
    heads: int,
    kv_heads: int,
    k_dim: int,
    v_dim: int,
    scale: float,
    window: int,
    softcap: float,
) -> Doubles:
    n = len(q)
    out = np.zeros((n, heads, v_dim))
    q, k, v = q.reshape(n, heads, k_dim), k.reshape(n, kv_heads, k_dim), v.reshape(n, kv_heads, v_dim)
    for row in range(n):
        first = max(0, row - window + 1) if window else 0
        for head in range(heads):
            kv = head // (heads // kv_heads)
            score = k[first : row + 1, kv] @ q[row, head] * scale
            if softcap:
                score = softcap * np.tanh(score / softcap)
            weight = np.exp(score - score.max())
            out[row, head] = weight @ v[first : row + 1, kv] / weight.sum()
    return out.reshape(n, heads * v_dim)


def silu(x: Doubles) -> Doubles:
    with np.errstate(over="ignore"):
        y: Doubles = x / (1 + np.exp(-x))
    return y


def gelu_tanh(x: Doubles) -> Doubles:
    y: Doubles = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return y


ACTIVATIONS = {"silu": silu, "gelu_tanh": gelu_tanh}


def select(rows: Rows, x: Doubles) -> Doubles:
    return x if rows.wanted is None else x[np.asarray(rows.wanted, np.intp)]


def linear_group(x: Doubles, weights: Sequence[Tensor], bias: Sequence[bool]) -> tuple[Doubles, ...]:
    rest = iter(weights)
    return tuple(linear(x, next(rest), next(rest) if biased else None) for biased in bias)


def glu(x: Doubles, gate: Tensor, up: Tensor, act: str) -> Doubles:
    return ACTIVATIONS[act](linear(x, gate)) * linear(x, up)


def rope_norm(x: Doubles, w: Tensor, eps: float, **rotation: Any) -> Doubles:
    return rope(rms_norm(x, w, eps), **rotation)


def add_rms_norm(a: Doubles, b: Doubles, w: Tensor, eps: float) -> tuple[Doubles, Doubles]:
    return a + b, rms_norm(a + b, w, eps)


MEANINGS: dict[str, Meaning] = {
    "embed": lambda rows, x, w, a: (embed(rows, w),),
    "embed_positions": lambda rows, x, w, a: (embed_positions(rows, w),),
    "linear": lambda rows, x, w, a: (linear(x[0], *w),),
    "rms_norm": lambda rows, x, w, a: (rms_norm(x[0], w[0], a["eps"]),),
    "layer_norm": lambda rows, x, w, a: (layer_norm(x[0], *w, eps=a["eps"]),),
    "rope": lambda rows, x, w, a: (rope(x[0], **a),),
    "attention": lambda rows, x, w, a: (attention(*x, **a),),
    "add": lambda rows, x, w, a: (x[0] + x[1],),
    "mul": lambda rows, x, w, a: (x[0] * x[1],),
    "scale": lambda rows, x, w, a: (x[0] * a["by"],),
    "silu": lambda rows, x, w, a: (silu(x[0]),),
    "gelu_tanh": lambda rows, x, w, a: (gelu_tanh(x[0]),),
    "softcap": lambda rows, x, w, a: (a["cap"] * np.tanh(x[0] / a["cap"]),),
    "select": lambda rows, x, w, a: (select(rows, x[0]),),
    "linear_group": lambda rows, x, w, a: linear_group(x[0], w, a["bias"]),
    "glu": lambda rows, x, w, a: (glu(x[0], w[0], w[1], a["act"]),),
    "linear_act": lambda rows, x, w, a: (ACTIVATIONS[a["act"]](linear(x[0], *w)),),
    "linear_add": lambda rows, x, w, a: (x[0] + linear(x[1], *w),),
    "add_rms_norm": lambda rows, x, w, a: add_rms_norm(x[0], x[1], w[0], a["eps"]),
    "rms_norm_add": lambda rows, x, w, a: (x[0] + rms_norm(x[1], w[0], a["eps"]),),
    "rope_norm": lambda rows, x, w, a: (rope_norm(x[0], w[0], **a),),
}


def evaluate(program: Program, tokens: Sequence[int], wanted: Sequence[int] | None = None) -> Doubles:
    """Return the output for a context of these tokens, float64 (wanted rows or all, output width)."""
    rows, values = Rows(tokens, wanted), dict[int, Doubles]()
    for record in program.records:
        weights = [program.tensors[i] for i in record.weights]
        outs = MEANINGS[record.op](rows, [values[i] for i in record.args], weights, record.attrs)
        values.update(zip(record.outs, outs, strict=True))
    return values[program.records[-1].outs[-1]]
