"""`Formats`: the ways in which models write calls, which are handed in, as constraints are, and never imported."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol


class Types(Protocol):
    """The JSON types that each argument of a function may have."""

    def __getitem__(self, name: str, /) -> frozenset[str]: ...


class Formats(Hashable, Protocol):
    """The formats of calls, and how an argument that stands between tags is read.

    The module `llamay_grammar` is one. The grammar that binds a call and the reader that finds it go by the same data
    in this way, and neither package needs the other.
    """

    def tool_formats(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the formats by name, as data in the shape that `llamay_grammar.tool_formats` describes."""

    def argument_types(self, schema: Any, /) -> Types:
        """Return which JSON types the members of an object under a JSON schema may have."""

    def read_argument(self, text: str, types: Iterable[str], /) -> Any:
        """Return the value that stands between two tags as `text`, if it may have these JSON types."""
