"""The limits of one rendering. A template comes with a model, and a model may come from any source.

The checks are where size and time are made: string and list operators and methods, filters, loops and macros.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from ..errors import ChatTemplateError
from .lists import OwnList

MAX_CHARACTERS = 8 << 20
MAX_ITEMS = 200_000
MAX_DEPTH = 60
MAX_STEPS = 200_000
MAX_SECONDS = 5.0
MAX_NUMBER_BITS = 256
_LARGEST_WIDTH = 9999

#: Containers heavier than this are remembered, so that one that holds another many times costs one look.
_WORTH_REMEMBERING = 64


def check_characters(count: int) -> None:
    """Refuse a string that is about to be this long."""
    if count > MAX_CHARACTERS:
        raise ChatTemplateError(f"the chat template makes a string of more than {MAX_CHARACTERS} characters")


def check_items(count: int) -> None:
    """Refuse a list that is about to be this long."""
    if count > MAX_ITEMS:
        raise ChatTemplateError(f"the chat template makes a list of more than {MAX_ITEMS} items")


def check_widths(specification: str) -> None:
    """Refuse format specifications with absurd widths, such as "%999999999d"."""
    if "*" in specification or any(int(n) > _LARGEST_WIDTH for n in re.findall(r"\d+", specification[:1000])):
        raise ChatTemplateError(f"the chat template formats a field wider than {_LARGEST_WIDTH}")


class Budget:
    """Steps, time and size of containers of one rendering."""

    def __init__(self) -> None:
        self._steps = 0
        self._end = time.monotonic() + MAX_SECONDS
        self._weights: dict[int, tuple[tuple[int, int], object]] = {}

    def step(self) -> None:
        """Count one turn of a loop or one call."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ChatTemplateError(f"the chat template takes more than {MAX_STEPS} steps")
        if time.monotonic() > self._end:
            raise ChatTemplateError(f"the chat template takes more than {MAX_SECONDS:g} s")

    def container(self, value: Any) -> Any:
        """Return a list, tuple or dict that the template has just made, if it does not hold too much.

        The contents of a container count as often as they are reached, for so often they are visited when it is
        printed or
        compared: `[x, x]` forty levels deep is small in memory and endless on paper. So is a long text in many places.
        """
        if not isinstance(value, OwnList):
            self.weigh(value, 0)
        return value

    def own(self, value: list[Any]) -> OwnList:
        """Return a list that the template has just made as one that it may change, if it does not hold too much."""
        weight = _Weight(self)
        weight.items, weight.characters = self.weigh(value, 0)
        return OwnList(value, weight)

    def counted(self, values: Iterator[Any]) -> Iterator[Any]:
        """Yield the items of a filter within the limit, since they may end up in one list."""
        weight = _Weight(self)
        for value in values:
            weight.put(value)
            yield value

    def weigh(self, value: Any, depth: int) -> tuple[int, int]:
        """Return how many items and characters are reached from a value; lists inside of it are held from now on."""
        if isinstance(value, str):
            return 1, len(value)
        if not isinstance(value, (list, tuple, dict)):
            return 1, 0
        if isinstance(value, OwnList):
            value.held |= depth > 0
            return value.weight.items, value.weight.characters
        known = self._weights.get(id(value))
        if known is not None:
            return known[0]
        if depth > MAX_DEPTH:
            raise ChatTemplateError(f"the chat template nests lists more than {MAX_DEPTH} deep")
        items, characters = 1, 0
        if isinstance(value, dict):
            characters = sum(len(key) for key in value if isinstance(key, str))
        for item in value.values() if isinstance(value, dict) else value:
            more, longer = self.weigh(item, depth + 1)
            items, characters = items + more, characters + longer
            if items > MAX_ITEMS or characters > MAX_CHARACTERS:
                check_items(items)
                check_characters(characters)
        if items >= _WORTH_REMEMBERING:
            self._weights[id(value)] = ((items, characters), value)
        return items, characters


class _Weight:
    """The weight of a list that grows; see `Budget.weigh`."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.items, self.characters = 1, 0

    def put(self, value: Any) -> None:
        items, characters = self._budget.weigh(value, 1)
        check_items(self.items + items)
        check_characters(self.characters + characters)
        self.items, self.characters = self.items + items, self.characters + characters

    def take(self, value: Any) -> None:
        items, characters = self._budget.weigh(value, 1)
        self.items, self.characters = self.items - items, self.characters - characters
