"""What an answer is made of. `index` says which of several answers to one prompt it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from llamay_models.engine import TokenScore


@dataclass(frozen=True, slots=True)
class Text:
    """Words of the answer, with what was told of the tokens that they are made of."""

    index: int
    text: str
    scores: tuple[TokenScore, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Words of the thinking before the answer."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole call; `arguments` is compact JSON text of an object."""

    index: int
    number: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice is complete: stop, length or tool_calls."""

    index: int
    reason: str
    stop_sequence: str | None = None


Event: TypeAlias = Text | Reasoning | ToolCall | Finished
