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
class CallBegun:
    """A call of which all but the arguments is known: `ArgumentsPart`s follow, and then the `ToolCall`."""

    index: int
    number: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsPart:
    """Some more of the arguments of the call that has begun; all parts together are those of its `ToolCall`."""

    index: int
    number: int
    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A whole call; `arguments` is compact JSON text of an object.

    Where it was told in parts, `complete` is False if the text ended inside the arguments: then they are what came of
    them. A call that was not told in parts is always complete.
    """

    index: int
    number: int
    id: str
    name: str
    arguments: str
    in_parts: bool = False
    """Whether it was told before, in a `CallBegun` and `ArgumentsPart`s."""
    complete: bool = True

    def untold(self) -> tuple[CallBegun | ArgumentsPart, ...]:
        """The parts to tell it in where it was not, so that whoever writes calls in parts has one way to do it."""
        if self.in_parts:
            return ()
        begun = CallBegun(self.index, self.number, self.id, self.name)
        return begun, ArgumentsPart(self.index, self.number, self.arguments)


@dataclass(frozen=True, slots=True)
class Finished:
    """A choice is complete: stop, length or tool_calls."""

    index: int
    reason: str
    stop_sequence: str | None = None


Event: TypeAlias = Text | Reasoning | CallBegun | ArgumentsPart | ToolCall | Finished
