"""Answers that are kept, so that clients can read them again, and go on from them without a prefill of their prompt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from llamay_server.engine.blocking import release
from llamay_server.http.errors import ApiError

if TYPE_CHECKING:
    import asyncio

    from llamay_server.chat.conversation import Message
    from llamay_server.chat.prompt_history import SeenPrompt
    from llamay_server.engine.protocol import Context


@dataclass(slots=True)
class KeptAnswer:
    """One answer, and the data that a later request needs to continue it.

    Attributes:
        owner, model: of the request.
        response: the object that the client got; its `id` names the answer.
        items: the request's input items (of OpenAI's Responses), or its tools (of Anthropic's threads).
        messages: the conversation up to the answer, and the answer.
        context: the context that holds this conversation; None once it is closed.
        task: the background task that still generates the answer.
        seen: the prompt, for the comparison with a later prompt.

    """

    owner: str
    model: str
    response: dict[str, Any]
    items: list[dict[str, Any]]
    messages: list[Message]
    context: Context | None = None
    task: asyncio.Task[None] | None = None
    seen: SeenPrompt | None = None


class KeptAnswers:
    """At most `limit` answers, and the contexts of at most `contexts` of them; the least recently used go first."""

    def __init__(self, limit: int, contexts: int) -> None:
        self.limit, self.contexts = limit, contexts
        self._kept: OrderedDict[str, KeptAnswer] = OrderedDict()
        self._with_context: OrderedDict[str, KeptAnswer] = OrderedDict()

    def add(self, kept: KeptAnswer) -> None:
        """Keep an answer."""
        answer_id = kept.response["id"]
        self._kept[answer_id] = kept
        self._kept.move_to_end(answer_id)
        if kept.context is not None:
            self._with_context[answer_id] = kept
        while len(self._kept) > self.limit:
            self.remove(next(iter(self._kept)))
        while len(self._with_context) > self.contexts:
            _, oldest = self._with_context.popitem(last=False)
            _release_context(oldest)

    def find(self, answer_id: str, owner: str) -> KeptAnswer | None:
        """Return the answer as `get` does, but None where there is none."""
        try:
            return self.get(answer_id, owner)
        except ApiError:
            return None

    def get(self, answer_id: str, owner: str, *, param: str | None = None) -> KeptAnswer:
        """Return an answer of this owner. Raises the same 404 for another owner's answer as for one that never was."""
        kept = self._kept.get(answer_id)
        if kept is None or kept.owner != owner:
            code = "previous_response_not_found" if param else "response_not_found"
            raise ApiError("not_found", f"There is no response {answer_id[:80]!r}.", param=param, code=code)
        self._kept.move_to_end(answer_id)
        if answer_id in self._with_context:
            self._with_context.move_to_end(answer_id)
        return kept

    def remove(self, answer_id: str) -> None:
        """Forget an answer, and cancel it where it is still generated."""
        kept = self._kept.pop(answer_id)
        self._with_context.pop(answer_id, None)
        _release_context(kept)
        if kept.task is not None:
            kept.task.cancel()

    def item(self, item_id: str, owner: str) -> Mapping[str, Any] | None:
        """Return an input or output item of any answer of this owner."""
        for kept in reversed(self._kept.values()):
            if kept.owner == owner:
                for item in (*kept.response["output"], *kept.items):
                    if item.get("id") == item_id:
                        return dict(item)
        return None

    def drop_contexts(self, model: str) -> None:
        """Close the contexts of a model that is about to be unloaded."""
        for answer_id, kept in list(self._with_context.items()):
            if kept.model == model:
                del self._with_context[answer_id]
                _release_context(kept)

    def close(self) -> None:
        """Forget all."""
        for answer_id in list(self._kept):
            self.remove(answer_id)


def _release_context(kept: KeptAnswer) -> None:
    context, kept.context = kept.context, None
    if context is not None:
        release(context)
