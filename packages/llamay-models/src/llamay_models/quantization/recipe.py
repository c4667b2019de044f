"""Which format each tensor of a quantized model gets: llama.cpp's mixes, as data.

A mix spends more bits where rounding hurts most: the output matrix, the values of attention, the way down
from the MLP, and the first and last layers. Names, numbers and choices are those of llama.cpp's
`llama-quantize` for models without experts, quantized without an importance matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where a matrix stands: `layer` of `layers`, and how many query heads share a key/value head."""

    layer: int
    layers: int
    shared: int

    @property
    def early(self) -> bool:
        """Whether it is in the first eighth of the layers."""
        return self.layer < self.layers // 8

    @property
    def outer(self) -> bool:
        """Whether it is in the first or last eighth, or every third layer between."""
        eighth = self.layers // 8
        return self.early or self.layer >= 7 * self.layers // 8 or (self.layer - eighth) % 3 == 2


Choice = str | Callable[[Place], str | None]
"""A format, or a rule that gives one; None leaves the mix's base."""


def outer(more: str) -> Choice:
    """Return the rule that gives `more` to outer layers."""
    return lambda place: more if place.outer else None


def early(more: str) -> Choice:
    """Return the rule that gives `more` to early layers."""
    return lambda place: more if place.early else None


def first(count: int, more: str, rest: str | None = None) -> Choice:
    """Return the rule that gives `more` to the first `count` layers, `rest` to the others."""
    return lambda place: more if place.layer < count else rest


def sixteenth(more: str, rest: str) -> Choice:
    """Return the rule that gives `more` to the first sixteenth of the layers, `rest` to the others."""
    return lambda place: more if place.layer < place.layers // 16 else rest


def grouped(more: str, rest: str | None = None) -> Choice:
    """Return the rule that gives `more` where four or more query heads share a key/value head."""
    return lambda place: more if place.shared >= 4 else rest


@dataclass(frozen=True)
class Mix:
    """A named choice of formats.

    Attributes:
        file_type: the number of `general.file_type`.
        base: the format of every matrix that no rule names.
        rules: by the role of a matrix, such as "attn_v".
        output: the matrix of logits; of a tied model, its embedding table.
        embedding: the table of an untied model.

    """

    file_type: int
    base: str
    rules: MappingProxyType[str, Choice]
    output: str
    embedding: str


def _mix(
    file_type: int, base: str, *, output: str = "Q6_K", embedding: str | None = None, **rules: Choice
) -> Mix:
    return Mix(file_type, base, MappingProxyType(rules), output, embedding or base)


def _plain(file_type: int, name: str) -> Mix:
    return _mix(file_type, name, output=name)


_fewest: Any = {
    "output": "Q5_K",
    "embedding": "Q2_K",
    "attn_v": grouped("Q4_K", "Q2_K"),
    "ffn_down": early("Q2_K"),
}
_few: Any = {
    "output": "Q5_K",
    "embedding": "IQ3_S",
    "attn_v": grouped("Q4_K", "IQ3_S"),
    "ffn_down": early("IQ3_S"),
    "attn_output": "IQ3_S",
}

MIXES: dict[str, Mix] = {
    "F32": _plain(0, "F32"),
    "F16": _plain(1, "F16"),
    "BF16": _plain(32, "BF16"),
    "Q8_0": _plain(7, "Q8_0"),
    "Q4_0": _mix(2, "Q4_0"),
    "Q4_1": _mix(3, "Q4_1"),
    "Q5_0": _mix(8, "Q5_0"),
    "Q5_1": _mix(9, "Q5_1"),
    "Q2_K": _mix(10, "Q2_K", attn_v=grouped("Q4_K", "Q3_K"), ffn_down="Q3_K", attn_output="Q3_K"),
    "Q3_K_S": _mix(11, "Q3_K"),
    "Q3_K_M": _mix(
        12,
        "Q3_K",
        attn_v=first(2, "Q5_K", "Q4_K"),
        ffn_down=sixteenth("Q5_K", "Q4_K"),
        attn_output="Q4_K",
        attn_qkv="Q4_K",
    ),
    "Q3_K_L": _mix(13, "Q3_K", attn_v="Q5_K", ffn_down="Q5_K", attn_output="Q5_K", attn_qkv="Q4_K"),
    "Q4_K_S": _mix(14, "Q4_K", attn_v=first(4, "Q5_K"), ffn_down=early("Q5_K")),
    "Q4_K_M": _mix(15, "Q4_K", attn_v=outer("Q6_K"), ffn_down=outer("Q6_K"), attn_qkv="Q5_K"),
    "Q5_K_S": _mix(16, "Q5_K"),
    "Q5_K_M": _mix(17, "Q5_K", attn_v=outer("Q6_K"), ffn_down=outer("Q6_K"), attn_qkv="Q6_K"),
    "Q6_K": _mix(18, "Q6_K"),
    "IQ1_S": _mix(24, "IQ1_S", **_fewest, attn_output="IQ2_XXS"),
    "IQ1_M": _mix(31, "IQ1_M", **_fewest, attn_output="IQ2_XXS"),
    "IQ2_XXS": _mix(19, "IQ2_XXS", **_fewest),
    "IQ2_XS": _mix(20, "IQ2_XS", **_fewest),
    "IQ2_S": _mix(28, "IQ2_XS", **_few),
    "IQ2_M": _mix(29, "IQ2_S", **_few),
    "IQ3_XXS": _mix(
        23,
        "IQ3_XXS",
        output="Q5_K",
        embedding="IQ3_S",
        attn_v=grouped("Q4_K", "IQ3_S"),
        ffn_down=lambda place: "Q4_K" if place.early else "Q3_K",
        attn_output="IQ3_S",
    ),
    "IQ3_S": _mix(26, "IQ3_S", attn_v=grouped("Q4_K")),
    "IQ4_NL": _mix(25, "IQ4_NL", attn_v=grouped("Q5_K"), ffn_down=early("Q5_K")),
    "IQ4_XS": _mix(30, "IQ4_XS", attn_v=grouped("Q5_K"), ffn_down=early("Q5_K")),
    "TQ1_0": _mix(36, "TQ1_0", embedding="Q4_K"),
    "TQ2_0": _mix(37, "TQ2_0", embedding="Q4_K"),
    "MXFP4": _mix(38, "MXFP4", output="Q8_0"),
}
"""The mixes by llama.cpp's names."""

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


def fitting(name: str, columns: int, block_sizes: dict[str, int]) -> str:
    """Return the format, or the one that stands in for it where rows are not whole blocks of it.

    A row that no smaller block divides stays F16, which has none.
    """
    while columns % block_sizes[name]:
        name = _NARROWER.get(name, "F16")
    return name


def format_of(mix: Mix, name: str, place: Place, *, tied: bool) -> str:
    """Return the format of a matrix, by the name of its tensor; `tied`: the embedding table gives logits too."""
    if name == "output.weight" or (tied and name == "token_embd.weight"):
        return mix.output
    if name == "token_embd.weight":
        return mix.embedding
    rule = mix.rules.get(name.removesuffix(".weight").rpartition(".")[2])
    return (rule(place) if callable(rule) else rule) or mix.base
