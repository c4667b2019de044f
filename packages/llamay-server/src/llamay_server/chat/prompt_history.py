"""Prompts of earlier requests, and the reasons why a new prompt did not find their K/V in the prefix cache.

One comparison serves Anthropic's `diagnostics` and OpenAI's `prompt_cache_diagnostics`. It looks at the parts of a
prompt in the order in which a difference costs most, and counts tokens of the two prompts as rendered.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from llamay_server.chat.conversation import common_prefix, render

if TYPE_CHECKING:
    from llamay_server.chat.conversation import Conversation
    from llamay_server.chat.request import ChatRequest
    from llamay_server.engine.protocol import Model

Part = Literal["model", "key", "system", "tools", "messages", "format", "effort", "choice"]
"""The part of a request that differs first."""


@dataclass(frozen=True, slots=True)
class SeenPrompt:
    """A request whose prompt was prefilled.

    Attributes:
        owner, model: of the request.
        request: the request itself.
        prompt_tokens: the length of the prompt.
        key: the client's `prompt_cache_key`.

    """

    owner: str
    model: str
    request: ChatRequest
    prompt_tokens: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class CacheMiss:
    """A cache miss: the part that differs first, the tokens of the earlier prompt after it, and the shared tokens."""

    part: Part
    missed: int
    common: int


class PromptHistory:
    """The prompts of the last `limit` requests that asked for a comparison, by the id of their answer."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._seen: OrderedDict[str, SeenPrompt] = OrderedDict()

    def add(self, answer_id: str, seen: SeenPrompt) -> None:
        """Remember a prompt."""
        self._seen[answer_id] = seen
        while len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    def find(self, answer_id: str, owner: str) -> SeenPrompt | None:
        """Return a prompt of this owner. Another owner's prompt is as unknown as one that never was."""
        seen = self._seen.get(answer_id)
        return seen if seen is not None and seen.owner == owner else None


def compare(before: SeenPrompt, now: SeenPrompt, model: Model, tokens: list[int]) -> CacheMiss | None:
    """Return the miss of `now`, whose prompt is `tokens`, after `before`, or None (blocking: it renders)."""
    if before.model != now.model:
        return CacheMiss("model", before.prompt_tokens, 0)
    part = _difference(before, now)
    if part is None:
        return None
    shared = common_prefix(render(model, before.request.conversation).prompt.tokens, tokens)
    return CacheMiss(part, max(0, before.prompt_tokens - shared), shared)


def _difference(before: SeenPrompt, now: SeenPrompt) -> Part | None:
    if before.key != now.key:
        return "key"
    a, b = before.request.conversation, now.request.conversation
    if _system(a) != _system(b):
        return "system"
    if a.toolbox.tools != b.toolbox.tools:
        return "tools"
    if b.messages[: len(a.messages)] != a.messages:
        return "messages"
    if before.request.delivery.constraint != now.request.delivery.constraint:
        return "format"
    if (a.template_options, a.think) != (b.template_options, b.think):
        return "effort"
    return "choice" if a.toolbox != b.toolbox else None


def _system(conversation: Conversation) -> object:
    return [m for m in conversation.messages[:1] if m["role"] == "system"]
