"""Gemma 3 (Gemma Team 2025, https://arxiv.org/abs/2503.19786).

The differences from Llama: embeddings times sqrt(width); norms on queries and keys, and again after attention
and MLP; GELU; five layers of six look back only `window` positions and rotate with a base of their own,
every sixth sees everything.
"""

import math
from dataclasses import dataclass, replace

from llamay_models.architectures.blocks import feed_forward, head
from llamay_models.architectures.hyperparameters import Block, Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.architectures.rotation import read_base
from llamay_models.plan import Rope, Trace, Value, Weights

# The 27B model scales by its width per head instead of the head's own size; its depth identifies it.
_LAYERS_OF_27B = 62


@dataclass(frozen=True)
class Gemma3(Transformer):
    """Adds a bound of the logits; 0 for none."""

    logit_softcap: float


def gemma3(g: Trace, c: Gemma3, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.scale(g.embed(w["token_embd"], c.vocab, c.width), math.sqrt(c.width)))
    for i, b in enumerate(c.blocks):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        q = g.linear(h, w[i, "attn_q"], b.heads * b.k_dim)
        k = g.linear(h, w[i, "attn_k"], b.kv_heads * b.k_dim)
        v = g.linear(h, w[i, "attn_v"], b.kv_heads * b.v_dim)
        q = g.rope(g.rms_norm(q, w[i, "attn_q_norm"], c.eps, b.heads), b.heads, b.rope)
        k = g.rope(g.rms_norm(k, w[i, "attn_k_norm"], c.eps, b.kv_heads), b.kv_heads, b.rope)
        h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale, window=b.window)
        h = g.linear(h, w[i, "attn_output"], c.width)
        x = g.add(x, g.rms_norm(h, w[i, "post_attention_norm"], c.eps))
        h = feed_forward(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), b, w, i, "gelu_tanh")
        x = g.add(x, g.rms_norm(h, w[i, "post_ffw_norm"], c.eps))
    logits = head(g, x, c, w)
    return g.softcap(logits, c.logit_softcap) if c.logit_softcap else logits


def config(keys: Keys) -> Gemma3:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key.

    Which layers are local, and their base, have defaults: the first files of this architecture lack both keys.
    """
    fields = read_transformer(keys, "half")
    window = keys.integer("attention.sliding_window", 0, low=0)
    local = keys.local_layers("attention.sliding_window_pattern", fields["layers"], 6)
    base = read_base(keys, "rope.freq_base_swa")

    def own(b: Block, is_local: bool) -> Block:
        if fields["layers"] == _LAYERS_OF_27B:
            b = replace(b, scale=1.0 / math.sqrt(fields["width"] // b.heads))
        if not (is_local and window) or b.rope is None:
            return b
        # The stretched rotation of global layers does not apply to them.
        return replace(b, window=window, rope=Rope(b.rope.dims, base, "half"))

    fields["blocks"] = tuple(own(b, is_local) for b, is_local in zip(fields["blocks"], local, strict=True))
    return Gemma3(**fields, logit_softcap=keys.real("final_logit_softcapping", 0.0, positive=False))
