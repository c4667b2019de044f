"""OpenAI's messages: their schema, and the messages in no dialect that they are read into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from llamay_server.chat.conversation import Message
from llamay_server.chat.tools import read_arguments
from llamay_server.http.errors import invalid


class TextPart(Struct, tag_field="type", tag="text"):
    """Text."""

    text: str
    prompt_cache_breakpoint: dict[str, Any] | None = None


class RefusalPart(Struct, tag_field="type", tag="refusal"):
    """The refusal of an earlier answer, replayed."""

    refusal: str


class ImagePart(Struct, tag_field="type", tag="image_url"):
    """An image."""

    image_url: dict[str, Any] | str


class AudioPart(Struct, tag_field="type", tag="input_audio"):
    """Audio."""

    input_audio: dict[str, Any]


class FilePart(Struct, tag_field="type", tag="file"):
    """A file."""

    file: dict[str, Any]


class ThinkingPart(Struct, tag_field="type", tag="thinking"):
    """The reasoning of an earlier answer, replayed inside its content."""

    thinking: str


Part = TextPart | RefusalPart | ImagePart | AudioPart | FilePart | ThinkingPart


class ChatMessage(Struct):
    """One message of a conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None
    function_call: dict[str, Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    audio: dict[str, Any] | None = None


def read_messages(messages: Sequence[ChatMessage]) -> list[Message]:
    """Return OpenAI's messages in no dialect. Raises a 400 with the path of the field that is wrong."""
    out: list[Message] = []
    for n, m in enumerate(messages):
        where = f"messages[{n}]"
        role = "system" if m.role == "developer" else "tool" if m.role == "function" else m.role
        message: Message = {"role": role, "content": _content(m, where)}
        if m.name:
            message["name"] = m.name
        reasoning = m.reasoning_content or m.reasoning
        if reasoning and role == "assistant":
            message["reasoning_content"] = reasoning
        calls = list(m.tool_calls or ())
        if m.function_call:
            calls.append({"id": f"call_{n}", "function": m.function_call})
        if calls:
            if role != "assistant":
                raise invalid(
                    f"{where}.tool_calls: only an assistant message has tool calls", f"{where}.tool_calls"
                )
            message["tool_calls"] = [_call(c, f"{where}.tool_calls[{i}]") for i, c in enumerate(calls)]
        if role == "tool":
            if not m.tool_call_id and m.role == "tool":
                raise invalid(f"{where}.tool_call_id: it is missing", f"{where}.tool_call_id")
            message["tool_call_id"] = m.tool_call_id or m.name or ""
        if message["content"] is None and not calls:
            if role != "assistant" or (
                m.refusal is None and m.content is None and not reasoning and m.audio is None
            ):
                raise invalid(f"{where}.content: it is missing", f"{where}.content")
            message["content"] = m.refusal or ""
        out.append(message)
    return out


def _content(m: ChatMessage, where: str) -> str | None:
    if m.content is None or isinstance(m.content, str):
        return m.content
    texts = []
    for i, part in enumerate(m.content):
        match part:
            case TextPart():
                texts.append(part.text)
            case RefusalPart():
                texts.append(part.refusal)
            case ThinkingPart():
                m.reasoning_content = (m.reasoning_content or "") + part.thinking
            case _:
                kind = part.__struct_config__.tag
                raise invalid(
                    f"{where}.content[{i}]: this model reads text only, not {kind}",
                    f"{where}.content[{i}].type",
                )
    return "".join(texts)


def _call(value: Mapping[str, Any], where: str) -> dict[str, Any]:
    function = value.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise invalid(f"{where}.function.name: it is missing", f"{where}.function.name")
    arguments = read_arguments(function.get("arguments"), f"{where}.function.arguments")
    call_id = value.get("id")
    if call_id is not None and not isinstance(call_id, str):
        raise invalid(f"{where}.id: it must be text", f"{where}.id")
    return {
        "id": call_id or "",
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }
