"""Tools, calls and results in words, for a model whose chat template has no place for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from .envelopes import envelope
from .formats import Formats
from .history import Message, checked, for_template
from .template import format_of, writes_calls
from .tools import openai_tools


def prepared(
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    template: str | None,
    formats: Formats,
    *,
    takes_tools: bool | None = None,
    offered: bool = True,
) -> tuple[list[Message], list[Mapping[str, Any]] | None]:
    """Return a conversation and its tools in the form that a chat template takes.

    Clients send conversations from any source: several calls in one turn, ids of any shape, "" beside calls; some
    templates refuse or silently drop such turns. A model whose template describes no tools is told of them in words.

    Args:
        messages: in OpenAI's form, with arguments of calls as objects or JSON text.
        tools: the functions that may be called, in OpenAI's form or plain (``{"name": ..., "parameters": schema}``).
        template: the source of the chat template.
        formats: the formats there are; `llamay_grammar`.
        takes_tools: whether the template describes tools; by default, whether it speaks of any.
        offered: whether they may be called now; tools in words are left out otherwise.

    Raises:
        ChatTemplateError: for a value that is no conversation (a ValueError, too).
        ValueError: for a value that is no list of tools, and for a tool without a name.

    """
    out = checked(messages)
    left: list[Mapping[str, Any]] | None = openai_tools(tools) if tools else None
    if takes_tools is None:
        takes_tools = template is not None and "tools" in template
    if left and not takes_tools:
        if not writes_calls(template):
            out = calls_in_words(out)
        if offered:
            out = tools_in_words(out, left, format_of(template), formats)
        left = None
    return (for_template(out, template, formats) if template is not None else out), left


def tools_in_words(
    messages: Sequence[Message], tools: Iterable[Mapping[str, Any]], form: str, formats: Formats
) -> list[Message]:
    """Return the conversation with a system message that tells of the tools, or with more in the one that it has."""
    out = list(messages)
    text = system_text(tools, form, formats)
    if out and out[0]["role"] == "system":
        out[0] = {**out[0], "content": f"{out[0]['content'] or ''}\n\n{text}".strip()}
    else:
        out.insert(0, {"role": "system", "content": text})
    return out


def calls_in_words(messages: Sequence[Message]) -> list[Message]:
    """Return the conversation with calls and their results as text."""
    out: list[Message] = []
    for message in messages:
        if message.get("tool_calls"):
            calls = "\n".join(
                call_text(c["function"]["name"], c["function"].get("arguments"))
                for c in message["tool_calls"]
            )
            content = f"{message['content']}\n{calls}" if message.get("content") else calls
            out.append({"role": "assistant", "content": content})
        elif message["role"] == "tool":
            out.append(
                {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
            )
        else:
            out.append(dict(message))
    return out


def system_text(tools: Iterable[Mapping[str, Any]], form: str, formats: Formats) -> str:
    """Return the tools in words; calls in the format `form`."""
    lines = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    return (
        "You may call functions to help with the request. These are the functions, one JSON description a line:\n"
        f"<tools>\n{lines}\n</tools>\n"
        f"To call one, write {envelope(form, formats).example()} and nothing after it."
    )


def call_text(name: str, arguments: Any) -> str:
    """Return a call as the model itself would have written it: in one form, so that replays find their prefix."""
    if isinstance(arguments, str):
        with suppress(ValueError, RecursionError):  # arguments that are no JSON are shown as they are
            arguments = json.loads(arguments or "{}")
    return (
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments}, ensure_ascii=False)}\n</tool_call>"
    )
