"""An architecture for tests whose rotations turn pairs by several axes of a row's position."""

from dataclasses import dataclass

from llamay_models.architectures import Architecture, Config, Keys
from llamay_models.architectures.blocks import head
from llamay_models.architectures.hyperparameters import read_config
from llamay_models.plan import Rope, Trace, Value, Weights

KEYS = {"block_count": 2}
AXES = (0, 1, 2, 0)


def config(keys: Keys) -> Config:
    return Turned(**read_config(keys, "attention.layer_norm_rms_epsilon"))


@dataclass(frozen=True)
class Turned(Config):
    pass


def turned(g: Trace, c: Config, w: Weights) -> Value:
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    rope = Rope(dims=8, base=100.0, style="half")
    for i in range(c.layers):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        q, k, v = (g.linear(h, w[i, f"attn_{name}"], 16) for name in "qkv")
        q, k = g.rope(q, 2, rope, axes=AXES), g.rope(k, 2, rope, axes=AXES)
        h = g.attention(i, q, k, v, heads=2, kv_heads=2, scale=0.35)
        x = g.add(x, g.linear(h, w[i, "attn_output"], c.width))
    return head(g, x, c, w)


TURNED = Architecture("turned", turned, config)
