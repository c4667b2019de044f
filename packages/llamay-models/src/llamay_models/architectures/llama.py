"""Llama (Touvron et al. 2023, https://arxiv.org/abs/2302.13971), and all that followed its shape.

Such as Mistral, SmolLM and TinyLlama; with experts in place of the MLP, Mixtral (Jiang et al. 2024,
https://arxiv.org/abs/2401.04088).

Pre-norm, rotary positions, grouped-query attention, gated SiLU. GGUF files of this architecture keep
Meta's order of the rotated pairs; Llama 3.1's scaled frequencies come as the tensor `rope_freqs`; some
descendants have biases.
"""

from llamay_models.architectures.blocks import feed_forward, head
from llamay_models.architectures.hyperparameters import Router, Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.plan import Trace, Value, Weights


def llama(g: Trace, c: Transformer, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    factors = w.get("rope_freqs")
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i, b in enumerate(c.blocks):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        q = g.linear(h, w[i, "attn_q"], b.heads * b.k_dim, w.get((i, "attn_q", "bias")))
        k = g.linear(h, w[i, "attn_k"], b.kv_heads * b.k_dim, w.get((i, "attn_k", "bias")))
        v = g.linear(h, w[i, "attn_v"], b.kv_heads * b.v_dim, w.get((i, "attn_v", "bias")))
        q, k = g.rope(q, b.heads, b.rope, factors), g.rope(k, b.kv_heads, b.rope, factors)
        h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale)
        x = g.add(x, g.linear(h, w[i, "attn_output"], c.width, w.get((i, "attn_output", "bias"))))
        x = g.add(x, feed_forward(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), b, w, i))
    return head(g, x, c, w)


def config(keys: Keys) -> Transformer:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    return Transformer(**read_transformer(keys, "pairs", router=Router("softmax", norm=True)))
