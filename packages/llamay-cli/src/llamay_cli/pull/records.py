"""The permissions of a pull, and the files that it has fetched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..store import Incoming
from .limits import Limits

Progress = Callable[[str, int, int], None]
"""The function that a pull calls with the stage, the bytes that are done, and the bytes in all (0: not known)."""


@dataclass(frozen=True)
class Options:
    """A user's choices for a pull.

    `sha256` is the digest that the (one) GGUF file must have; `insecure` allows plain http to other machines;
    `offline` forbids any network.
    """

    name: str | None = None
    sha256: str | None = None
    insecure: bool = False
    offline: bool = False
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Fetched:
    """Verified files in the download folder, and the facts about their origin."""

    files: list[Incoming]
    details: dict[str, str]
