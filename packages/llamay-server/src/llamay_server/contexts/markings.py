"""Classification markings: which owner handles which, and what a marked context may do."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from llamay_server.config import Config
from llamay_server.engine.protocol import Labels
from llamay_server.http.errors import ApiError


class _All(Collection[str]):
    """Every marking there could be."""

    def __contains__(self, item: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Markings:
    """The rules of a server.

    Where the operator lists markings, an owner uses those that are listed for it or for everybody, and a marked
    context leaves the server only encrypted. Where none are listed a marking is a label that anybody may use, except
    under the enterprise profile, which then allows none.
    """

    def __init__(self, config: Config) -> None:
        self._everybody: set[str] = set()
        self._of: dict[str, set[str]] = {}
        for line in config.markings:
            owner, colon, marking = line.rpartition(":")
            (self._of.setdefault(owner, set()) if colon else self._everybody).add(marking)
        self._strict = bool(config.markings) or config.profile == "enterprise"
        self._encrypts = bool(config.ctx_key)

    def of(self, owner: str) -> Collection[str]:
        """The markings that an owner handles."""
        if not self._strict:
            return _All()
        return self._everybody | self._of.get(owner, set())

    def check(self, owner: str, marking: str | None) -> None:
        """Refuse a marking that the owner does not handle."""
        if marking and marking not in self.of(owner):
            raise ApiError(
                "permission",
                f"marking: {marking[:80]!r} is not one that you handle on this server.",
                param="marking",
                code="marking_not_allowed",
            )

    def labels(self, owner: str | None, marking: str) -> Labels:
        """What a snapshot of this context says of itself. Refuses to write a marked one in the clear."""
        if marking and self._strict and not self._encrypts:
            raise ApiError(
                "permission",
                f"The context is marked {marking[:80]!r} and leaves this server only encrypted; "
                f"the operator has set no --ctx-key.",
                code="marking_needs_key",
            )
        return Labels(owner, marking or None)
