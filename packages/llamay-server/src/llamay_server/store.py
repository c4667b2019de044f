"""What the server asks of a model store, which somebody else keeps: names, files, and moving models in and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
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
class Profile:
    """What a name in a store adds to its file: the model's own prompt, template and settings.

    `parameters` are named as Ollama's `options` name them; `messages` open every conversation, as Ollama's messages.
    """

    parent: str = ""
    template: str | None = None
    system: str | None = None
    license: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model to be made: of another one (`source`) or of kept blobs (`files`, name to 64 hex digits), not both.

    `changes` holds the fields of `Profile` that differ from the source's, `adapters` LoRA adapters among the blobs
    (name to 64 hex digits) that are used beside those of the source.
    """

    source: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    adapters: Mapping[str, str] = field(default_factory=dict)
    quantize: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)


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

    def profile(self, name: str) -> Profile | None:
        """What a name adds to its file; None where it adds nothing."""

    def adapters(self, name: str) -> Sequence[Path]:
        """LoRA adapters that a model is used with."""

    def create(self, name: str, recipe: Recipe, status: Status) -> None:
        """Make a model, over one that has the name."""

    def has_blob(self, sha256: str) -> bool:
        """Whether the bytes with this digest are here."""

    def receiving(self) -> AbstractContextManager[Path]:
        """A file to write an upload to, on the store's disk, which is gone afterwards unless it was kept."""

    def keep_blob(self, path: Path, sha256: str) -> None:
        """Take over a file that `receiving` gave and whose digest has been verified."""
