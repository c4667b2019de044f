"""Models with layers that keep a state or the inputs of a convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
from family import ATTENTION, COMMON, EPS, EXPERTS, KEYS, KV_HEADS, Family
from layouts import conv, fused_experts
from names import JAMBA, LFM2, MAMBA
from numpy.typing import NDArray

SSM = {
    "mamba": {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 6, "ssm.time_step_rank": 5},
    "mamba2": {
        "ssm.conv_kernel": 4,
        "ssm.inner_size": 64,
        "ssm.state_size": 7,
        "ssm.time_step_rank": 4,
        "ssm.group_count": 2,
        "attention.layer_norm_rms_epsilon": EPS,
    },
}
MIXER: dict[str, Any] = {
    "state_size": 6,
    "conv_kernel": 4,
    "intermediate_size": 64,
    "expand": 2,
    "time_step_rank": 5,
    "layer_norm_epsilon": EPS,
}


def logarithm(stored: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mixers keep log(-a); files have a."""
    return np.log(-stored)


MIXER_FILE: dict[str, Any] = {"layouts": {"ssm_conv1d.weight": conv}, "values": {"ssm_a": logarithm}}

RECURRENT_MODELS: dict[str, Family] = {
    "mamba": Family(
        "mamba",
        "MambaForCausalLM",
        {**COMMON, **MIXER},
        {**SSM["mamba"], "attention.layer_norm_rms_epsilon": EPS},
        MAMBA,
        **MIXER_FILE,
    ),
    "falcon-mamba": Family(
        "mamba",
        "FalconMambaForCausalLM",
        {**COMMON, **MIXER, "mixer_rms_eps": EPS, "tie_word_embeddings": False},
        {**SSM["mamba"], "attention.layer_norm_rms_epsilon": EPS, "ssm.dt_b_c_rms": True},
        MAMBA,
        **MIXER_FILE,
    ),
    "mamba2": Family(
        "mamba2",
        "Mamba2ForCausalLM",
        {
            **COMMON,
            "state_size": 7,
            "conv_kernel": 4,
            "expand": 2,
            "num_heads": 4,
            "head_dim": 16,
            "n_groups": 2,
            "chunk_size": 8,
            "layer_norm_epsilon": EPS,
        },
        SSM["mamba2"],
        MAMBA,
        **MIXER_FILE,
    ),
    "jamba": Family(
        "jamba",
        "JambaForCausalLM",
        {
            **COMMON,
            **ATTENTION,
            "num_hidden_layers": 3,
            "intermediate_size": 16,
            "attn_layer_period": 3,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "num_experts": 5,
            "num_experts_per_tok": 2,
            "mamba_d_state": 6,
            "mamba_d_conv": 4,
            "mamba_expand": 1,
            "mamba_dt_rank": 5,
        },
        {
            **KEYS,
            **SSM["mamba"],
            **EXPERTS,
            "ssm.inner_size": 32,
            "block_count": 3,
            "feed_forward_length": 16,
            "attention.head_count_kv": [0, KV_HEADS, 0],
        },
        JAMBA,
        {"ssm_conv1d.weight": conv, "ffn_{}_exps.weight": fused_experts},
        {"ssm_a": logarithm},
    ),
    "lfm2": Family(
        "lfm2",
        "Lfm2ForCausalLM",
        {
            **COMMON,
            **ATTENTION,
            "num_hidden_layers": 3,
            "norm_eps": EPS,
            "conv_L_cache": 3,
            "block_auto_adjust_ff_dim": False,
            "layer_types": ["conv", "full_attention", "conv"],
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        },
        {
            **KEYS,
            "block_count": 3,
            "attention.head_count_kv": [0, KV_HEADS, 0],
            "shortconv.l_cache": 3,
            "rope.freq_base": 10000.0,
        },
        LFM2,
        {"shortconv.conv.weight": conv},
    ),
}
