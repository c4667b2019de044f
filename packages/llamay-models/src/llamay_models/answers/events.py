"""The events of an answer. `index` is the number of the answer among several to one prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from llamay_models.engine import TokenScore


@dataclass(frozen=True, slots=True)
class Text:
    """Text of the answer, with its tokens and their scores where these are known."""

    index: int
    text: str
    scores: tuple[TokenScore, ...] = ()
    tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text of the reasoning before the answer."""

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

    Where the call came in parts, `complete` is False if the text ended inside the arguments, of which the beginning is
    then all. A call that did not come in parts is always complete.
    """

    index: int
    number: int
    id: str
    name: str
    arguments: str
    in_parts: bool = False
    """Whether a `CallBegun` and `ArgumentsPart`s came before."""
    complete: bool = True

    def untold(self) -> tuple[CallBegun | ArgumentsPart, ...]:
        """Return the parts of a call that did not come in parts, so that all calls can be written in parts."""
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
