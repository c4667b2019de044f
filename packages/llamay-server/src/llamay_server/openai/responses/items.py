"""Items of the Responses API, read into messages in no dialect."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llamay_server.chat.conversation import Message
from llamay_server.chat.tools import Tool, make_tool, read_arguments
from llamay_server.http.errors import ApiError, invalid
from llamay_server.http.exchange import Exchange

_TEXT_PARTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text")
Find = Callable[[str], Mapping[str, Any] | None]


def read_input(
    value: str | Sequence[Mapping[str, Any]] | None, find: Find
) -> tuple[list[Message], list[dict[str, Any]]]:
    """Return the messages, and the items as they are kept.

    `find` looks up an item of an earlier response by its id. Raises a 400 with the path of the field that is wrong.
    """
    if value is None:
        return [], []
    items = (
        [{"type": "message", "role": "user", "content": value}]
        if isinstance(value, str)
        else [dict(i) for i in value]
    )
    reader = _Reader(find)
    for n, item in enumerate(items):
        reader.read(item, f"input[{n}]")
    return reader.done(), items


class _Reader:
    """Gathers items into messages: reasoning and calls become parts of the assistant message beside them."""

    def __init__(self, find: Find) -> None:
        self.find = find
        self.messages: list[Message] = []
        self.reasoning = ""

    def read(self, item: Mapping[str, Any], where: str) -> None:
        """Add one item."""
        kind = item.get("type") or "message"
        match kind:
            case "message":
                self._message(item, where)
            case "function_call":
                self._call(item, where)
            case "custom_tool_call":
                # Its input is text; the model's templates know calls with named arguments only.
                self._call({**item, "arguments": {"input": item.get("input")}}, where)
            case "function_call_output" | "custom_tool_call_output":
                call_id = item.get("call_id")
                if not isinstance(call_id, str) or not call_id:
                    raise invalid(f"{where}.call_id: it is missing", f"{where}.call_id")
                text = _text(item.get("output"), f"{where}.output")
                self.messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case "reasoning":
                self.reasoning += _reasoning(item)
            case "item_reference":
                found = self.find(str(item.get("id")))
                if found is None:
                    raise ApiError(
                        "not_found",
                        f"{where}.id: there is no item {str(item.get('id'))[:80]!r}",
                        param=f"{where}.id",
                    )
                self.read(found, where)
            case _:
                raise invalid(f"{where}.type: {str(kind)[:60]!r} is not supported", f"{where}.type")

    def _message(self, item: Mapping[str, Any], where: str) -> None:
        role = item.get("role")
        if role not in ("user", "assistant", "system", "developer"):
            raise invalid(f"{where}.role: use user, assistant, system or developer", f"{where}.role")
        content = _text(item.get("content"), f"{where}.content")
        if role == "assistant":
            self._assistant()["content"] = content
        else:
            self.messages.append({"role": "system" if role == "developer" else role, "content": content})

    def _assistant(self, *, with_calls: bool = False) -> Message:
        """Return the assistant message that an item becomes part of: a call joins the text right before it."""
        last = self.messages[-1] if self.messages else None
        if not with_calls or last is None or last["role"] != "assistant":
            last = {"role": "assistant", "content": None if with_calls else ""}
            self.messages.append(last)
        if self.reasoning:
            last["reasoning_content"] = last.get("reasoning_content", "") + self.reasoning
            self.reasoning = ""
        return last

    def _call(self, item: Mapping[str, Any], where: str) -> None:
        name, call_id = item.get("name"), item.get("call_id")
        for key, value in (("name", name), ("call_id", call_id)):
            if not isinstance(value, str) or not value:
                raise invalid(f"{where}.{key}: it is missing", f"{where}.{key}")
        function = {"name": name, "arguments": read_arguments(item.get("arguments"), f"{where}.arguments")}
        message = self._assistant(with_calls=True)
        message.setdefault("tool_calls", []).append({"id": call_id, "type": "function", "function": function})

    def done(self) -> list[Message]:
        """Return the messages of all items."""
        return self.messages


def _text(value: Any, where: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise invalid(f"{where}: it must be text or a list of parts", where)
    out = []
    for n, part in enumerate(value):
        at = f"{where}[{n}]"
        if not isinstance(part, Mapping):
            raise invalid(f"{at}: it must be an object", at)
        kind = part.get("type")
        key = "refusal" if kind == "refusal" else "text"
        if kind not in (*_TEXT_PARTS, "refusal"):
            raise invalid(f"{at}.type: this model reads text only, not {str(kind)[:40]!r}", f"{at}.type")
        if not isinstance(part.get(key), str):
            raise invalid(f"{at}.{key}: it must be text", f"{at}.{key}")
        out.append(part[key])
    return "".join(out)


def _reasoning(item: Mapping[str, Any]) -> str:
    """Return the text of a replayed reasoning item: plain, or in the opaque string of `seal`."""
    content = item.get("content")
    if isinstance(content, list) and content:
        return "".join(
            p["text"] for p in content if isinstance(p, Mapping) and isinstance(p.get("text"), str)
        )
    sealed = item.get("encrypted_content")
    if isinstance(sealed, str):
        try:
            value = json.loads(base64.b64decode(sealed, validate=True))
        except (ValueError, binascii.Error):
            return ""
        return value["text"] if isinstance(value, dict) and isinstance(value.get("text"), str) else ""
    return ""


def seal(text: str) -> str:
    """Return reasoning as one opaque string, which a client returns with its next request. It is not encrypted."""
    return base64.b64encode(json.dumps({"text": text}).encode()).decode()


def read_tools(tools: Sequence[Mapping[str, Any]] | None, exchange: Exchange) -> list[Tool]:
    """Return the function tools. Hosted and custom tools, which agents always send, are left out with a warning."""
    out = []
    left: list[str] = []
    for n, item in enumerate(tools or ()):
        if item.get("type") != "function":
            left.append(str(item.get("type"))[:40])
            continue
        out.append(
            make_tool(
                item.get("name"),
                item.get("description"),
                item.get("parameters"),
                f"tools[{n}]",
                item.get("strict"),
            )
        )
    if left:
        names = ", ".join(dict.fromkeys(left))
        exchange.warn(f"tools of type {names} are not available and were left out")
    return out
