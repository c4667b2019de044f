"""The arguments of functions, as a schema means them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# Where one of these stands beside properties, the object's names are not only those properties.
_OPENERS = frozenset(
    (
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames", "allOf"),
        *("anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$ref", "$dynamicRef"),
    )
)


def closed_schema(schema: Any) -> Any:
    """Return a schema whose objects have no names but the described ones, unless it says otherwise.

    JSON Schema leaves an object open that says nothing, and a function's arguments mean the opposite: a name that the
    function does not know is an error of the call. Parts that describe an object together with others stay as they are.
    """
    if isinstance(schema, list):
        return [closed_schema(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = dict(schema)
    for key in ("items", "prefixItems", "additionalProperties"):
        if key in out:
            out[key] = closed_schema(out[key])
    if isinstance(out.get("properties"), Mapping):
        out["properties"] = {name: closed_schema(value) for name, value in out["properties"].items()}
        if _OPENERS.isdisjoint(out):
            out["additionalProperties"] = False
    elif "allOf" not in out:
        for key in ("anyOf", "oneOf"):
            if key in out:
                out[key] = closed_schema(out[key])
    return out


def closed_tools(tools: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return tools in OpenAI's form, each with a closed schema of its arguments. Raises ValueError for others."""
    from llamay_models.answers import openai_tools

    out: list[Mapping[str, Any]] = []
    for tool in openai_tools(tools):
        function = tool["function"]
        closed = {
            key: closed_schema(function[key]) for key in ("parameters", "input_schema") if key in function
        }
        out.append({**tool, "function": {**function, **closed}})
    return out
