"""Models with attention in every layer."""

from __future__ import annotations

import numpy as np
from family import (
    ATTENTION,
    COMMON,
    CONTEXT,
    EPS,
    EXPERTS,
    HEAD,
    HEAD_KEYS,
    HEADS,
    HIDDEN,
    KEYS,
    KV_HEADS,
    VOCABULARY,
    WIDTH,
    Family,
)
from layouts import fused_experts, rotated_pairs, transposed
from names import BERT, GEMMA3, GPT2, LLAMA
from numpy.typing import NDArray

PAIRS = {"attn_q": rotated_pairs(HEADS), "attn_k": rotated_pairs(KV_HEADS)}
FUSED = {"ffn_{}_exps.weight": fused_experts}


def above_one(stored: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gemma adds 1 to the weights of its norms; files have the sum."""
    return stored - 1


ATTENTION_MODELS: dict[str, Family] = {
    "llama": Family(
        "llama",
        "LlamaForCausalLM",
        {**COMMON, **ATTENTION, "head_dim": HEAD, "attention_bias": True, "mlp_bias": True},
        {**KEYS, **HEAD_KEYS, "rope.freq_base": 10000.0},
        LLAMA,
        PAIRS,
    ),
    # As Llama 3.1 and later: frequencies are divided by a tensor, and the embedding table is the output matrix, too.
    "llama3": Family(
        "llama",
        "LlamaForCausalLM",
        {
            **COMMON,
            **ATTENTION,
            "head_dim": HEAD,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 256,
            },
        },
        {**KEYS, **HEAD_KEYS, "rope.freq_base": 10000.0},
        LLAMA,
        PAIRS,
        divided=True,
    ),
    "mixtral": Family(
        "llama",
        "MixtralForCausalLM",
        {
            **COMMON,
            **ATTENTION,
            "head_dim": HEAD,
            "intermediate_size": 16,
            "num_local_experts": 5,
            "num_experts_per_tok": 2,
            "sliding_window": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
        {**KEYS, **HEAD_KEYS, **EXPERTS, "feed_forward_length": 16, "rope.freq_base": 1e6},
        LLAMA,
        {**PAIRS, **FUSED},
    ),
    # Rotation stretched as Qwen2.5's long contexts are, with pairs that turn fast, slowly and in between.
    "qwen2": Family(
        "qwen2",
        "Qwen2ForCausalLM",
        {
            **COMMON,
            **ATTENTION,
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 4096,
            },
        },
        {
            **KEYS,
            "rope.freq_base": 10000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 4096,
        },
        LLAMA,
    ),
    "qwen3": Family(
        "qwen3",
        "Qwen3ForCausalLM",
        {**COMMON, **ATTENTION, "head_dim": HEAD},
        {**KEYS, **HEAD_KEYS, "rope.freq_base": 10000.0},
        LLAMA,
    ),
    "qwen3moe": Family(
        "qwen3moe",
        "Qwen3MoeForCausalLM",
        {
            **COMMON,
            **ATTENTION,
            "head_dim": HEAD,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "norm_topk_prob": True,
        },
        {**KEYS, **HEAD_KEYS, **EXPERTS, "expert_feed_forward_length": 16, "rope.freq_base": 10000.0},
        LLAMA,
        FUSED,
    ),
    # Two local layers to a global one; only the global one's rotation is stretched.
    "gemma3": Family(
        "gemma3",
        "Gemma3ForCausalLM",
        {
            **COMMON,
            **ATTENTION,
            "num_hidden_layers": 3,
            "head_dim": HEAD,
            "query_pre_attn_scalar": HEAD,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "final_logit_softcapping": None,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 100000.0, "factor": 8.0},
            },
        },
        {
            **KEYS,
            **HEAD_KEYS,
            "block_count": 3,
            "attention.sliding_window": 5,
            "attention.sliding_window_pattern": 3,
            "rope.freq_base": 100000.0,
            "rope.freq_base_swa": 1000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        },
        GEMMA3,
        values={
            f"{name}.weight": above_one
            for name in (
                *("attn_norm", "attn_q_norm", "attn_k_norm", "post_attention_norm"),
                *("ffn_norm", "post_ffw_norm", "output_norm"),
            )
        },
    ),
    "gpt2": Family(
        "gpt2",
        "GPT2LMHeadModel",
        {
            "vocab_size": VOCABULARY,
            "n_embd": WIDTH,
            "n_layer": 2,
            "n_head": HEADS,
            "n_inner": HIDDEN,
            "n_positions": CONTEXT,
            "layer_norm_epsilon": EPS,
        },
        {
            "attention.head_count": HEADS,
            "feed_forward_length": HIDDEN,
            "attention.layer_norm_epsilon": EPS,
        },
        GPT2,
        {f"{name}.weight": transposed for name in ("attn_qkv", "attn_output", "ffn_up", "ffn_down")},
    ),
    "bert": Family(
        "bert",
        "BertModel",
        {
            **COMMON,
            "num_attention_heads": HEADS,
            "intermediate_size": HIDDEN,
            "max_position_embeddings": CONTEXT,
            "layer_norm_eps": EPS,
        },
        {
            "attention.head_count": HEADS,
            "feed_forward_length": HIDDEN,
            "attention.layer_norm_epsilon": EPS,
            "attention.causal": False,
        },
        BERT,
        metadata={"tokenizer.ggml.token_type_count": 2},
    ),
}
