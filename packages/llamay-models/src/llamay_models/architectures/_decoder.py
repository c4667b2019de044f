"""What the decoders here have in common: their hyper-parameters and their gated MLP."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from llamay_models.architectures._keys import Keys
from llamay_models.errors import MetadataError
from llamay_models.plan import Linear, Llama3, Rope, Trace, Value, Weights, Yarn

Style = Any


@dataclass(frozen=True)
class Transformer:
    """Hyper-parameters, in the names that the files use where those are plain."""

    vocab: int
    context_length: int
    width: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    k_dim: int
    v_dim: int
    eps: float
    scale: float


@dataclass(frozen=True)
class Decoder(Transformer):
    """A transformer that turns queries and keys by their position."""

    rope: Rope


def read_transformer(keys: Keys, eps: str) -> dict[str, Any]:
    """Return the fields of Transformer from a file's metadata; `eps` is the key of the norms' epsilon.

    Raises MetadataError that names the key.
    """
    width, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    kv_heads = keys.integer("attention.head_count_kv", heads)
    if heads % kv_heads:
        raise MetadataError(
            f"{keys.name('attention.head_count')} = {heads} must be a multiple of "
            f"{keys.name('attention.head_count_kv')} = {kv_heads}"
        )
    k_dim = keys.integer("attention.key_length", None)
    if k_dim is None:
        if width % heads:
            raise MetadataError(
                f"{keys.name('embedding_length')} = {width} must be a multiple of "
                f"{keys.name('attention.head_count')} = {heads} "
                f"where {keys.name('attention.key_length')} is missing"
            )
        k_dim = width // heads
    keys.refuse("expert_count", "a mixture of experts")
    return {
        "vocab": keys.vocabulary(),
        "context_length": keys.integer("context_length"),
        "width": width,
        "layers": keys.integer("block_count", high=4096),
        "hidden": keys.integer("feed_forward_length"),
        "heads": heads,
        "kv_heads": kv_heads,
        "k_dim": k_dim,
        "v_dim": keys.integer("attention.value_length", k_dim),
        "eps": keys.real(eps),
        "scale": keys.real("attention.scale", None) or 1.0 / math.sqrt(k_dim),
    }


def read_decoder(keys: Keys, style: Style) -> dict[str, Any]:
    """Return the fields of Decoder from a file's metadata. Raises MetadataError that names the key."""
    fields = read_transformer(keys, "attention.layer_norm_rms_epsilon")
    return {**fields, "rope": read_rope(keys, style, fields["k_dim"])}


def read_rope(keys: Keys, style: Style, head_dim: int) -> Rope:
    """Return the rotary embedding; its keys and how they combine are llama.cpp's."""
    dims = keys.integer("rope.dimension_count", head_dim)
    if dims % 2 or dims > head_dim:
        raise MetadataError(
            f"{keys.name('rope.dimension_count')} must be even and at most the head's {head_dim}, not {dims}"
        )
    base = keys.real("rope.freq_base", 10000.0)
    if base <= 1:
        raise MetadataError(f"{keys.name('rope.freq_base')} must be more than 1, not {base!r}")
    return Rope(dims, base, style, _read_scaling(keys), keys.real("rope.scaling.attn_factor", 1.0))


def _read_scaling(keys: Keys) -> Linear | Yarn | Llama3 | None:
    # Files without a type but with a factor are older ones, and mean linear.
    kind = keys.text("rope.scaling.type", "linear")
    factor = keys.real("rope.scaling.factor", None) or keys.real("rope.scale_linear", None)
    if kind == "none" or factor is None or (factor == 1.0 and kind == "linear"):
        return None
    if kind == "linear":
        return Linear(factor)
    original = keys.integer("rope.scaling.original_context_length", None) or keys.integer("context_length")
    if kind == "yarn":
        return Yarn(
            factor,
            original,
            keys.real("rope.scaling.yarn_beta_fast", 32.0),
            keys.real("rope.scaling.yarn_beta_slow", 1.0),
            keys.real("rope.scaling.yarn_log_multiplier", 0.0, positive=False),
        )
    if kind == "llama3":
        low = keys.real("rope.scaling.low_freq_factor", 1.0)
        high = keys.real("rope.scaling.high_freq_factor", 4.0)
        if low >= high:
            raise MetadataError(
                f"{keys.name('rope.scaling.high_freq_factor')} must be more than {low}, not {high}"
            )
        return Llama3(factor, original, low, high)
    known = "none, linear, yarn, llama3"
    raise MetadataError(f"{keys.name('rope.scaling.type')} must be one of {known}, not {kind!r}")


def gated_mlp(g: Trace, h: Value, c: Decoder, w: Weights, i: int, act: str = "silu") -> Value:
    """`down(act(gate(h)) * up(h))`, with biases where a file has them.

    Shazeer 2020, https://arxiv.org/abs/2002.05202.
    """
    gate = g.linear(h, w[i, "ffn_gate"], c.hidden, w.get((i, "ffn_gate", "bias")))
    up = g.linear(h, w[i, "ffn_up"], c.hidden, w.get((i, "ffn_up", "bias")))
    gated = g.silu(gate) if act == "silu" else g.gelu_tanh(gate)
    return g.linear(g.mul(gated, up), w[i, "ffn_down"], c.width, w.get((i, "ffn_down", "bias")))


def head(g: Trace, x: Value, c: Decoder, w: Weights) -> Value:
    """Logits of the rows that want them; a file without an output matrix uses the embedding table again."""
    x = g.rms_norm(g.select(x), w["output_norm"], c.eps)
    return g.linear(x, w.get("output") or w["token_embd"], c.vocab, w.get("output.bias"))
