"""Checking conversations before a template sees them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ChatTemplateError

_MAX_DEPTH = 32


class Arguments(dict[str, Any]):
    """The arguments of a tool call: an object, and where a template wants a string, JSON.

    Some templates write `arguments | tojson`, others put `arguments` as it is between pieces of text.
    """

    def __str__(self) -> str:
        return json.dumps(self, ensure_ascii=False)

    def __radd__(self, other: object) -> str:
        return other + str(self) if isinstance(other, str) else NotImplemented

    def __add__(self, other: object) -> str:
        return str(self) + other if isinstance(other, str) else NotImplemented


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a copy of a conversation in plain dicts, lists and strings.

    Arguments of tool calls may be JSON in a string, as OpenAI's API has them; they become `Arguments`.

    Raises:
        ChatTemplateError: it is not a list of messages with a role and a content.

    """
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise ChatTemplateError("messages must be a list of messages")
    return [_message(m, f"messages[{i}]") for i, m in enumerate(messages)]


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise ChatTemplateError(f"{where} must be an object with 'role' and 'content', not {_kind(message)}")
    copy: dict[str, Any] = plain(message, where)
    role = copy.get("role")
    if not isinstance(role, str) or not role:
        raise ChatTemplateError(f"{where}.role must be a string such as 'user'")
    content = copy.setdefault("content", None)
    if content is None:
        if role != "assistant":
            raise ChatTemplateError(f"{where}.content is missing")
    elif isinstance(content, list):
        for i, item in enumerate(content):
            if not isinstance(item, dict) or not isinstance(item.get("type"), str):
                raise ChatTemplateError(f"{where}.content[{i}] must be an object with a 'type'")
            if item["type"] == "text" and not isinstance(item.get("text"), str):
                raise ChatTemplateError(f"{where}.content[{i}].text must be a string")
    elif not isinstance(content, str):
        raise ChatTemplateError(f"{where}.content must be a string or a list of parts, not {_kind(content)}")
    calls = copy.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list) or not all(isinstance(c, dict) for c in calls):
            raise ChatTemplateError(f"{where}.tool_calls must be a list of objects")
        for i, call in enumerate(calls):
            _parse_arguments(call, f"{where}.tool_calls[{i}]")
    return copy


def _parse_arguments(call: dict[str, Any], where: str) -> None:
    function = call.get("function", call)
    if not isinstance(function, dict):
        raise ChatTemplateError(f"{where}.function must be an object")
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        function["arguments"] = Arguments(arguments)
    if not isinstance(arguments, str):
        return
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return  # a template that prints them as they are can still do so
    if isinstance(parsed, dict):
        function["arguments"] = Arguments(plain(parsed, f"{where}.function.arguments"))


def plain(value: Any, where: str, depth: int = 0) -> Any:
    """Return a deep copy in exact dict, list, str, bool, int, float and None: nothing that a template could abuse.

    Raises:
        ChatTemplateError: something else is in it, or it is nested too deep.

    """
    if depth > _MAX_DEPTH:
        raise ChatTemplateError(f"{where} is nested more than {_MAX_DEPTH} deep")
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if type(value) is str else "".join(value)
    if isinstance(value, Mapping):
        if not all(isinstance(k, str) for k in value):
            raise ChatTemplateError(f"{where} has a key that is not a string")
        return {str(k): plain(v, f"{where}.{str(k)[:60]}", depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    raise ChatTemplateError(f"{where} must be JSON, not {_kind(value)}")


def _kind(value: Any) -> str:
    return type(value).__name__
