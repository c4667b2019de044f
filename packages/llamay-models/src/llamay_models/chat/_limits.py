"""What one rendering may use. A template comes with a model, and a model may come from anybody.

The checks are where size and time are made: string and list operators and methods, filters, loops and macros.
"""

from __future__ import annotations

import re
import time
from typing import Any

from ._errors import ChatTemplateError

MAX_CHARACTERS = 8 << 20
MAX_ITEMS = 200_000
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
        self._weights: dict[int, tuple[int, object]] = {}

    def step(self) -> None:
        """Count one turn of a loop or one call."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise ChatTemplateError(f"the chat template takes more than {MAX_STEPS} steps")
        if time.monotonic() > self._end:
            raise ChatTemplateError(f"the chat template takes more than {MAX_SECONDS:g} s")

    def container(self, value: Any) -> Any:
        """Return a list, tuple or dict that the template has just made, if it does not hold too much.

        What a container holds counts as often as it is reached, for so often is it visited when it is printed or
        compared: `[x, x]` forty levels deep is small in memory and endless on paper.
        """
        self._weigh(value, 0)
        return value

    def _weigh(self, value: Any, depth: int) -> int:
        if not isinstance(value, (list, tuple, dict)):
            return 1
        known = self._weights.get(id(value))
        if known is not None:
            return known[0]
        if depth > 60:
            raise ChatTemplateError("the chat template nests lists more than 60 deep")
        total = 1
        for item in value.values() if isinstance(value, dict) else value:
            total += self._weigh(item, depth + 1)
            if total > MAX_ITEMS:
                check_items(total)
        if total >= _WORTH_REMEMBERING:
            self._weights[id(value)] = (total, value)
        return total
