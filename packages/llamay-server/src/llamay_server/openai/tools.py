"""OpenAI's tools and tool_choice in all their forms, legacy functions and the flat forms of Responses included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llamay_server.chat.tools import Tool, Toolbox, choose, make_tool
from llamay_server.http.bodies import mapping
from llamay_server.http.errors import ApiError, invalid


def openai_tools(
    tools: Sequence[Mapping[str, Any]] | None, functions: Sequence[Mapping[str, Any]] | None = None
) -> list[Tool]:
    """Return the tools of chat/completions, or its legacy functions. Raises a 400 with the path of the wrong field."""
    out = []
    for n, item in enumerate(tools or ()):
        where = f"tools[{n}]"
        if item.get("type", "function") != "function":
            raise ApiError(
                "invalid",
                f"{where}.type: {str(item.get('type'))[:40]!r} is not supported; use function",
                param=f"{where}.type",
            )
        function = item.get("function")
        if not isinstance(function, dict):
            raise invalid(f"{where}.function: it is missing", f"{where}.function")
        out.append(
            make_tool(
                function.get("name"),
                function.get("description"),
                function.get("parameters"),
                f"{where}.function",
                function.get("strict"),
            )
        )
    for n, item in enumerate(functions or ()):
        out.append(
            make_tool(item.get("name"), item.get("description"), item.get("parameters"), f"functions[{n}]")
        )
    return out


def openai_choice(
    value: Any, tools: Sequence[Tool], parallel: bool | None, where: str = "tool_choice"
) -> Toolbox:
    """Return the tools that a request offers by its `tool_choice`. Raises a 400 with the path of the wrong field."""
    several = parallel is not False
    if value is None or value == "auto":
        return choose(tools, "auto", None, several, where)
    if value == "none":
        return Toolbox(tuple(tools), "none", several)
    if value in ("required", "any"):
        return choose(tools, "required", None, several, where)
    if isinstance(value, dict):
        kind = value.get("type")
        if kind == "function" or (kind is None and "name" in value):
            name = value.get("name") or mapping(value, "function", where).get("name")
            if not isinstance(name, str):
                raise invalid(f"{where}.function.name: it is missing", f"{where}.function.name")
            return choose(tools, "required", [name], several, where)
        if kind == "allowed_tools":
            inner = mapping(value, "allowed_tools", where) or value
            offered = inner.get("tools") or []
            if not isinstance(offered, list):
                raise invalid(f"{where}.allowed_tools.tools: it must be a list of functions", where)
            names = []
            for n, item in enumerate(offered):
                at = f"{where}.allowed_tools.tools[{n}]"
                given = item if isinstance(item, dict) else {}
                name = given.get("name") or mapping(given, "function", at).get("name")
                if not isinstance(name, str):
                    raise invalid(f"{at}: it needs the name of a function", where)
                names.append(name)
            mode = inner.get("mode", "auto")
            if mode not in ("auto", "required"):
                raise invalid(f"{where}.allowed_tools.mode: use auto or required", where)
            return choose(tools, mode, names, several, where)
        raise invalid(
            f"{where}.type: {str(kind)[:40]!r} is not supported; use function or allowed_tools",
            f"{where}.type",
        )
    raise invalid(f"{where}: use none, auto, required, or name a function", where)
