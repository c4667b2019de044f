"""BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805), and the sentence encoders that are made of it.

Such as MiniLM, BGE, GTE, E5 and XLM-RoBERTa (Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084).

Every row sees its whole text, so a text is one step and nothing is kept. Positions and types of tokens are learned;
norms come after attention and MLP; the MLP has no gate. The outputs are not logits but hidden states: of each row, or
of each text, as the file pools them.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from llamay_models.architectures.hyperparameters import Output, Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.errors import MetadataError
from llamay_models.plan import Trace, Value, Weights

Pooling = Literal["none", "mean", "cls", "last"]

_RANK = 4  # a head that scores the first row, which is not part of the plan


@dataclass(frozen=True)
class Bert(Transformer):
    """Adds how many types tokens have, and how a text's rows become one."""

    types: int
    pooling: Pooling

    @property
    def output(self) -> Output:
        """Hidden states, of rows or of texts."""
        return "rows" if self.pooling == "none" else "pooled"


def bert(g: Trace, c: Bert, w: Weights) -> Value:
    """Return hidden states, of width c.width, of rows or pooled of texts: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    x = g.add(x, g.embed_positions(w["position_embd"], c.context_length, c.width))
    if (types := w.get("token_types")) is not None:
        x = g.add(x, g.embed_types(types, c.types, c.width))
    x = g.layer_norm(x, w["token_embd_norm"], w["token_embd_norm.bias"], c.eps)
    for i, b in enumerate(c.blocks):
        q, k, v = (
            g.linear(x, w[i, f"attn_{name}"], heads * size, w[i, f"attn_{name}", "bias"])
            for name, heads, size in (
                ("q", b.heads, b.k_dim),
                ("k", b.kv_heads, b.k_dim),
                ("v", b.kv_heads, b.v_dim),
            )
        )
        h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale, mask="full")
        h = g.linear(h, w[i, "attn_output"], c.width, w[i, "attn_output", "bias"])
        x = g.layer_norm(g.add(x, h), w[i, "attn_output_norm"], w[i, "attn_output_norm", "bias"], c.eps)
        h = g.unary(g.linear(x, w[i, "ffn_up"], b.hidden, w[i, "ffn_up", "bias"]), "gelu_erf")
        h = g.linear(h, w[i, "ffn_down"], c.width, w[i, "ffn_down", "bias"])
        x = g.layer_norm(g.add(x, h), w[i, "layer_output_norm"], w[i, "layer_output_norm", "bias"], c.eps)
    return g.select(x) if c.pooling == "none" else g.pool(x, c.pooling)


def config(keys: Keys) -> Bert:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    if keys.flag("attention.causal", False):
        raise MetadataError(
            f"{keys.name('attention.causal')} is true, but rows of {keys.architecture} see their whole text"
        )
    number = keys.integer("pooling_type", 0, low=0, high=_RANK)
    is_classifier = number == _RANK or keys.has("classifier.output_labels")
    return Bert(
        **read_transformer(keys, None, eps="attention.layer_norm_epsilon"),
        types=keys.token_types(),
        pooling="cls" if is_classifier else get_args(Pooling)[number],
    )
