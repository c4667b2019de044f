"""The prompt cache in Anthropic's answers: tokens written up to a breakpoint, and the reason why a prompt missed.

The prefix cache keeps and finds every prompt, marked or not. A `cache_control` only says how much of a prompt is
counted as written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llamay_models.errors import LlamayError
from llamay_server.anthropic.content import read_messages
from llamay_server.anthropic.schema import CacheControl
from llamay_server.chat.conversation import common_prefix, render
from llamay_server.http.errors import ApiError

if TYPE_CHECKING:
    from llamay_server.anthropic.schema import MessagesRequest
    from llamay_server.chat.prompt_history import CacheMiss
    from llamay_server.chat.run import ChatRun

_REASONS = {
    "model": "model_changed",
    "system": "system_changed",
    "tools": "tools_changed",
    "messages": "messages_changed",
}


def last_breakpoint(data: MessagesRequest) -> tuple[int, CacheControl] | None:
    """Return the last breakpoint of a request: how many of its messages are before it, and its `cache_control`."""
    found: tuple[int, CacheControl] | None = None
    for tool in data.tools or ():
        if isinstance(mark := tool.get("cache_control"), Mapping):
            found = 0, CacheControl(ttl="1h" if mark.get("ttl") == "1h" else None)
    for text in data.system if isinstance(data.system, list) else ():
        if text.cache_control is not None:
            found = 0, text.cache_control
    for n, message in enumerate(data.messages, 1):
        for block in message.content if not isinstance(message.content, str) else ():
            if (mark := getattr(block, "cache_control", None)) is not None:
                found = n, mark
    if data.cache_control is not None:
        found = len(data.messages), data.cache_control
    return found


def marked_tokens(run: ChatRun, data: MessagesRequest, count: int) -> int:
    """Return the number of tokens that the first `count` messages of a prompt have (blocking: it renders them)."""
    conversation, rendered = run.request.conversation, run.rendered
    assert rendered is not None
    messages, tokens = conversation.messages, rendered.prompt.tokens
    calls = {c["id"] for m in messages for c in m.get("tool_calls", ())}
    end = len(messages) - len(read_messages(data.messages[count:], None, calls))
    # Templates write no conversation without a turn: the beginning of an empty turn still belongs to the marked part.
    turns = messages[:end] if count else [*messages[:end], {"role": "user", "content": ""}]
    marked = replace(conversation, messages=turns, continue_final=False, open_turn=False)
    try:
        return min(common_prefix(render(run.model, marked).prompt.tokens, tokens), len(tokens) - 1)
    except (ApiError, LlamayError):
        return 0  # a template that writes no conversation as short as that


def miss_reason(miss: CacheMiss | None) -> dict[str, Any] | None:
    """Return the `cache_miss_reason` of a miss, with the place of the first token that differs."""
    if miss is None:
        return None
    reason = _REASONS.get(miss.part)
    if reason is None:
        return {"type": "unavailable"}
    return {"type": reason, "cache_missed_input_tokens": miss.missed, "first_different_token": miss.common}
