"""Qwen3 (Yang et al. 2025, https://arxiv.org/abs/2505.09388).

Llama whose queries and keys are normalised in each head. No biases; rotated pairs lie half a head apart.
"""

from llamay_models.architectures.blocks import feed_forward, head
from llamay_models.architectures.hyperparameters import Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.plan import Trace, Value, Weights


def qwen3(g: Trace, c: Transformer, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i, b in enumerate(c.blocks):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        q = g.linear(h, w[i, "attn_q"], b.heads * b.k_dim)
        k = g.linear(h, w[i, "attn_k"], b.kv_heads * b.k_dim)
        v = g.linear(h, w[i, "attn_v"], b.kv_heads * b.v_dim)
        q = g.rope(g.rms_norm(q, w[i, "attn_q_norm"], c.eps, b.heads), b.heads, b.rope)
        k = g.rope(g.rms_norm(k, w[i, "attn_k_norm"], c.eps, b.kv_heads), b.kv_heads, b.rope)
        h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale)
        x = g.add(x, g.linear(h, w[i, "attn_output"], c.width))
        x = g.add(x, feed_forward(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), b, w, i))
    return head(g, x, c, w)


def config(keys: Keys) -> Transformer:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    return Transformer(**read_transformer(keys, "half"))
