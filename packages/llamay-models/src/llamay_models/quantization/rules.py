"""The choices of a mix for a matrix: a format, or a rule that finds one by the place of the matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a matrix, and its model.

    Attributes:
        layer: its layer, of `layers`; among the layers with attention for what makes values of attention.
        layers: how many there are.
        shared: how many query heads share a key/value head.
        experts: of the model; 0 where it has none.
        architecture: of the model, as its file names it.

    """

    layer: int
    layers: int
    shared: int
    experts: int = 0
    architecture: str = ""

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


def chosen(choice: Choice | None, place: Place) -> str | None:
    """Return the format that a rule or a name gives, None for the mix's base."""
    return choice(place) if callable(choice) else choice


def outer(more: str) -> Choice:
    """Return the rule that gives `more` to outer layers."""
    return lambda place: more if place.outer else None


def early(more: str) -> Choice:
    """Return the rule that gives `more` to early layers."""
    return lambda place: more if place.early else None


def first(count: int, more: str, rest: str | None = None) -> Choice:
    """Return the rule that gives `more` to the first `count` layers, `rest` to the others."""
    return lambda place: more if place.layer < count else rest


def sixteenth(more: str, rest: Choice) -> Choice:
    """Return the rule that gives `more` to the first sixteenth of the layers, and to the others what `rest` gives."""
    return lambda place: more if place.layer < place.layers // 16 else chosen(rest, place)


def grouped(more: str, rest: str | None = None) -> Choice:
    """Return the rule that gives `more` where four or more query heads share a key/value head."""
    return lambda place: more if place.shared >= 4 else rest


def eight_experts(more: str | None, rest: Choice | None = None) -> Choice:
    """Return the rule that gives `more` in a model of eight experts, as Mixtral, and else what `rest` gives."""
    return lambda place: more if place.experts == 8 else chosen(rest, place)


def in_falcon(less: Choice | None, rest: Choice) -> Choice:
    """Return the rule that gives what `less` gives in Falcon, and else what `rest` gives."""
    return lambda place: chosen(less if place.architecture == "falcon" else rest, place)


def in_70b(base: str, rest: Choice | None) -> Choice:
    """Return the rule of `rest`, with Q5_K in place of Q3_K and Q4_K in a Llama of 70 billion weights.

    Its `attn_v` is an eighth of `attn_q`, so that more bits cost little. `base` is what None stands for.
    """

    def rule(place: Place) -> str | None:
        name = chosen(rest, place)
        is_70b = place.architecture == "llama" and place.layers == 80 and place.shared > 1
        return "Q5_K" if is_70b and (name or base) in ("Q3_K", "Q4_K") else name

    return rule
