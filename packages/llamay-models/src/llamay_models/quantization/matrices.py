"""Finding the matrices that engines multiply, or look rows up in: only these are quantized.

A tensor is judged by its name, which says how engines read it. Names are in groups, each with the reason why it is
quantized or kept. A name that is in no group is kept as it is: an engine that reads it by element could not
load the file, and one that multiplies it reads F32 and F16, too. Of the tensors in a group llama.cpp's
`llama-quantize` keeps nearly the same (`src/llama-quant.cpp`); it quantizes names that it does not know.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TensorName:
    """The parts of a tensor's name.

    Attributes:
        stack: whose layers it is counted among, such as "blk" or "enc.blk"; "" outside of layers.
        layer: its number in the stack; 0 outside of layers.
        stem: the name within the layer without ".weight", other numbers as "*", such as "attn_q" or "ffn_up.*".

    """

    stack: str
    layer: int
    stem: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision whether a tensor is quantized, and its reason.

    Attributes:
        quantized: whether it gets a format of the mix.
        reason: what it is: its group, "vector", or that no rule knows it.
        known: whether it is in a group, or a vector.

    """

    quantized: bool
    reason: str
    known: bool = True


_LAYER = re.compile(r"((?:(?:enc|dec|v|a)\.)?blk)\.(\d+)\.(.+)")
_NUMBER = re.compile(r"\.\d+(?=\.|$)")


def read_name(name: str) -> TensorName:
    """Return what a tensor's name says."""
    found = _LAYER.fullmatch(name)
    stack, layer, rest = found.groups() if found else ("", "0", name)
    return TensorName(stack, int(layer), _NUMBER.sub(".*", rest.removesuffix(".weight")))


# Quantized, where they have two axes. Engines take rows out of tables and dequantize each by itself; everything else
# they multiply, in the format of the file.
_TABLES = "token_embd per_layer_token_embd nextn.embed_tokens"
_MULTIPLIED = """
    output cls cls.output dense_2 dense_3 fc nextn.pre_projection nextn.post_projection
    attn_q attn_k attn_v attn_qkv attn_output attn_out attn_o attn_gate
    attn_q_a attn_q_b attn_kv attn_kv_a_mqa attn_kv_b attn_output_a attn_output_b
    attn_compressor_kv attn_compressor_gate indexer_compressor_kv indexer_compressor_gate
    indexer.attn_k indexer.attn_q_b indexer.proj
    cross_attn_q cross_attn_k cross_attn_v cross_attn_o
    ffn_gate ffn_up ffn_down ffn_gate_shexp ffn_up_shexp ffn_down_shexp ffn_latent_up ffn_latent_down
    vis_attn_qkv vis_attn_output vis_gate vis_up vis_down
    inp_gate proj nextn.eh_proj nextn.shared_head_head
    ssm_in ssm_x ssm_dt ssm_out ssm_ba ssm_alpha ssm_beta ssm_f_a ssm_f_b ssm_g_a ssm_g_b
    shortconv.in_proj shortconv.out_proj convnext.*.pw1 convnext.*.pw2
    time_mix_key time_mix_value time_mix_receptance time_mix_gate time_mix_output
    channel_mix_key channel_mix_value channel_mix_receptance
"""
# These may have three axes: a matrix for each expert or head. Old files have a tensor for each expert instead.
_EXPERTS = """
    ffn_gate_exps ffn_up_exps ffn_down_exps ffn_gate_up_exps ffn_gate_chexps ffn_up_chexps ffn_down_chexps
    ffn_gate.* ffn_up.* ffn_down.*
"""
_HEADS = "attn_k_b attn_v_b"

_QUANTIZED = {
    stem: reason
    for names, reason in (
        (_TABLES, "table of rows"),
        (_MULTIPLIED, "matrix"),
        (_EXPERTS, "matrix of each expert"),
        (_HEADS, "matrix of each head"),
    )
    for stem in names.split()
}
_STACKED = frozenset((_EXPERTS + _HEADS).split())
EXPERTS = frozenset(_EXPERTS.split())
"""The stems of experts, which are most of a model that has them."""

# Kept, by the group's reason: stems, or with "…" what stems begin with. Engines read kernels, states and tables by
# element and expect F32 or F16 there.
_KEPT = {
    "kernel of a convolution": """
        ssm_conv1d… shortconv.conv conv1d convnext.*.dw posnet… ple_conv1d
        patch_embd… v.patch_embd… v.conv… v.sam.neck… v.sam.net_… conv_dw a.conv… mm.model.peg…
    """,
    "numbers of a recurrent state": """
        ssm_a ssm_d time_mix_first time_mix_decay time_mix_lerp… channel_mix_lerp…
        time_mix_w0 time_mix_a0 time_mix_v0 time_mix_k_k time_mix_k_a time_mix_r_k
    """,
    # Engines read slices of some, and rounding errors in a decay add up over a text.
    "small matrix of RWKV's decay and gates": """
        time_mix_w1 time_mix_w2 time_mix_a1 time_mix_a2 time_mix_v1 time_mix_v2 time_mix_g1 time_mix_g2
        time_mix_decay_w1 time_mix_decay_w2
    """,
    # A rounding error there does not make an answer a little worse, but chooses another expert.
    "router": "ffn_gate_inp… ffn_gate_tid2eid altup_router",
    "table of positions or types": """
        position_embd token_types v.position_embd v.sam.pos_embd a.position_embd pos_embd… attn_rel_b cross_attn_rel_b
        attn_compressor_ape indexer_compressor_ape rope_freqs rope_factors… attn_rot_embd…
    """,
    "small matrix that mixes parallel streams": "altup… laurel… hc_… output_hc_… nextn.hc_… per_layer_model_proj",
    "small matrix of an indexer": "indexer.k_proj indexer.q_proj",
    "code book": "a.rvq.codebook… mm.a.code_embd",
}
_KEPT_STEMS = {stem: reason for reason, stems in _KEPT.items() for stem in stems.split() if stem[-1] != "…"}
_KEPT_STARTS = {
    stem[:-1]: reason for reason, stems in _KEPT.items() for stem in stems.split() if stem[-1] == "…"
}


def judge(name: str, shape: tuple[int, ...]) -> Verdict:
    """Return whether a tensor is quantized, by its name and shape; the last axis is that of rows."""
    stem, axes = read_name(name).stem, len(shape)
    while axes and shape[len(shape) - axes] == 1:
        axes -= 1  # files have vectors as matrices of one row, too
    if axes < 2:
        return Verdict(False, "vector")
    if not name.endswith(".weight"):
        if stem.endswith((".bias", ".scale")):
            return Verdict(False, "bias or scale of each expert")
        reason = _kept(stem)
        return Verdict(False, reason) if reason else _unknown()
    if "norm" in stem:
        return Verdict(False, "norm")
    if (reason := _kept(stem)) is not None:
        return Verdict(False, reason)
    if stem in _QUANTIZED and (axes == 2 or (axes == 3 and stem in _STACKED)):
        return Verdict(True, _QUANTIZED[stem])
    return _unknown()


def _kept(stem: str) -> str | None:
    if stem in _KEPT_STEMS:
        return _KEPT_STEMS[stem]
    return next((reason for start, reason in _KEPT_STARTS.items() if stem.startswith(start)), None)


def _unknown() -> Verdict:
    return Verdict(False, "no rule knows it", known=False)
