"""The format that each tensor of a quantized model gets: llama.cpp's mixes, as data.

A mix spends more bits where rounding hurts most: the output matrix, the values of attention, the way down
from the MLP, and the first and last layers; and in a model of eight experts more for attention, which is small
beside them. Names, numbers and choices are those of llama.cpp's `llama-quantize` without an importance matrix. Which
tensors are quantized at all is not said here but in `matrices`.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from llamay_models.quantization.matrices import EXPERTS, read_name
from llamay_models.quantization.rules import (
    Choice,
    Place,
    chosen,
    early,
    eight_experts,
    first,
    grouped,
    in_70b,
    in_falcon,
    outer,
    sixteenth,
)


@dataclass(frozen=True)
class Mix:
    """A named choice of formats.

    Attributes:
        file_type: the number of `general.file_type`.
        base: the format of every matrix that no rule names.
        rules: by the role of a matrix, such as "attn_v".
        output: the matrix of logits; of a tied model, its embedding table.
        embedding: the table of an untied model.
        beside_experts: the format of whatever is no expert in a model with experts; None where the rules say it.

    """

    file_type: int
    base: str
    rules: MappingProxyType[str, Choice]
    output: str
    embedding: str
    beside_experts: str | None = None


def _mix(
    file_type: int,
    base: str,
    *,
    output: str = "Q6_K",
    embedding: str | None = None,
    beside_experts: str | None = None,
    **rules: Choice,
) -> Mix:
    """Return a mix; of eight experts, keys and values are Q8_0, which costs little beside the experts."""
    rules["attn_v"] = eight_experts("Q8_0", in_70b(base, rules.get("attn_v")))
    rules["attn_kv_b"] = rules["attn_v"]
    rules["attn_qkv"] = eight_experts("Q8_0", rules.get("attn_qkv"))
    rules["attn_k"] = eight_experts("Q8_0", rules.get("attn_k"))
    return Mix(file_type, base, MappingProxyType(rules), output, embedding or base, beside_experts)


def _plain(file_type: int, name: str) -> Mix:
    return Mix(file_type, name, MappingProxyType({}), name, name)


def _smallest(file_type: int, base: str, *, few: str, attn_output: Choice | None = None) -> Mix:
    """Return a mix of less than three bits; `few` is what it has in place of Q4_K and Q5_K where those are too much."""

    def values(place: Place) -> str:
        return "Q4_K" if place.shared >= 4 or place.experts >= 4 else few

    rules: dict[str, Choice] = {
        **dict.fromkeys(("attn_v", "attn_qkv", "attn_kv_b"), values),
        "attn_k": eight_experts("Q4_K"),
        "ffn_down": early(few),
        "attn_output": eight_experts("Q5_K", attn_output),
    }
    return Mix(file_type, base, MappingProxyType(rules), "Q5_K", few)


_sparing = in_falcon(None, eight_experts("Q5_K"))

MIXES: dict[str, Mix] = {
    "F32": _plain(0, "F32"),
    "F16": _plain(1, "F16"),
    "BF16": _plain(32, "BF16"),
    "Q8_0": _mix(7, "Q8_0", output="Q8_0"),
    "Q4_0": _mix(2, "Q4_0"),
    "Q4_1": _mix(3, "Q4_1"),
    "Q5_0": _mix(8, "Q5_0"),
    "Q5_1": _mix(9, "Q5_1"),
    "Q2_K": _mix(
        10,
        "Q2_K",
        attn_v=grouped("Q4_K", "Q3_K"),
        ffn_down="Q3_K",
        attn_output=in_falcon(None, eight_experts("Q5_K", "Q3_K")),
    ),
    "Q3_K_S": _mix(11, "Q3_K", attn_output=_sparing),
    "Q3_K_M": _mix(
        12,
        "Q3_K",
        attn_v=first(2, "Q5_K", "Q4_K"),
        ffn_down=in_falcon(sixteenth("Q5_K", outer("Q4_K")), sixteenth("Q5_K", "Q4_K")),
        attn_output=in_falcon(None, eight_experts("Q5_K", "Q4_K")),
        attn_qkv="Q4_K",
    ),
    "Q3_K_L": _mix(
        13,
        "Q3_K",
        attn_v="Q5_K",
        ffn_down=in_falcon("Q4_K", "Q5_K"),
        attn_output=in_falcon("Q4_K", eight_experts(None, "Q5_K")),
        attn_qkv="Q4_K",
    ),
    "Q4_K_S": _mix(
        14,
        "Q4_K",
        attn_v=first(4, "Q5_K"),
        ffn_down=in_falcon(None, early("Q5_K")),
        attn_output=_sparing,
    ),
    "Q4_K_M": _mix(
        15,
        "Q4_K",
        attn_v=outer("Q6_K"),
        ffn_down=in_falcon(sixteenth("Q6_K", outer("Q5_K")), outer("Q6_K")),
        attn_output=_sparing,
        attn_qkv="Q5_K",
    ),
    "Q5_K_S": _mix(16, "Q5_K"),
    "Q5_K_M": _mix(17, "Q5_K", attn_v=outer("Q6_K"), ffn_down=outer("Q6_K"), attn_qkv="Q6_K"),
    "Q6_K": _mix(18, "Q6_K"),
    "IQ1_S": _smallest(24, "IQ1_S", few="Q2_K", attn_output="IQ2_XXS"),
    "IQ1_M": _smallest(31, "IQ1_M", few="Q2_K", attn_output="IQ2_XXS"),
    "IQ2_XXS": _smallest(19, "IQ2_XXS", few="Q2_K"),
    "IQ2_XS": _smallest(20, "IQ2_XS", few="Q2_K"),
    "IQ2_S": _smallest(28, "IQ2_XS", few="IQ3_S", attn_output="IQ3_S"),
    "IQ2_M": _smallest(29, "IQ2_S", few="IQ3_S", attn_output="IQ3_S"),
    "IQ3_XXS": _mix(
        23,
        "IQ3_XXS",
        output="Q5_K",
        embedding="IQ3_S",
        attn_v=grouped("Q4_K", "IQ3_S"),
        ffn_down=lambda place: "Q4_K" if place.early else "Q3_K",
        attn_output=in_falcon(None, eight_experts("Q5_K", "IQ3_S")),
    ),
    "IQ3_S": _mix(26, "IQ3_S", attn_v=grouped("Q4_K"), attn_output=_sparing),
    "IQ4_NL": _mix(
        25,
        "IQ4_NL",
        attn_v=grouped("Q5_K"),
        ffn_down=early("Q5_K"),
        attn_output=_sparing,
    ),
    "IQ4_XS": _mix(
        30,
        "IQ4_XS",
        attn_v=grouped("Q5_K"),
        ffn_down=early("Q5_K"),
        attn_output=_sparing,
    ),
    "TQ1_0": _mix(36, "TQ1_0", embedding="Q4_K"),
    "TQ2_0": _mix(37, "TQ2_0", embedding="Q4_K"),
    "MXFP4": _mix(38, "MXFP4", output="Q8_0", beside_experts="Q8_0"),
}
"""The mixes by llama.cpp's names."""

OUTPUT = "output.weight"
TABLE = "token_embd.weight"
TABLES = (TABLE, "per_layer_token_embd.weight")

_NARROWER = {
    "Q2_K": "IQ4_NL",
    "Q3_K": "IQ4_NL",
    "IQ4_XS": "IQ4_NL",
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), "IQ4_NL"),
    "TQ1_0": "Q4_0",
    "TQ2_0": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}


_ROLES = {
    **{f"ffn_down{kind}": "ffn_down" for kind in ("_exps", "_chexps", "_shexp", ".*")},
    **{f"cross_attn_{name}": f"attn_{name}" for name in "qkv"},
    "vis_attn_qkv": "attn_qkv",
    "vis_attn_output": "attn_output",
    "indexer.attn_k": "attn_k",
}
"""The roles whose rules other matrices follow, for which no rule has a name of their own."""
VALUES = ("attn_v", "attn_qkv", "attn_kv_b")
"""The roles that make values of attention, whose layers are counted among themselves."""


def role_of(name: str) -> str:
    """Return the role of a matrix, which rules are told by: "attn_v" for "blk.3.attn_v.weight"."""
    stem = read_name(name).stem
    return _ROLES.get(stem, stem)


def fitting(name: str, columns: int, block_sizes: dict[str, int]) -> str:
    """Return the format, or the one that stands in for it where rows are not whole blocks of it.

    A row that no smaller block divides stays F16, which has none.
    """
    while columns % block_sizes[name]:
        name = _NARROWER.get(name, "F16")
    return name


def format_of(mix: Mix, name: str, place: Place, *, tied: bool) -> str:
    """Return the format of a matrix, by the name of its tensor; `tied`: the embedding table gives logits too."""
    is_table = name in TABLES
    if name == OUTPUT or (tied and is_table):
        is_falcon = place.architecture == "falcon" and mix.rules
        return "Q8_0" if is_falcon else mix.output
    role = role_of(name)
    if mix.beside_experts and place.experts and read_name(name).stem not in EXPERTS:
        return mix.beside_experts
    if is_table:
        return mix.embedding
    return chosen(mix.rules.get(role), place) or mix.base
