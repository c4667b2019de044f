"""Tools: the calls that a request offers or demands, and the constraint of the output that follows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from llamay_server.engine.constraint import JSON_KINDS, OutputConstraint
from llamay_server.http.errors import ApiError, invalid

_NAME = re.compile(r"[a-zA-Z0-9_./:-]{1,256}")
Mode = Literal["none", "auto", "required"]
_OBJECT: Mapping[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Tool:
    """One function: a JSON schema (an object schema) describes its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool = False
    """Whether a schema that cannot be enforced exactly is refused, rather than enforced in part with a warning."""

    def as_openai(self) -> dict[str, Any]:
        """Return the tool in OpenAI's form, which chat templates read."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of a request, whether a call is demanded ("required"), and whether there may be several calls."""

    tools: tuple[Tool, ...] = ()
    mode: Mode = "none"
    parallel: bool = True

    @property
    def active(self) -> bool:
        """Whether the output may contain calls."""
        return bool(self.tools) and self.mode != "none"

    @property
    def schemas(self) -> dict[str, Mapping[str, Any]]:
        """The schemas of the arguments of those tools that may be called, by name."""
        return {tool.name: tool.parameters for tool in self.tools} if self.active else {}

    def constraint(
        self,
        form: str,
        answer: OutputConstraint | None,
        *,
        reasoning: tuple[str, str, bool] | None = None,
        optional: bool = False,
    ) -> OutputConstraint | None:
        """Return the constraint of the output; None where the output is free.

        A demanded call is constrained. An optional call is constrained where a tool is strict, or where an answer
        without a call has a schema of its own.

        Args:
            form: the model's tool-call format.
            answer: the constraint of an answer without a call.
            reasoning: of a model that reasons first, the marks around its reasoning, and whether the prompt has opened
                it. The reasoning is then not constrained.
            optional: whether an optional call that nothing else constrains is constrained in its form: one of the
                names, and an object as arguments.

        """
        if not self.active:
            if answer is None or answer.kind not in JSON_KINDS:
                return answer
            return replace(answer, reasoning=reasoning)
        auto = self.mode == "auto"
        strict = any(tool.strict for tool in self.tools)
        schema = None
        if auto and answer is not None:
            # Strings in calls always have canonical escapes, and so have the strings of an answer beside calls.
            if answer.kind not in JSON_KINDS:
                raise ApiError(
                    "invalid",
                    f"{answer.param}: it cannot be combined with tools unless it is a JSON schema.",
                    param=answer.param,
                    code="unsupported_parameter",
                )
            schema = _OBJECT if answer.kind == "json_object" else answer.value
        elif auto and not strict and not optional:
            return None
        loose = auto and not strict and schema is None
        value = {
            "tools": [
                (replace(tool, parameters=_OBJECT) if loose else tool).as_openai() for tool in self.tools
            ],
            "format": form,
            "choice": "auto" if auto else self.tools[0].name if len(self.tools) == 1 else "required",
            "parallel": self.parallel,
            "strict": strict or schema is not None,
            "answer": schema,
        }
        return OutputConstraint("tools", value, "tools", reasoning=reasoning)


def make_tool(name: Any, description: Any, parameters: Any, where: str, strict: Any = False) -> Tool:
    """Return a tool from its parts. Raises a 400 with the path, below `where`, of a part that is wrong."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise invalid(
            f"{where}.name: a tool's name has 1 to 256 letters, digits, and _ . / : -", f"{where}.name"
        )
    if description is not None and not isinstance(description, str):
        raise invalid(f"{where}.description: it must be text", f"{where}.description")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(f"{where}.parameters: it must be a JSON schema", f"{where}.parameters")
    if strict is not None and not isinstance(strict, bool):
        raise invalid(f"{where}.strict: it must be true or false", f"{where}.strict", "invalid_type")
    return Tool(name, description or "", parameters or {}, bool(strict))


def choose(
    tools: Sequence[Tool], mode: Mode, names: Sequence[str] | None, parallel: bool, where: str
) -> Toolbox:
    """Return the toolbox for a choice of tools. `names` narrows it to some of the offered ones.

    Raises a 400 for a name that is not offered, for two tools of one name, and for a demanded call without tools.
    """
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


def read_arguments(value: Any, where: str) -> dict[str, Any]:
    """Return the arguments of a replayed call: JSON text or an object. Other text is kept whole, as `_raw`."""
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
