"""Tools as they are given: in OpenAI's form, or plain as others have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any


def openai_tools(tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tools in OpenAI's form, which chat templates read."""
    given = listed("tools", tools, _TOOL)
    return [
        tool if "function" in tool else {"type": "function", "function": function}
        for tool, function in zip(given, _functions(given), strict=True)
    ]


def schemas_of(tools: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the schema of the arguments of each tool by its name; one that says nothing of them takes an object."""
    return {each["name"]: each.get("parameters", {"type": "object"}) for each in _functions(tools)}


_TOOL = "{'name': ..., 'parameters': ...} (an empty one where there are none)"


def listed(what: str, value: Any, each: str) -> list[Any]:
    """Return the items of a caller's list of mappings. Raises ValueError, naming the argument, for another value."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        kind = "None" if value is None else type(value).__name__
        raise ValueError(f"{what} must be a list of items like {each}, not {kind}")
    return list(value)


def _functions(tools: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the function of each tool. Raises ValueError for another value, and for a tool without a name."""
    for number, tool in enumerate(listed("tools", tools, _TOOL)):
        if not isinstance(tool, Mapping):
            raise ValueError(f"tool {number} is a {type(tool).__name__}, not an object with a name")
        inner = tool.get("function", tool)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise ValueError(f"tool {number} has no name")
        schema = inner.get("parameters", inner.get("input_schema"))
        if not isinstance(schema, Mapping | bool | None):
            raise ValueError(
                f"the parameters of tool {number} are a {type(schema).__name__}, not a JSON schema"
            )
        parts = {"name": inner["name"], "description": inner.get("description"), "parameters": schema}
        yield {key: value for key, value in parts.items() if value is not None}
