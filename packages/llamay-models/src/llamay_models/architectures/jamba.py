"""Jamba (Lieber et al. 2024, https://arxiv.org/abs/2403.19887).

Most layers have a state, as Mamba's do, and the others attention, without rotation: states know where they are. Layers
with a router have experts in place of the MLP, whose weights are their share among all experts.
"""

from dataclasses import dataclass, replace

from llamay_models.architectures.blocks import feed_forward, head
from llamay_models.architectures.hyperparameters import Router, Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.architectures.mamba import Mixer, mixer, read_mixer
from llamay_models.plan import Trace, Value, Weights


@dataclass(frozen=True)
class Jamba(Transformer):
    """Adds the numbers of its mixers."""

    mixer: Mixer


def jamba(g: Trace, c: Jamba, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i, b in enumerate(c.blocks):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        if b.is_recurrent:
            h = mixer(g, h, c.mixer, c.eps, w, i)
        else:
            q = g.linear(h, w[i, "attn_q"], b.heads * b.k_dim)
            k = g.linear(h, w[i, "attn_k"], b.kv_heads * b.k_dim)
            v = g.linear(h, w[i, "attn_v"], b.kv_heads * b.v_dim)
            h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale)
            h = g.linear(h, w[i, "attn_output"], c.width)
        x = g.add(x, h)
        if w.get((i, "ffn_gate_inp")) is None:
            b = replace(b, experts=None)  # no key says which layers have them
        x = g.add(x, feed_forward(g, g.rms_norm(x, w[i, "ffn_norm"], c.eps), b, w, i))
    return head(g, x, c, w)


def config(keys: Keys) -> Jamba:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    fields = read_transformer(keys, None, router=Router("softmax", norm=False), hybrid=True)
    return Jamba(**fields, mixer=read_mixer(keys, normed=True))
