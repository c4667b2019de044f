"""Ollama's messages, read into messages in no dialect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llamay_server.chat.tools import read_arguments
from llamay_server.http.errors import invalid

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Message
    from llamay_server.ollama.schema import OllamaMessage


def read_messages(messages: Sequence[OllamaMessage]) -> list[Message]:
    """Return Ollama's messages in no dialect. Raises a 400 with the path of the field that is wrong."""
    out: list[Message] = []
    for n, m in enumerate(messages):
        where = f"messages[{n}]"
        if m.images:
            raise invalid(f"{where}.images: this model reads text only", f"{where}.images")
        message: Message = {"role": m.role, "content": m.content or ""}
        if m.thinking and m.role == "assistant":
            message["reasoning_content"] = m.thinking
        if m.tool_calls:
            message["tool_calls"] = [_call(c, f"{where}.tool_calls[{i}]") for i, c in enumerate(m.tool_calls)]
        if m.role == "tool":
            message["tool_call_id"] = m.tool_call_id or ""
            if m.tool_name:
                message["name"] = m.tool_name
        out.append(message)
    return out


def _call(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = value.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise invalid(f"{where}.function.name: it is missing", f"{where}.function.name")
    arguments = read_arguments(function.get("arguments"), f"{where}.function.arguments")
    return {
        "id": str(value.get("id") or ""),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
