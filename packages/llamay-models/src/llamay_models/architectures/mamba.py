"""Mamba (Gu and Dao 2023, https://arxiv.org/abs/2312.00752), and Falcon-Mamba.

Layers of one mixer and nothing else: no attention, no positions, a state of fixed size. Each channel has a state of
its own, which decays by the number at each place of it; Falcon-Mamba normalises step size and both projections.
"""

from dataclasses import dataclass

from llamay_models.architectures.blocks import head
from llamay_models.architectures.hyperparameters import MAX_HEADS, MAX_HIDDEN, Config, read_config
from llamay_models.architectures.keys import Keys
from llamay_models.plan import Trace, Value, Weights


@dataclass(frozen=True)
class Mixer:
    """The numbers of a mixer.

    Attributes:
        taps: of the convolution.
        inner: channels.
        rank: of the product that gives step sizes.
        state: numbers of a channel's state.
        normed: whether step sizes and projections are normalised before they are used.

    """

    taps: int
    inner: int
    rank: int
    state: int
    normed: bool


@dataclass(frozen=True)
class Mamba(Config):
    """Adds the numbers of its mixers."""

    mixer: Mixer


def mamba(g: Trace, c: Mamba, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i in range(c.layers):
        x = g.add(x, mixer(g, g.rms_norm(x, w[i, "attn_norm"], c.eps), c.mixer, c.eps, w, i))
    return head(g, x, c, w)


def mixer(g: Trace, h: Value, c: Mixer, eps: float, w: Weights, i: int) -> Value:
    """Return what a mixer adds to the row that h is the norm of, of h's width.

    The state of each channel is `s = s e^(dt A) + dt x B`, read as `s C + D x`. Step sizes and projections may be
    normalised, with weights where a file has them.
    """
    x, z = g.linear_split(h, w[i, "ssm_in"], (c.inner, c.inner))
    x = g.silu(g.conv(i, x, w[i, "ssm_conv1d"], c.taps, w.get((i, "ssm_conv1d", "bias"))))
    parts = g.linear_split(x, w[i, "ssm_x"], (c.rank, c.state, c.state))
    if c.normed:
        norms = (w.get((i, f"ssm_{name}_norm")) for name in ("dt", "b", "c"))
        parts = tuple(g.rms_norm(p, norm, eps) for p, norm in zip(parts, norms, strict=True))
    dt, into, out = parts
    dt = g.unary(g.linear(dt, w[i, "ssm_dt"], c.inner, w[i, "ssm_dt", "bias"]), "softplus")
    decay = g.unary(g.affine(repeat(g, dt, c.state), w[f"blk.{i}.ssm_a"]), "exp")
    y = g.scan(i, out, decay, into, g.mul(dt, x), heads=c.inner, groups=1)
    y = g.add(y, g.affine(x, w[f"blk.{i}.ssm_d"]))
    return g.linear(g.mul(g.silu(z), y), w[i, "ssm_out"], h.width)


def repeat(g: Trace, x: Value, times: int) -> Value:
    """Return each number of x so many times in a row, of width `x.width * times`."""
    heads, out, doubled = x.width, None, x
    while times:
        if times % 2:
            out = doubled if out is None else g.concat(out, doubled, heads)
        times //= 2
        if times:
            doubled = g.concat(doubled, doubled, heads)
    assert out is not None
    return out


def config(keys: Keys) -> Mamba:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    normed = keys.flag("ssm.dt_b_c_rms", False)
    return Mamba(**read_config(keys, "attention.layer_norm_rms_epsilon"), mixer=read_mixer(keys, normed))


def read_mixer(keys: Keys, normed: bool) -> Mixer:
    """Return the numbers of a mixer. Raises MetadataError that names the key."""
    return Mixer(
        taps=keys.integer("ssm.conv_kernel", low=2, high=MAX_HEADS),
        inner=keys.integer("ssm.inner_size", high=MAX_HIDDEN),
        rank=keys.integer("ssm.time_step_rank", high=MAX_HIDDEN),
        state=keys.integer("ssm.state_size", high=MAX_HEADS),
        normed=normed,
    )
