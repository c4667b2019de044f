"""Gemma 3 (Gemma Team 2025, https://arxiv.org/abs/2503.19786).

What differs from Llama: embeddings times sqrt(width); norms on queries and keys, and again after attention
and MLP; GELU; five layers of six look back only `window` positions and rotate with a base of their own,
every sixth sees everything.
"""

import math
from dataclasses import dataclass

from llamay_models.architectures._decoder import Decoder, gated_mlp, head, read_decoder
from llamay_models.architectures._keys import Keys
from llamay_models.plan import Rope, Trace, Value, Weights

# The 27B model scales by its width per head instead of the head's own size; its depth is what tells it apart.
_LAYERS_OF_27B = 62


@dataclass(frozen=True)
class Gemma3(Decoder):
    """Adds the local layers: their window (0: none), how often a global one comes, and their rotation."""

    window: int
    period: int
    local_rope: Rope
    logit_softcap: float

    def is_local(self, layer: int) -> bool:
        """Whether the layer sees only its window."""
        return self.window > 0 and layer % self.period < self.period - 1


def gemma3(g: Trace, c: Gemma3, w: Weights) -> Value:
    """Return the model, for one row."""
    x = g.scale(g.embed(w["token_embd"], c.vocab, c.width), math.sqrt(c.width))
    for i in range(c.layers):
        rope, window = (c.local_rope, c.window) if c.is_local(i) else (c.rope, 0)
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        q = g.linear(h, w[i, "attn_q"], c.heads * c.k_dim)
        k = g.linear(h, w[i, "attn_k"], c.kv_heads * c.k_dim)
        v = g.linear(h, w[i, "attn_v"], c.kv_heads * c.v_dim)
        q = g.rope(g.rms_norm(q, w[i, "attn_q_norm"], c.eps, c.heads), c.heads, rope)
        k = g.rope(g.rms_norm(k, w[i, "attn_k_norm"], c.eps, c.kv_heads), c.kv_heads, rope)
        h = g.attention(i, q, k, v, heads=c.heads, kv_heads=c.kv_heads, scale=c.scale, window=window)
        h = g.linear(h, w[i, "attn_output"], c.width)
        x = g.add(x, g.rms_norm(h, w[i, "post_attention_norm"], c.eps))
        h = gated_mlp(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), c, w, i, "gelu_tanh")
        x = g.add(x, g.rms_norm(h, w[i, "post_ffw_norm"], c.eps))
    logits = head(g, x, c, w)
    return g.softcap(logits, c.logit_softcap) if c.logit_softcap else logits


def config(keys: Keys) -> Gemma3:
    """Hyper-parameters of a file.

    Period and local base have defaults: the first files of this architecture lack both keys.
    """
    common = read_decoder(keys, "half")
    if common["layers"] == _LAYERS_OF_27B:
        common["scale"] = 1.0 / math.sqrt(common["width"] // common["heads"])
    return Gemma3(
        **common,
        window=keys.integer("attention.sliding_window", 0, low=0),
        period=keys.integer("attention.sliding_window_pattern", 6),
        local_rope=Rope(common["rope"].dims, keys.real("rope.freq_base_swa", 10000.0), "half"),
        logit_softcap=keys.real("final_logit_softcapping", 0.0, positive=False),
    )
