"""LFM2 (Liquid AI 2025, https://arxiv.org/abs/2511.23404).

Most layers have a short gated convolution in place of attention; the others are Qwen3's. The last norm is named after
the embeddings, which are the output matrix, too.
"""

from dataclasses import dataclass

from llamay_models.architectures.blocks import feed_forward
from llamay_models.architectures.hyperparameters import MAX_HEADS, Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.plan import Trace, Value, Weights


@dataclass(frozen=True)
class Lfm2(Transformer):
    """Adds the taps of the convolutions."""

    taps: int


def lfm2(g: Trace, c: Lfm2, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i, b in enumerate(c.blocks):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        if b.is_recurrent:
            h = short_conv(g, h, c, w, i)
        else:
            q = g.linear(h, w[i, "attn_q"], b.heads * b.k_dim)
            k = g.linear(h, w[i, "attn_k"], b.kv_heads * b.k_dim)
            v = g.linear(h, w[i, "attn_v"], b.kv_heads * b.v_dim)
            q = g.rope(g.rms_norm(q, w[i, "attn_q_norm"], c.eps, b.heads), b.heads, b.rope)
            k = g.rope(g.rms_norm(k, w[i, "attn_k_norm"], c.eps, b.kv_heads), b.kv_heads, b.rope)
            h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale)
            h = g.linear(h, w[i, "attn_output"], c.width)
        x = g.add(x, h)
        x = g.add(x, feed_forward(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), b, w, i))
    norm = w.get("output_norm") or w["token_embd_norm"]  # converters disagree about the name
    return g.linear(g.rms_norm(g.select(x), norm, c.eps), w.get("output") or w["token_embd"], c.vocab)


def short_conv(g: Trace, h: Value, c: Lfm2, w: Weights, i: int) -> Value:
    """Return `out(after * conv(before * inner))`, of width c.width.

    Both gates and the inner values come from one product.
    """
    before, after, inner = g.linear_split(h, w[i, "shortconv.in_proj"], (c.width,) * 3)
    y = g.conv(i, g.mul(before, inner), w[i, "shortconv.conv"], c.taps)
    return g.linear(g.mul(after, y), w[i, "shortconv.out_proj"], c.width)


def config(keys: Keys) -> Lfm2:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    fields = read_transformer(keys, "half", hybrid=True)
    return Lfm2(**fields, taps=keys.integer("shortconv.l_cache", low=2, high=MAX_HEADS))
