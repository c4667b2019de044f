"""Named contexts: their owners, the reasons why contexts were closed, and the limits of an owner.

A write (generate, extend, truncate) works on a fork, which replaces the context when the write is complete. A context
is therefore always in a state that a client asked for: a cancelled generation leaves it as it was, and it may be
forked, read and saved while it is written. There is one write at a time; a second one is refused with a 409.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llamay_server.engine.blocking import release
from llamay_server.http.errors import ApiError

if TYPE_CHECKING:
    from llamay_models.pool import Lease
    from llamay_server.config import Config
    from llamay_server.engine.protocol import Context
    from llamay_server.models.registry import Models
    from llamay_server.observability.metrics import Metrics

_REMEMBERED = 10_000


@dataclass(slots=True)
class NamedContext:
    """A context that clients know by its id."""

    id: str
    owner: str
    model: str
    context: Context
    lease: Lease
    """Keeps the context's model loaded."""
    marking: str = ""
    label: str = ""
    parent: str | None = None
    messages: list[dict[str, Any]] | None = None
    """The conversation that the context was made from, where it was made from one."""
    prompt_length: int = 0
    """The number of a conversation's tokens before the model's own text."""
    created: float = field(default_factory=time.time)
    last_used: float = field(default_factory=time.time)
    writing: str = ""
    """The write that is under way; empty for none."""
    cancel: Callable[[], None] | None = None
    """Cancels the generation that writes to the context."""

    def view(self) -> dict[str, Any]:
        """Return the object that clients get."""
        return {
            "id": self.id,
            "object": "context",
            "model": self.model,
            "tokens": len(self.context),
            "pages": self.context.page_count,
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
        self._named: dict[str, NamedContext] = {}
        self._by_owner: dict[str, dict[str, NamedContext]] = {}
        self._gone: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._moved: dict[str, dict[str, str]] = {}

    def __len__(self) -> int:
        return len(self._named)

    def check_room(self, owner: str, n: int = 1, tokens: int = 0) -> None:
        """Refuse `n` more contexts or `tokens` more tokens above an owner's limits; the error has the numbers."""
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

    def add(self, context: Context, *, owner: str, model: str, **about: Any) -> NamedContext:
        """Name a context, by an id that cannot be guessed. `about` are further attributes of `NamedContext`."""
        lease = self.models.hold(model)
        named = NamedContext(f"ctx_{secrets.token_hex(12)}", owner, model, context, lease, **about)
        self._named[named.id] = named
        self._by_owner.setdefault(owner, {})[named.id] = named
        self.metrics.contexts.set(len(self._named))
        return named

    def get(self, context_id: str, owner: str) -> NamedContext:
        """Return a context of this owner. Raises the same 404 for another owner's context as for one that never was."""
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
        """Return a context of this owner, for a request to continue; tokens that both share are not computed again."""
        named = self.get(context_id, owner)
        if named.model != model:
            message = f"context: {context_id} belongs to model {named.model}, not {model}"
            raise ApiError("invalid", message, param="context")
        return named.context

    def of(self, owner: str) -> Iterator[NamedContext]:
        """Return the contexts of an owner, oldest first."""
        return iter(list(self._by_owner.get(owner, {}).values()))

    def drop(self, named: NamedContext, reason: str) -> None:
        """Close a context at once, for a `reason`; a generation that writes to it is cancelled."""
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
    async def writing(self, named: NamedContext, what: str) -> AsyncIterator[ContextWrite]:
        """Yield a fork to write to. `commit` makes it the context; without that, the context stays as it was."""
        if named.writing:
            raise ApiError(
                "conflict",
                f"Context {named.id} is busy: {named.writing}. Fork it to go two ways.",
                code="context_busy",
                retry=False,
            )
        named.writing = what
        write = ContextWrite(named, named.context.fork())
        try:
            yield write
        finally:
            named.writing, named.cancel = "", None
            named.last_used = time.time()
            write.close()

    def moved(self, named: NamedContext, server: str, new_id: str) -> None:
        """Close a context that was moved to another server."""
        self.drop(named, "moved")
        self._moved[named.id] = {"server": server, "id": new_id}

    def is_live(self, named: NamedContext) -> bool:
        """Return whether a context has not been dropped."""
        return self._named.get(named.id) is named

    def sweep(self) -> None:
        """Drop the contexts that nobody used for as long as the configuration allows."""
        if self.config.context_ttl > 0:
            limit = time.time() - self.config.context_ttl
            for named in list(self._named.values()):
                if named.last_used < limit and not named.writing:
                    self.drop(named, f"dropped after {self.config.context_ttl:g} seconds without use")

    def close(self) -> None:
        """Drop all contexts."""
        for named in list(self._named.values()):
            self.drop(named, "dropped when the server stopped")


class ContextWrite:
    """A write that is under way, and the fork that it works on."""

    def __init__(self, named: NamedContext, context: Context) -> None:
        self.named, self.context = named, context
        self.messages, self.prompt_length = named.messages, named.prompt_length
        self._done = False

    def commit(self, context: Context | None = None) -> None:
        """Make the fork, or another context, the named context from now on."""
        fresh = self.context if context is None else context
        if context is not None:
            release(self.context)
        old, self.named.context = self.named.context, fresh
        self.named.messages, self.named.prompt_length = self.messages, self.prompt_length
        self._done = True
        release(old)

    def close(self) -> None:
        """Close the fork, unless it was committed."""
        if not self._done:
            release(self.context)
