"""Tools: what a request offers, what it demands, and what of that binds the output."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llamay_server.http.errors import ApiError, invalid
from llamay_server.pipeline.sampling import Bound

_NAME = re.compile(r"[a-zA-Z0-9_./:-]{1,256}")
Mode = Literal["none", "auto", "required"]
_OBJECT: Mapping[str, Any] = {"type": "object"}
THINKABLE = frozenset(("json_schema", "json_object"))
"""What a document may be that is bound after free thoughts (and beside calls)."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One function: a JSON schema (an object schema) describes its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False
    """Refuse a schema that cannot be enforced to the letter, rather than enforce it in part and say so."""

    def as_openai(self) -> dict[str, Any]:
        """In the form that chat templates read."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a request, whether a call is demanded, and whether there may be several."""

    tools: tuple[Tool, ...] = ()
    mode: Mode = "none"
    parallel: bool = True

    @property
    def active(self) -> bool:
        """Whether calls are looked for in the output."""
        return bool(self.tools) and self.mode != "none"

    def bound(
        self,
        form: str,
        answer: Bound | None,
        *,
        thoughts: tuple[str, str, bool] | None = None,
        optional: bool = False,
    ) -> Bound | None:
        """What the output must match, written in the model's format `form`; None where it is free.

        A demanded call is bound. An optional one is where a tool is strict or an answer without a call has a schema of
        its own. `thoughts`: the marks of a model that thinks first, and whether the prompt has opened them; its
        thoughts are then free, and what comes after them is bound. `optional`: bind an optional call that nothing else
        binds, in its form only: one of the names, and an object.
        """
        if not self.active:
            if answer is None or thoughts is None or answer.kind.removesuffix("_canonical") not in THINKABLE:
                return answer
            inner = {"kind": answer.kind, "value": answer.value, "thoughts": thoughts}
            return Bound("after_thoughts", inner, answer.param)
        auto = self.mode == "auto"
        strict = any(tool.strict for tool in self.tools)
        schema = None
        if auto and answer is not None:
            # Calls are in one spelling anyway, and the answer beside them too.
            kind = answer.kind.removesuffix("_canonical")
            if kind not in THINKABLE:
                raise ApiError(
                    "invalid",
                    f"{answer.param}: it cannot be combined with tools unless it is a JSON schema.",
                    param=answer.param,
                    code="unsupported_parameter",
                )
            schema = {"type": "object"} if kind == "json_object" else answer.value
        elif auto and not strict and not optional:
            return None
        loose = auto and not strict and schema is None
        value = {
            "tools": [
                replace(tool, parameters=_OBJECT if loose else closed(tool.parameters)).as_openai()
                for tool in self.tools
            ],
            "format": form,
            "choice": "auto" if auto else self.tools[0].name if len(self.tools) == 1 else "required",
            "parallel": self.parallel,
            "strict": strict or schema is not None,
            "answer": schema,
            "thoughts": thoughts,
        }
        return Bound("tools", value, "tools")


# Where one of these stands beside properties, the object's names are not only those properties.
_OPENERS = frozenset(
    (
        *("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames", "allOf"),
        *("anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$ref", "$dynamicRef"),
    )
)


def closed(schema: Any) -> Any:
    """A schema whose objects have no names but the described ones, unless it says otherwise.

    JSON Schema leaves an object open that says nothing, and a function's arguments mean the opposite: a name that the
    function does not know is an error of the call. Parts that describe an object together with others stay as they are.
    """
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    out: dict[str, Any] = dict(schema)
    for key in ("items", "prefixItems", "additionalProperties"):
        if key in out:
            out[key] = closed(out[key])
    if isinstance(out.get("properties"), Mapping):
        out["properties"] = {name: closed(value) for name, value in out["properties"].items()}
        if _OPENERS.isdisjoint(out):
            out["additionalProperties"] = False
    elif "allOf" not in out:
        for key in ("anyOf", "oneOf"):
            if key in out:
                out[key] = closed(out[key])
    return out


def make_tool(name: Any, description: Any, parameters: Any, where: str, strict: Any = False) -> Tool:
    """A tool from its parts, checked."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{where}.name: a tool's name has 1 to 256 letters, digits, and _ . / : -", f"{where}.name"
        )
    if description is not None and not isinstance(description, str):
        raise invalid(f"{where}.description: it must be text", f"{where}.description")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(f"{where}.parameters: it must be a JSON schema", f"{where}.parameters")
    return Tool(name, description or "", parameters or {}, strict is True)


def choose(
    tools: Sequence[Tool], mode: Mode, names: Sequence[str] | None, parallel: bool, where: str
) -> Toolbox:
    """The toolbox for a choice: `names` narrows it, and each of them must be offered."""
    seen = [tool.name for tool in tools]
    if len(set(seen)) != len(seen):
        raise invalid(f"tools: the name {max(seen, key=seen.count)!r} is given twice", "tools")
    if names is not None:
        for name in names:
            if name not in seen:
                raise invalid(
                    f"{where}: no tool is called {name[:80]!r}; there is {', '.join(seen) or 'none'}", where
                )
        tools = [tool for tool in tools if tool.name in names]
    if mode == "required" and not tools:
        raise invalid(f"{where}: a call is demanded but no tool is offered", where)
    return Toolbox(tuple(tools), mode if tools else "none", parallel)


def openai_tools(
    tools: Sequence[Mapping[str, Any]] | None, functions: Sequence[Mapping[str, Any]] | None = None
) -> list[Tool]:
    """Tools of chat/completions, or its legacy functions."""
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
    """OpenAI's tool_choice in all its forms (and the flat ones of Responses)."""
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
            name = value.get("name") or (value.get("function") or {}).get("name")
            if not isinstance(name, str):
                raise invalid(f"{where}.function.name: it is missing", f"{where}.function.name")
            return choose(tools, "required", [name], several, where)
        if kind == "allowed_tools":
            inner = value.get("allowed_tools") or value
            names = []
            for item in inner.get("tools") or ():
                name = (
                    item.get("name") or (item.get("function") or {}).get("name")
                    if isinstance(item, dict)
                    else None
                )
                if not isinstance(name, str):
                    raise invalid(f"{where}.allowed_tools.tools: each entry needs a function name", where)
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


def read_arguments(value: Any, where: str) -> dict[str, Any]:
    """Arguments as clients replay them: a JSON text or an object; text that is no object is kept whole."""
    if isinstance(value, dict):
        return value
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            return {"_raw": value}
        return parsed if isinstance(parsed, dict) else {"_raw": value}
    raise invalid(f"{where}: it must be JSON text or an object", where)
