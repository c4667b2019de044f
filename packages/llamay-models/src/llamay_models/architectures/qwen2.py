"""Qwen2 and Qwen2.5 (Yang et al. 2024, https://arxiv.org/abs/2407.10671 and https://arxiv.org/abs/2412.15115).

Llama whose queries, keys and values have a bias. Rotated pairs lie half a head apart.
"""

from llamay_models.architectures.blocks import feed_forward, head
from llamay_models.architectures.hyperparameters import Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.plan import Trace, Value, Weights


def qwen2(g: Trace, c: Transformer, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i, b in enumerate(c.blocks):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        q = g.linear(h, w[i, "attn_q"], b.heads * b.k_dim, w[i, "attn_q", "bias"])
        k = g.linear(h, w[i, "attn_k"], b.kv_heads * b.k_dim, w[i, "attn_k", "bias"])
        v = g.linear(h, w[i, "attn_v"], b.kv_heads * b.v_dim, w[i, "attn_v", "bias"])
        q, k = g.rope(q, b.heads, b.rope), g.rope(k, b.kv_heads, b.rope)
        h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale)
        x = g.add(x, g.linear(h, w[i, "attn_output"], c.width))
        x = g.add(x, feed_forward(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), b, w, i))
    return head(g, x, c, w)


def config(keys: Keys) -> Transformer:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    return Transformer(**read_transformer(keys, "half"))
