"""Classification markings: the markings that an owner handles, and the rules for marked contexts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from llamay_server.engine.protocol import Labels
from llamay_server.http.errors import ApiError

if TYPE_CHECKING:
    from llamay_server.config import Config


class _All(Collection[str]):
    """All markings: every text is in this collection."""

    def __contains__(self, item: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Markings:
    """The rules that a server's configuration makes for markings.

    Where the operator lists markings, an owner handles those that are listed for that owner or for everybody, and a
    marked context leaves the server only encrypted. Where none are listed, a marking is a label that anybody may use,
    except under the enterprise profile, which then allows no markings.
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
        """Return the markings that an owner handles."""
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
        """Return the labels of a snapshot. Raises a 403 for a marked context that could not be encrypted."""
        if marking and self._strict and not self._encrypts:
            raise ApiError(
                "permission",
                f"The context is marked {marking[:80]!r} and leaves this server only encrypted; "
                f"the operator has set no --ctx-key.",
                code="marking_needs_key",
            )
        return Labels(owner, marking or None)
