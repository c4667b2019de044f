"""An architecture for tests: layers that keep a state, and layers of attention, perhaps over a window, in turn."""

from dataclasses import dataclass

from llamay_models.architectures import Architecture, Keys
from llamay_models.architectures.blocks import head
from llamay_models.architectures.mamba2 import Mamba2, mixer
from llamay_models.architectures.mamba2 import config as read
from llamay_models.plan import Rope, Trace, Value, Weights

KEYS = {
    "block_count": 2,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 48,
    "ssm.state_size": 6,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 2,
}


@dataclass(frozen=True)
class Hybrid(Mamba2):
    window: int


def config(keys: Keys) -> Hybrid:
    return Hybrid(**vars(read(keys)), window=keys.integer("attention.sliding_window", 0, low=0))


def hybrid(g: Trace, c: Hybrid, w: Weights) -> Value:
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    for i in range(c.layers):
        h = g.rms_norm(x, w[i, "attn_norm"], c.eps)
        x = g.add(x, attend(g, h, c, w, i) if i % 2 else mixer(g, h, c, w, i))
    return head(g, x, c, w)


def attend(g: Trace, h: Value, c: Hybrid, w: Weights, i: int) -> Value:
    q, k, v = (g.linear(h, w[i, f"attn_{name}"], 16) for name in "qkv")
    rope = Rope(dims=8, base=10000.0, style="half")
    q, k = g.rope(q, 2, rope), g.rope(k, 2, rope)
    out = g.attention(i, q, k, v, heads=2, kv_heads=2, scale=0.35, window=c.window)
    return g.linear(out, w[i, "attn_output"], c.width)


HYBRID = Architecture("hybrid", hybrid, config)
