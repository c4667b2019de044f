"""The common parts of blocks of several architectures: their MLPs, and the output matrix."""

from __future__ import annotations

from llamay_models.architectures.hyperparameters import Block, Config, Experts
from llamay_models.plan import Trace, Value, Weights


def feed_forward(g: Trace, h: Value, b: Block, w: Weights, i: int, act: str = "silu") -> Value:
    """Return what the MLP, or the experts, of layer i make of h; of h's width, and not yet added to anything."""
    if b.experts is not None:
        return experts(g, h, b.experts, w, i, act)
    return gated_mlp(g, h, b.hidden, w, i, act)


def gated_mlp(g: Trace, h: Value, hidden: int, w: Weights, i: int, act: str = "silu") -> Value:
    """Return `down(act(gate(h)) * up(h))`, of h's width, with biases where a file has them.

    `hidden` is the width of gate and up. Shazeer 2020, https://arxiv.org/abs/2002.05202.
    """
    gate = g.linear(h, w[i, "ffn_gate"], hidden, w.get((i, "ffn_gate", "bias")))
    up = g.linear(h, w[i, "ffn_up"], hidden, w.get((i, "ffn_up", "bias")))
    product = g.mul(g.unary(gate, act), up)
    return g.linear(product, w[i, "ffn_down"], h.width, w.get((i, "ffn_down", "bias")))


def experts(g: Trace, h: Value, e: Experts, w: Weights, i: int, act: str = "silu") -> Value:
    """Return the weighted sum of what the experts that h is routed to make of it, of h's width.

    The router has a bias where a file has one, and another that counts for the choice only. Shazeer et al. 2017,
    https://arxiv.org/abs/1701.06538.
    """
    logits = g.linear(h, w[i, "ffn_gate_inp"], e.count, w.get((i, "ffn_gate_inp", "bias")))
    bias = w.get((i, "exp_probs_b", "bias")) or w.get(
        f"blk.{i}.exp_probs_b"
    )  # converters disagree about the name
    ids, weights = g.route(
        logits,
        e.used,
        bias,
        kind=e.kind,
        groups=e.groups,
        groups_used=e.groups_used,
        norm=e.norm,
        scale=e.scale,
    )
    gate, up, down = (w[i, f"ffn_{name}_exps"] for name in ("gate", "up", "down"))
    return g.experts(h, ids, weights, gate, up, down, experts=e.count, hidden=e.hidden, act=act)


def head(g: Trace, x: Value, c: Config, w: Weights) -> Value:
    """Return the logits, of width c.vocab, of rows that want them.

    A file without an output matrix uses the embedding table again.
    """
    x = g.rms_norm(g.select(x), w["output_norm"], c.eps)
    return g.linear(x, w.get("output") or w["token_embd"], c.vocab, w.get("output.bias"))
