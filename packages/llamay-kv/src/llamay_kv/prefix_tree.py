"""The prefix tree, by identities and tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from llamay_kv import _kv, arguments
from llamay_kv.context import Context, Pool
from llamay_kv.identity import Identity

if TYPE_CHECKING:
    import numpy as np

    Tokens = Sequence[int] | np.ndarray

_NOBODY = Identity()
_FEW = 64  # identities that may be remembered without entries


class PrefixTree(_kv.PrefixTree):
    """Prefixes that were computed, shared with every context that begins alike.

    Args:
        pool: the pool of the pages. When it runs out of pages, the tree evicts pages that no context uses; pages that
            other trees of the pool hold too come last, and are free when each of the trees has evicted them.
        budget_bytes: the most bytes that the tree's pages take.
        per_token: the cost of computing a token again, in seconds or any other unit.
        per_token_and_position: the additional cost for each position before the token.

    Pages that are cheap to recompute for their bytes, and were not used for long, are evicted first.

    Each identity has entries of its own. Within one, an entry belongs to a tenant or is shared by all. A tenant finds
    its own entries and the shared ones, and no method tells it about entries of other tenants.

    """

    def __init__(
        self,
        pool: Pool,
        budget_bytes: int,
        *,
        per_token: float = 1.0,
        per_token_and_position: float = 1 / 4096,
    ) -> None:
        super().__init__(pool, Context, budget_bytes, per_token, per_token_and_position)
        self.pool = pool
        self._identities: dict[bytes, Identity] = {}  # those with entries, and some that had any
        self._most_identities = _FEW

    def insert(
        self, context: Context, *, identity: Identity = _NOBODY, tenant: str = "", shared: int = 0
    ) -> int:
        """Keep the pages of the context; return how many of its tokens the tree has afterwards.

        Args:
            context: stays unchanged, and shares its pages with the tree.
            identity: the identity of the context's K/V.
            tenant: the owner of the entry; without one it is shared by all tenants.
            shared: the number of tokens from the start, rounded down to pages, that are shared by all tenants: a system
                prompt that all have. Share nothing secret.

        The tree keeps fewer tokens than the context has where pins and the same path take up the budget.

        """
        space, owner = _place(identity, tenant)
        kept = self.insert_in(context, space, owner, shared)
        self._identities.setdefault(space, identity)
        if len(self._identities) > self._most_identities:
            self._forget_identities()
        return kept

    def reclaim(self, bytes: int) -> int:  # noqa: A002 - the native method's name for it
        """Evict entries until so many bytes are free in the pool; return the bytes that were freed.

        Pages that a context uses stay. Those that other trees hold too are given up after all others, and become free
        with the last of these trees. A pool that runs out of pages asks all of its trees by itself.
        """
        freed = super().reclaim(bytes)
        self._forget_identities()
        return freed

    def clear(self) -> None:
        """Evict everything, pins included."""
        super().clear()
        self._forget_identities()

    def _forget_identities(self) -> None:
        """Forget identities whose entries are gone. Called each time their number has doubled, it costs little."""
        spaces = set(self.spaces())
        for space in list(self._identities):
            if space not in spaces:
                self._identities.pop(space, None)
        self._most_identities = 2 * len(self._identities) + _FEW

    def match(self, tokens: Tokens, *, identity: Identity = _NOBODY, tenant: str = "") -> Context:
        """Return a context with the longest usable prefix of the tokens; it may be empty.

        An engine that wants the logits after the last token leaves that token out.
        """
        found = self.match_in(tokens, *_place(identity, tenant))
        assert isinstance(found, Context)
        return found

    def known(self, tokens: Tokens, *, identity: Identity = _NOBODY, tenant: str = "") -> tuple[int, int]:
        """Return how many of the tokens the tree has, and how many of these `match` would find.

        The second number is smaller where pages inside a window are gone, or a recurrent group has no later state.
        """
        equal, usable, _, _ = self.trace_in(tokens, *_place(identity, tenant))
        return equal, usable

    def pin(self, tokens: Tokens, *, identity: Identity = _NOBODY, tenant: str = "") -> Pin:
        """Protect the pages of these tokens, as far as they are in the tree, until the pin is released."""
        number, kept = self.pin_in(tokens, *_place(identity, tenant))
        return Pin(self, number, kept)

    def explain_miss(self, tokens: Tokens, *, identity: Identity = _NOBODY, tenant: str = "") -> Miss:
        """Say how many of the tokens the tree has, and which token or field differs there."""
        space, owner = _place(identity, tenant)
        equal, usable, ends, stored = self.trace_in(tokens, space, owner)
        wanted = None if equal == len(tokens) else int(tokens[equal])
        best, field = equal, None
        for digest, other in list(self._identities.items()):
            if digest != space:
                known = self.trace_in(tokens, digest, owner)[0]
                if known > best:
                    best, field = known, identity.difference(other)
        return Miss(len(tokens), equal, usable, wanted, None if ends else stored, best, field)

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that the tree holds, each counted once."""
        return self.counters()["used_bytes"]

    def __repr__(self) -> str:
        c = self.counters()
        return f"<PrefixTree {c['used_bytes']} of {c['budget_bytes']} bytes, {c['nodes']} pages of tokens>"


def _place(identity: Identity, tenant: str) -> tuple[bytes, bytes]:
    """Return the names under which the tree files what belongs to an identity and a tenant."""
    if not isinstance(identity, Identity) or not isinstance(tenant, str):  # every request asks
        arguments.instance("identity", identity, Identity)
        arguments.text("tenant", tenant)
    return identity.digest, tenant.encode()


class Pin:
    """A protection of pages against eviction. Used as a context manager, it is released at the end."""

    __slots__ = ("_number", "_tree", "tokens")

    def __init__(self, tree: PrefixTree, number: int, tokens: int) -> None:
        self._tree = tree
        self._number = number
        self.tokens = tokens
        """How many of the tokens are kept."""

    def release(self) -> None:
        """End the protection. Releasing twice does nothing."""
        self._tree.unpin(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.release()


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a prefix is not longer.

    Attributes:
        length: how many tokens were asked for.
        equal: how many of them the tree knows under this identity and tenant.
        usable: how many of those a context can be made of; fewer where pages inside a window, or states, are missing.
        wanted: the token after the equal ones, None if there is none.
        stored: a token that the tree has in its place, None if it has nothing there.
        elsewhere: how many it knows under another identity, if that is more.
        field: the first field in which that identity differs.

    """

    length: int
    equal: int
    usable: int
    wanted: int | None
    stored: int | None
    elsewhere: int
    field: str | None

    def __str__(self) -> str:
        parts = [f"{self.usable} of {self.length} tokens can be used"]
        if self.usable < self.equal:
            parts.append(f"{self.equal} are known, but pages inside the window of the later ones are gone")
        if self.wanted is not None:
            instead = "nothing is stored there" if self.stored is None else f"{self.stored} is stored there"
            parts.append(f"token {self.equal} is {self.wanted}, {instead}")
        if self.field is not None:
            parts.append(f"{self.elsewhere} are known for another {self.field}")
        return "; ".join(parts)
