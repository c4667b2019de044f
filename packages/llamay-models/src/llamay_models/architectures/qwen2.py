"""Qwen2 and Qwen2.5 (Yang et al.

2024, https://arxiv.org/abs/2407.10671): Llama whose queries, keys and values have a bias.

Rotated pairs lie half a head apart.
"""

from llamay_models.architectures._decoder import Decoder, gated_mlp, head, read_decoder
from llamay_models.architectures._keys import Keys
from llamay_models.plan import Trace, Value, Weights


def qwen2(g: Trace, c: Decoder, w: Weights) -> Value:
    """Return the model, for one row."""
    x = g.embed(w["token_embd"], c.vocab, c.width)
    for i in range(c.layers):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        q = g.linear(h, w[i, "attn_q"], c.heads * c.k_dim, w[i, "attn_q", "bias"])
        k = g.linear(h, w[i, "attn_k"], c.kv_heads * c.k_dim, w[i, "attn_k", "bias"])
        v = g.linear(h, w[i, "attn_v"], c.kv_heads * c.v_dim, w[i, "attn_v", "bias"])
        q, k = g.rope(q, c.heads, c.rope), g.rope(k, c.kv_heads, c.rope)
        h = g.attention(i, q, k, v, heads=c.heads, kv_heads=c.kv_heads, scale=c.scale)
        x = g.add(x, g.linear(h, w[i, "attn_output"], c.width))
        x = g.add(x, gated_mlp(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), c, w, i))
    return head(g, x, c, w)


def config(keys: Keys) -> Decoder:
    """Hyper-parameters of a file."""
    return Decoder(**read_decoder(keys, "half"))
