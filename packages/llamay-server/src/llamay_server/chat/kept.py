"""Responses that are kept: for reading them again, and for going on from them without reading their prompt again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llamay_server.chat.prompt_history import Seen
from llamay_server.chat.run import Message
from llamay_server.engine.protocol import Context
from llamay_server.http.answers import release
from llamay_server.http.errors import ApiError


@dataclass(slots=True)
class Stored:
    """One response, the conversation up to and with it, and the context that holds it where that is still there."""

    owner: str
    model: str
    response: dict[str, Any]
    items: list[dict[str, Any]]
    messages: list[Message]
    context: Context | None = None
    task: asyncio.Task[None] | None = None
    seen: Seen | None = None
    """Its prompt, for a later one to be compared with."""


class Responses:
    """At most `limit` responses and `contexts` of their contexts, the least recently used leave first."""

    def __init__(self, limit: int, contexts: int) -> None:
        self.limit, self.contexts = limit, contexts
        self._kept: OrderedDict[str, Stored] = OrderedDict()
        self._warm: OrderedDict[str, Stored] = OrderedDict()

    def add(self, stored: Stored) -> None:
        """Keep a response."""
        response_id = stored.response["id"]
        self._kept[response_id] = stored
        self._kept.move_to_end(response_id)
        if stored.context is not None:
            self._warm[response_id] = stored
        while len(self._kept) > self.limit:
            self.remove(next(iter(self._kept)))
        while len(self._warm) > self.contexts:
            _, cold = self._warm.popitem(last=False)
            self._cool(cold)

    def _cool(self, stored: Stored) -> None:
        context, stored.context = stored.context, None
        if context is not None:
            release(context)

    def find(self, response_id: str, owner: str) -> Stored | None:
        """As `get`, with None for what is not there."""
        try:
            return self.get(response_id, owner)
        except ApiError:
            return None

    def get(self, response_id: str, owner: str, *, param: str | None = None) -> Stored:
        """A response of this owner. Another's is as unknown as one that never was."""
        stored = self._kept.get(response_id)
        if stored is None or stored.owner != owner:
            code = "previous_response_not_found" if param else "response_not_found"
            raise ApiError("not_found", f"There is no response {response_id[:80]!r}.", param=param, code=code)
        self._kept.move_to_end(response_id)
        if response_id in self._warm:
            self._warm.move_to_end(response_id)
        return stored

    def remove(self, response_id: str) -> None:
        """Forget one, and end it where it still runs."""
        stored = self._kept.pop(response_id)
        self._warm.pop(response_id, None)
        self._cool(stored)
        if stored.task is not None:
            stored.task.cancel()

    def item(self, item_id: str, owner: str) -> Mapping[str, Any] | None:
        """An item of any kept response of this owner."""
        for stored in reversed(self._kept.values()):
            if stored.owner == owner:
                for item in (*stored.response["output"], *stored.items):
                    if item.get("id") == item_id:
                        return dict(item)
        return None

    def drop_contexts(self, model: str) -> None:
        """Give back the contexts of a model that is about to be unloaded."""
        for response_id, stored in list(self._warm.items()):
            if stored.model == model:
                del self._warm[response_id]
                self._cool(stored)

    def close(self) -> None:
        """Forget all."""
        for response_id in list(self._kept):
            self.remove(response_id)
