"""GPT-2 (Radford et al. 2019, Language Models are Unsupervised Multitask Learners).

https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf

The differences from Llama: positions are learned and added to the embeddings, so a context is never longer
than their table; layer norms and biases everywhere; queries, keys and values are one matrix; the MLP has
no gate.
"""

from llamay_models.architectures.hyperparameters import Transformer, read_transformer
from llamay_models.architectures.keys import Keys
from llamay_models.plan import Trace, Value, Weights


def gpt2(g: Trace, c: Transformer, w: Weights) -> Value:
    """Return the logits that follow one row, of width c.vocab: the whole model in operations of g."""
    x = g.given(g.embed(w["token_embd"], c.vocab, c.width))
    x = g.add(x, g.embed_positions(w["position_embd"], c.context_length, c.width))
    for i, b in enumerate(c.blocks):
        widths = (b.heads * b.k_dim, b.kv_heads * b.k_dim, b.kv_heads * b.v_dim)
        h = g.layer_norm(x, w[i, "attn_norm"], w[i, "attn_norm", "bias"], c.eps)
        q, k, v = g.linear_split(h, w[i, "attn_qkv"], widths, w[i, "attn_qkv", "bias"])
        h = g.attention(i, q, k, v, heads=b.heads, kv_heads=b.kv_heads, scale=b.scale)
        x = g.add(x, g.linear(h, w[i, "attn_output"], c.width, w[i, "attn_output", "bias"]))
        h = g.layer_norm(x, w[i, "ffn_norm"], w[i, "ffn_norm", "bias"], c.eps)
        h = g.gelu_tanh(g.linear(h, w[i, "ffn_up"], b.hidden, w[i, "ffn_up", "bias"]))
        x = g.add(x, g.linear(h, w[i, "ffn_down"], c.width, w[i, "ffn_down", "bias"]))
    x = g.layer_norm(g.select(x), w["output_norm"], w["output_norm.bias"], c.eps)
    return g.linear(x, w.get("output") or w["token_embd"], c.vocab)


def config(keys: Keys) -> Transformer:
    """Return the hyper-parameters that metadata has. Raises MetadataError that names the key."""
    return Transformer(**read_transformer(keys, None, eps="attention.layer_norm_epsilon"))
