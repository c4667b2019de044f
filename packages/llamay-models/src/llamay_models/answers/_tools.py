"""Tools as they are given: in OpenAI's form, or plain as others have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def openai_tools(tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The tools in OpenAI's form, which is what chat templates read."""
    given = list(tools)
    return [
        tool if "function" in tool else {"type": "function", "function": function}
        for tool, function in zip(given, _functions(given), strict=True)
    ]


def schemas_of(tools: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The schema of the arguments of each tool by its name; one that says nothing of them takes an object."""
    return {each["name"]: each.get("parameters", {"type": "object"}) for each in _functions(tools)}


def _functions(tools: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Name, description and parameters. Raises ValueError for what is no tool, and for one without a name."""
    for number, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise ValueError(f"tool {number} is a {type(tool).__name__}, not an object with a name")
        inner = tool.get("function", tool)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ValueError(f"tool {number} has no name")
        schema = inner.get("parameters", inner.get("input_schema"))
        parts = {"name": inner["name"], "description": inner.get("description"), "parameters": schema}
        yield {key: value for key, value in parts.items() if value is not None}
