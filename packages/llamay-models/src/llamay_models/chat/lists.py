"""Lists that a template may change: those that it wrote itself, as long as nothing else holds them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol, SupportsIndex

from ..errors import ChatTemplateError


class Weight(Protocol):
    """The number of values that are reachable from a value, each counted as often as it is reached."""

    items: int
    characters: int

    def put(self, value: Any, /) -> None:
        """Count one more value with its contents; refuse it beyond the limit."""

    def take(self, value: Any, /) -> None:
        """Count one value less."""


class OwnList(list[Any]):
    """A list that the template wrote.

    Some templates keep a queue in one, as Kimi K2's does. Jinja's immutable sandbox lets no list be changed, for it may
    be the caller's. A list of the template belongs to it alone, and its contents are counted as it grows.

    A list that is in another container stays as it is from then on: its contents are counted in that container.
    """

    __slots__ = ("held", "weight")

    CHANGES = frozenset({"append", "extend", "insert", "pop"})
    """The methods that templates may call."""

    def __init__(self, values: Iterable[Any], weight: Weight) -> None:
        super().__init__(values)
        self.weight = weight
        self.held = False

    def append(self, value: Any, /) -> None:
        """Work as list.append does."""
        self._put((value,))
        super().append(value)

    def extend(self, values: Iterable[Any], /) -> None:
        """Work as list.extend does, for values with a length."""
        if not isinstance(values, (list, tuple)):
            raise ChatTemplateError("the chat template extends a list by something that is no list")
        self._put(values)
        super().extend(values)

    def insert(self, index: SupportsIndex, value: Any, /) -> None:
        """Work as list.insert does."""
        self._put((value,))
        super().insert(index, value)

    def pop(self, index: SupportsIndex = -1, /) -> Any:
        """Work as list.pop does."""
        self._check_free()
        value = super().pop(index)
        self.weight.take(value)
        return value

    def _put(self, values: Iterable[Any]) -> None:
        for value in values:
            self.weight.put(value)
        self._check_free()  # it may have been put into itself

    def _check_free(self) -> None:
        if self.held:
            raise ChatTemplateError("the chat template changes a list that another list holds")
