"""What the server asks of a model store, which somebody else keeps: names, files, and moving models in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

Status = Callable[[Mapping[str, Any]], None]
"""Called with one status line of a pull, as Ollama words them; raising from it ends the pull."""


class StoreError(Exception):
    """What a store refuses, in one sentence; `missing` where there is no such model."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class StoredModel:
    """One model in a store. Sizes are bytes, times epoch seconds, `digest` 64 hex digits."""

    name: str
    path: Path
    size: int
    digest: str
    modified: float
    details: Mapping[str, Any] = field(default_factory=dict)


class Store(Protocol):
    """A model store. All calls may block; the server makes them off its loop."""

    def find(self, name: str) -> Path | None:
        """The file of a model, or None."""

    def list(self) -> Sequence[StoredModel]:
        """All models, newest first."""

    def copy(self, source: str, destination: str) -> None:
        """Give a model a second name."""

    def delete(self, name: str) -> None:
        """Take a name away, and the file with the last one."""

    def pull(self, name: str, *, insecure: bool, status: Status) -> None:
        """Fetch a model."""
