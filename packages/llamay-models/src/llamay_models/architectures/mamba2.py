"""Mamba-2 (Dao and Gu 2024, https://arxiv.org/abs/2405.21060).

Layers of one mixer and nothing else: no attention, no positions, a state of fixed size. One product gives gate, inputs
and step sizes; inputs and both projections of the state go through a short convolution; its output is gated and
normalised in each group of heads.
"""

from dataclasses import dataclass

from llamay_models.architectures.blocks import head
from llamay_models.architectures.hyperparameters import MAX_HEADS, MAX_HIDDEN, Config, read_config
from llamay_models.architectures.keys import Keys
from llamay_models.errors import MetadataError
from llamay_models.plan import Trace, Value, Weights


@dataclass(frozen=True)
class Mamba2(Config):
    """Adds the numbers of the mixer.

    Attributes:
        taps: of the convolution.
        inner: width of its inputs, of all heads together.
        heads: each with a decay of its own.
        groups: of heads that share projections into and out of the state.
        state: numbers of such a projection.

    """

    taps: int
    inner: int
    heads: int
    groups: int
    state: int


def mamba2(g: Trace, c: Mamba2, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i in range(c.layers):
        x = g.add(x, mixer(g, g.rms_norm(x, w[i, "attn_norm"], c.eps), c, w, i))
    return head(g, x, c, w)


def mixer(g: Trace, h: Value, c: Mamba2, w: Weights, i: int) -> Value:
    """Return what a mixer adds to the row that h is the norm of, of h's width.

    The state of each head is `S = S e^(dt A) + (dt x) B^T`, read as `S C + D x`.
    """
    projection = c.groups * c.state
    mixed = c.inner + 2 * projection
    z, xbc, dt = g.linear_split(h, w[i, "ssm_in"], (c.inner, mixed, c.heads))
    xbc = g.silu(g.conv(i, xbc, w[i, "ssm_conv1d"], c.taps, w.get((i, "ssm_conv1d", "bias"))))
    x = g.columns(xbc, 0, c.inner)
    into = g.columns(xbc, c.inner, projection)
    out = g.columns(xbc, c.inner + projection, projection)
    dt = g.unary(g.affine(dt, None, w[i, "ssm_dt", "bias"]), "softplus")
    decay = g.unary(g.affine(dt, w[f"blk.{i}.ssm_a"]), "exp")
    y = g.scan(i, out, decay, into, g.mul_heads(x, dt), heads=c.heads, groups=c.groups)
    y = g.add(y, g.affine(x, w[f"blk.{i}.ssm_d"], parts=c.heads))
    y = g.rms_norm(g.mul(g.silu(z), y), w[i, "ssm_norm"], c.eps, c.groups, own=True)
    return g.linear(y, w[i, "ssm_out"], c.width)


def config(keys: Keys) -> Mamba2:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    c = Mamba2(
        **read_config(keys, "attention.layer_norm_rms_epsilon"),
        taps=keys.integer("ssm.conv_kernel", low=2, high=MAX_HEADS),
        inner=keys.integer("ssm.inner_size", high=MAX_HIDDEN),
        heads=keys.integer("ssm.time_step_rank", high=MAX_HEADS),
        groups=keys.integer("ssm.group_count", high=MAX_HEADS),
        state=keys.integer("ssm.state_size", high=MAX_HEADS),
    )
    for whole, parts in (("inner_size", "time_step_rank"), ("time_step_rank", "group_count")):
        n, by = keys.integer(f"ssm.{whole}"), keys.integer(f"ssm.{parts}")
        if n % by:
            raise MetadataError(
                f"{keys.name(f'ssm.{whole}')} = {n} must be a multiple of {keys.name(f'ssm.{parts}')} = {by}"
            )
    return c
