"""What Anthropic's answers say of the prompt cache: what was written up to a breakpoint, and why a prompt missed.

Every prompt is kept and found here, marked or not. A `cache_control` only tells which part of it counts as written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llamay_server.anthropic.reading import read_messages
from llamay_server.anthropic.schema import CacheControl, MessagesRequest
from llamay_server.chat.prompt_history import Miss
from llamay_server.chat.run import ChatRun, common, render
from llamay_server.engine.protocol import EngineError
from llamay_server.http.errors import ApiError

_REASONS = {
    "model": "model_changed",
    "system": "system_changed",
    "tools": "tools_changed",
    "messages": "messages_changed",
}


def last_breakpoint(data: MessagesRequest) -> tuple[int, CacheControl] | None:
    """The last marked place of a request: how many of its messages stand before it, and the mark."""
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
    """How many tokens of the prompt its first `count` messages make. Renders them: blocks."""
    request, rendered = run.request, run.rendered
    assert rendered is not None
    tokens = rendered.prompt.tokens
    calls = {c["id"] for m in request.messages for c in m.get("tool_calls", ())}
    end = len(request.messages) - len(read_messages(data.messages[count:], None, calls))
    # Templates write no conversation without a turn: the beginning of an empty one still belongs to what was marked.
    turns = request.messages[:end] if count else [*request.messages[:end], {"role": "user", "content": ""}]
    marked = replace(request, messages=turns, continue_final=False, open_turn=False)
    try:
        return min(common(render(run.model, marked).prompt.tokens, tokens), len(tokens) - 1)
    except (ApiError, EngineError):
        return 0  # a template that writes no conversation as short as that


def diagnose(miss: Miss | None) -> dict[str, Any] | None:
    """`cache_miss_reason`; where the prompts part is said too."""
    if miss is None:
        return None
    reason = _REASONS.get(miss.what)
    if reason is None:
        return {"type": "unavailable"}
    return {"type": reason, "cache_missed_input_tokens": miss.missed, "first_different_token": miss.common}
