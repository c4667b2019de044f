"""Anthropic's messages, whose content are blocks, read into messages in no dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from llamay_server.anthropic.schema import (
    Block,
    DocumentBlock,
    InputMessage,
    RedactedThinkingBlock,
    SearchResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from llamay_server.chat.conversation import Message
from llamay_server.http.errors import invalid

# This line changes with every build of the client; in the prompt, it would make every turn miss the prefix cache.
_BILLING = "x-anthropic-billing-header:"


def read_messages(
    messages: Sequence[InputMessage], system: str | list[TextBlock] | None, call_ids: Iterable[str] = ()
) -> list[Message]:
    """Return Anthropic's messages in no dialect: results become tool messages, in the order of their blocks.

    `call_ids` are the ids of calls made before these messages. Raises a 400 with the path of the field that is wrong.
    """
    out: list[Message] = []
    text = (
        system
        if isinstance(system, str)
        else _join(b.text for b in system or () if not b.text.startswith(_BILLING))
    )
    if text and not text.startswith(_BILLING):
        out.append({"role": "system", "content": text})
    known = set(call_ids)
    for n, message in enumerate(messages):
        where = f"messages[{n}]"
        if isinstance(message.content, str):
            if message.role == "user" and not message.content:
                raise invalid(f"{where}.content: it is empty", f"{where}.content")
            out.append({"role": message.role, "content": message.content})
        elif message.role == "assistant":
            out.append(assistant_message(message.content, where, known))
        else:
            out += _user(message.content, message.role, where, known)
    return out


def _join(texts: Any) -> str:
    return "\n".join(t for t in texts if t)


def assistant_message(blocks: Sequence[Block], where: str, known: set[str]) -> Message:
    """Return Anthropic's blocks as one assistant message. The ids of its calls are added to `known`."""
    texts, reasoning, calls = [], [], []
    for i, block in enumerate(blocks):
        match block:
            case TextBlock():
                texts.append(block.text)
            case ThinkingBlock():
                reasoning.append(block.thinking)
            case RedactedThinkingBlock():
                pass
            case ToolUseBlock():
                known.add(block.id)
                function = {"name": block.name, "arguments": block.input or {}}
                calls.append({"id": block.id, "type": "function", "function": function})
            case _:
                raise _wrong_block(block, f"{where}.content[{i}]", "an assistant message")
    message: Message = {"role": "assistant", "content": "".join(texts) or (None if calls else "")}
    if reasoning:
        message["reasoning_content"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message


def _user(blocks: Sequence[Block], role: str, where: str, known: set[str]) -> list[Message]:
    out: list[Message] = []
    texts: list[str] = []

    def flush() -> None:
        if texts:
            out.append({"role": role, "content": _join(texts)})
            texts.clear()

    for i, block in enumerate(blocks):
        at = f"{where}.content[{i}]"
        match block:
            case TextBlock():
                texts.append(block.text)
            case DocumentBlock():
                texts.append(_document(block, at))
            case SearchResultBlock():
                texts.append(_join([block.title, *(_part_text(p, f"{at}.content") for p in block.content)]))
            case ToolResultBlock():
                if block.tool_use_id not in known:
                    raise invalid(
                        f"{at}.tool_use_id: no tool_use block before it has the id {block.tool_use_id[:80]!r}",
                        f"{at}.tool_use_id",
                    )
                flush()
                out.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block, at)})
            case _:
                raise _wrong_block(block, at, f"a {role} message")
    flush()
    if not out:
        raise invalid(f"{where}.content: it is empty", f"{where}.content")
    return out


def _wrong_block(block: Block, where: str, place: str) -> Exception:
    kind = str(block.__struct_config__.tag)
    if kind == "image":
        return invalid(f"{where}: this model reads text only, not images", f"{where}.type")
    return invalid(f"{where}.type: {kind} does not belong into {place}", f"{where}.type")


def _document(block: DocumentBlock, where: str) -> str:
    source = block.source
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return _join([block.title, block.context, source["data"]])
    if source.get("type") == "content" and isinstance(source.get("content"), str):
        return _join([block.title, block.context, source["content"]])
    raise invalid(f"{where}.source.type: only text documents can be read", f"{where}.source.type")


def _part_text(part: dict[str, Any], where: str) -> str:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return str(part["text"])
    if part.get("type") == "image":
        raise invalid(f"{where}: this model reads text only, not images", f"{where}.type")
    raise invalid(f"{where}.type: {str(part.get('type'))[:40]!r} cannot be read; use text", f"{where}.type")


def _result(block: ToolResultBlock, where: str) -> str:
    content = block.content
    text = (
        content
        if isinstance(content, str)
        else _join(_part_text(p, f"{where}.content") for p in content or ())
    )
    return f"Error: {text}" if block.is_error else text
