"""The server's interface to a model store: names, files, and changes of both. Another package implements it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Status(Protocol):
    """The function that a store calls with each status line of a pull or a creation."""

    def __call__(self, line: Mapping[str, Any], /) -> None:
        """Take one line, with Ollama's fields: `status`, and `digest`, `total` and `completed` of a download.

        An exception that it raises ends the work.
        """


class StoreError(Exception):
    """A store refuses something, in one sentence; `missing` says that there is no such model."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a name in a store, beside its file: a system prompt, a template and settings of its own.

    `parameters` have the names of Ollama's `options`; `messages`, in Ollama's form, begin every conversation.
    """

    parent: str = ""
    template: str | None = None
    system: str | None = None
    license: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model to be created: from another one (`source`), or from kept blobs (`files`, name to 64 hex digits).

    `changes` has the fields of `Profile` that differ from the source's; `adapters` (name to 64 hex digits) are LoRA
    adapters among the blobs, used beside those of the source.
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
        """Return the file of a model, or None."""

    def list(self) -> Sequence[StoredModel]:
        """Return all models, newest first."""

    def copy(self, source: str, destination: str) -> None:
        """Give a model a second name."""

    def delete(self, name: str) -> None:
        """Delete a name, and with the last name of a file the file."""

    def pull(self, name: str, *, insecure: bool, status: Status) -> None:
        """Fetch a model."""

    def profile(self, name: str) -> Profile | None:
        """Return the profile of a name; None where the name has only its file."""

    def adapters(self, name: str) -> Sequence[Path]:
        """Return the LoRA adapters that a model is used with."""

    def create(self, name: str, recipe: Recipe, status: Status) -> None:
        """Create a model; one that has the name already is replaced."""

    def has_blob(self, sha256: str) -> bool:
        """Return whether the blob with this digest is in the store."""

    def receiving(self) -> AbstractContextManager[Path]:
        """Return a temporary file for an upload, on the store's disk; `keep_blob` keeps it."""

    def keep_blob(self, path: Path, sha256: str) -> None:
        """Keep a file of `receiving` whose digest has been verified."""
