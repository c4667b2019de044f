"""What earlier prompts were, and why a new one could not go on from what was computed for one of them.

One comparison stands behind Anthropic's `diagnostics` and OpenAI's `prompt_cache_diagnostics`: it looks at what a
prompt is made of in the order in which a difference spoils most, and counts in tokens of the two prompts as rendered.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from llamay_server.chat.run import ChatRequest, common, render
from llamay_server.engine.protocol import Model


@dataclass(frozen=True, slots=True)
class Seen:
    """A request whose prompt was read: by whose model, under which key of the client, and how long it was."""

    owner: str
    model: str
    request: ChatRequest
    prompt_tokens: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class Miss:
    """What differs first, how many tokens of the earlier prompt that costs, and how many both begin with."""

    what: str
    missed: int
    common: int


class SeenPrompts:
    """The last `limit` of them, by the id of their answer."""

    def __init__(self, limit: int = 256) -> None:
        self._limit = limit
        self._seen: OrderedDict[str, Seen] = OrderedDict()

    def add(self, answer_id: str, seen: Seen) -> None:
        """Remember one."""
        self._seen[answer_id] = seen
        while len(self._seen) > self._limit:
            self._seen.popitem(last=False)

    def find(self, answer_id: str, owner: str) -> Seen | None:
        """One of this owner; another's is as unknown as one that never was."""
        seen = self._seen.get(answer_id)
        return seen if seen is not None and seen.owner == owner else None


def compare(before: Seen, now: Seen, model: Model, tokens: list[int]) -> Miss | None:
    """Why `now`, whose prompt is `tokens`, does not go on from `before`; None where it does. Renders: blocks."""
    if before.model != now.model:
        return Miss("model", before.prompt_tokens, 0)
    what = _difference(before, now)
    if what is None:
        return None
    shared = common(render(model, before.request).prompt.tokens, tokens)
    return Miss(what, max(0, before.prompt_tokens - shared), shared)


def _difference(before: Seen, now: Seen) -> str | None:
    if before.key != now.key:
        return "key"
    a, b = before.request, now.request
    if _system(a) != _system(b):
        return "system"
    if a.box.tools != b.box.tools:
        return "tools"
    if b.messages[: len(a.messages)] != a.messages:
        return "messages"
    if a.bound != b.bound:
        return "format"
    if (a.template, a.think) != (b.template, b.think):
        return "effort"
    return "choice" if a.box != b.box else None


def _system(request: ChatRequest) -> object:
    return [m for m in request.messages[:1] if m["role"] == "system"]
