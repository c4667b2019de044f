"""Named contexts: who owns which, what became of those that are gone, and how many an owner may hold.

A write (generate, extend, truncate) works on a fork and takes its place when it is done. So a context is always in
a state that a client asked for: a cancelled generation leaves it as it was, and forking, reading or saving it
meanwhile is safe. One write at a time; a second one is told so with 409.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llamay_server.config import Config
from llamay_server.engine.protocol import Context
from llamay_server.http.answers import release
from llamay_server.http.errors import ApiError
from llamay_server.models.registry import Models
from llamay_server.observability.metrics import Metrics

if TYPE_CHECKING:
    from llamay_models.pool import Lease

_REMEMBERED = 10_000


@dataclass(slots=True)
class Named:
    """One context and what is known of it."""

    id: str
    owner: str
    model: str
    context: Context
    lease: Lease
    """Keeps the model loaded."""
    marking: str = ""
    label: str = ""
    parent: str | None = None
    messages: list[dict[str, Any]] | None = None
    """The conversation it was made from, where it was made from one."""
    prompt_length: int = 0
    """Tokens up to where the model's own words begin, for a conversation."""
    created: float = field(default_factory=time.time)
    last_used: float = field(default_factory=time.time)
    writing: str = ""
    cancel: Callable[[], None] | None = None

    def view(self) -> dict[str, Any]:
        """As clients see it."""
        return {
            "id": self.id,
            "object": "context",
            "model": self.model,
            "tokens": len(self.context),
            "pages": self.context.pages,
            "bytes": self.context.nbytes,
            "owner": self.owner,
            "marking": self.marking,
            "label": self.label,
            "parent": self.parent,
            "created": int(self.created),
            "last_used": int(self.last_used),
            "busy": self.writing or None,
        }


class Contexts:
    """All named contexts of a server."""

    def __init__(self, config: Config, models: Models, metrics: Metrics) -> None:
        self.config, self.models, self.metrics = config, models, metrics
        self._named: dict[str, Named] = {}
        self._by_owner: dict[str, dict[str, Named]] = {}
        self._gone: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._moved: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        return len(self._named)

    def check_room(self, owner: str, n: int = 1, tokens: int = 0) -> None:
        """Refuse what is beyond an owner's share, with the numbers."""
        own = self._by_owner.get(owner, {})
        if len(own) + n > self.config.max_contexts:
            raise ApiError(
                "limit",
                f"{len(own)} of {self.config.max_contexts} contexts are held and {n} more were asked for; delete some.",
                code="too_many_contexts",
                extra={"held": len(own), "limit": self.config.max_contexts, "asked": n},
                retry=False,
            )
        if limit := self.config.max_context_tokens:
            held = sum(len(named.context) for named in own.values())
            if held + tokens > limit:
                raise ApiError(
                    "limit",
                    f"Contexts hold {held} of {limit} tokens and {tokens} more were asked for; delete some.",
                    code="too_many_tokens",
                    extra={"held": held, "limit": limit, "asked": tokens},
                    retry=False,
                )

    def add(self, context: Context, *, owner: str, model: str, **about: Any) -> Named:
        """Give a context a name that cannot be guessed."""
        lease = self.models.hold(model)
        named = Named(f"ctx_{secrets.token_hex(12)}", owner, model, context, lease, **about)
        self._named[named.id] = named
        self._by_owner.setdefault(owner, {})[named.id] = named
        self.metrics.contexts.set(len(self._named))
        return named

    def get(self, context_id: str, owner: str) -> Named:
        """An owner's context. Another's is as unknown as one that never was."""
        named = self._named.get(context_id)
        if named is not None and named.owner == owner:
            named.last_used = time.time()
            return named
        gone = self._gone.get(context_id)
        if gone is not None and gone[0] == owner and (where := self._moved.get(context_id)):
            message = f"Context {context_id} was moved to {where['server']}, where it is {where['id']}."
            raise ApiError("gone", message, code="context_moved", extra={"moved": where})
        if gone is not None and gone[0] == owner:
            raise ApiError("not_found", f"Context {context_id} was {gone[1]}.", code="context_gone")
        raise ApiError("not_found", f"There is no context {context_id[:64]!r}.", code="context_not_found")

    def for_model(self, context_id: str, owner: str, model: str) -> Context:
        """An owner's context, for a request in any dialect to go on from: what it shares is not read again."""
        named = self.get(context_id, owner)
        if named.model != model:
            message = f"context: {context_id} belongs to model {named.model}, not {model}"
            raise ApiError("invalid", message, param="context")
        return named.context

    def of(self, owner: str) -> Iterator[Named]:
        """An owner's contexts, oldest first."""
        return iter(list(self._by_owner.get(owner, {}).values()))

    def drop(self, named: Named, reason: str) -> None:
        """Free a context at once; a generation that writes to it ends as cancelled."""
        if self._named.pop(named.id, None) is None:
            return
        own = self._by_owner[named.owner]
        del own[named.id]
        if not own:
            del self._by_owner[named.owner]
        named.lease.release()
        self._gone[named.id] = (named.owner, reason)
        while len(self._gone) > _REMEMBERED:
            self._moved.pop(self._gone.popitem(last=False)[0], None)
        if named.cancel is not None:
            named.cancel()
        release(named.context)
        self.metrics.contexts.set(len(self._named))

    @contextlib.asynccontextmanager
    async def writing(self, named: Named, what: str) -> AsyncIterator[Writer]:
        """A fork to write to. It takes the context's place by `commit`; without that, nothing has happened."""
        if named.writing:
            raise ApiError(
                "conflict",
                f"Context {named.id} is busy: {named.writing}. Fork it to go two ways.",
                code="context_busy",
                retry=False,
            )
        named.writing = what
        writer = Writer(named, named.context.fork(1)[0])
        try:
            yield writer
        finally:
            named.writing, named.cancel = "", None
            named.last_used = time.time()
            writer.close()

    def moved(self, named: Named, server: str, new_id: str) -> None:
        """Give up a context that another server has now."""
        self.drop(named, "moved")
        self._moved[named.id] = {"server": server, "id": new_id}

    def is_live(self, named: Named) -> bool:
        """Whether it has not been dropped meanwhile."""
        return self._named.get(named.id) is named

    def sweep(self) -> None:
        """Drop what nobody used for its time."""
        if self.config.context_ttl > 0:
            limit = time.time() - self.config.context_ttl
            for named in list(self._named.values()):
                if named.last_used < limit and not named.writing:
                    self.drop(named, f"dropped after {self.config.context_ttl:g} seconds without use")

    def close(self) -> None:
        """Drop all."""
        for named in list(self._named.values()):
            self.drop(named, "dropped when the server stopped")


class Writer:
    """A fork in the making."""

    def __init__(self, named: Named, context: Context) -> None:
        self.named, self.context = named, context
        self.messages, self.prompt_length = named.messages, named.prompt_length
        self._done = False

    def commit(self, context: Context | None = None) -> None:
        """Let the fork (or another one) be the context from now on."""
        fresh = self.context if context is None else context
        if context is not None:
            release(self.context)
        old, self.named.context = self.named.context, fresh
        self.named.messages, self.named.prompt_length = self.messages, self.prompt_length
        self._done = True
        release(old)

    def close(self) -> None:
        """Give the fork back where it was not committed."""
        if not self._done:
            release(self.context)
