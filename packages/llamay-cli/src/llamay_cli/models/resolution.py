"""Resolves MODEL, as a user writes it, to a file: a name in the store, a source to pull from, or a path."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..console.progress import Mode, reporting
from ..errors import IntegrityError, NotFoundError

if TYPE_CHECKING:
    from ..pull import Options, Source
    from ..store import Entry, Store
    from ..store.foreign import ForeignModel

_PATH = re.compile(r"\.{0,2}/")
"""The beginning of a path; no name and no source begins like this."""


@dataclass(frozen=True)
class Resolved:
    """A GGUF file to load, the name to call it by, and its entry in the store, or in another program's."""

    path: Path
    name: str
    entry: Entry | None = None
    foreign: ForeignModel | None = None

    @property
    def sha256(self) -> str | None:
        """The SHA-256 of the model, where the store knows it: a context is bound to it."""
        return self.entry.sha256 if self.entry is not None else None

    @property
    def adapters(self) -> tuple[Path, ...]:
        """The model's LoRA adapters. Raises IntegrityError for one that is missing."""
        if self.entry is None or not self.entry.adapters:
            return ()
        from ..store import Store

        store = Store()
        return tuple(store.blob(file) for file in self.entry.adapters)

    def settings(self) -> dict[str, Any]:
        """Return the model's own defaults beside its file: template, system, parameters, messages, license.

        Raises IntegrityError where they are damaged.
        """
        if self.foreign is not None:
            return self.foreign.settings()
        text = self.entry.manifest.details.get("profile") if self.entry is not None else None
        try:
            found = json.loads(text) if text is not None else {}
            return {key: value for key, value in found.items() if value}
        except (ValueError, AttributeError) as error:
            raise IntegrityError(f"the profile of {self.name} is damaged", "create it again") from error


def resolve(
    model: str, *, mode: Mode = "auto", offline: bool = False, store: Store | None = None
) -> Resolved:
    """Find MODEL, pulling it if it is a source that the store does not have yet."""
    if _PATH.match(model) and (path := Path(model)).is_file():
        # Importing the store and the pullers takes longer than this.
        return Resolved(path.absolute(), path.name)
    from ..store import Store

    store = store or Store()
    if entry := store.find(model):
        return Resolved(store.path(entry), entry.manifest.name, entry)
    from ..pull import Local, Options, parse
    from ..store import foreign

    source = parse(model)
    if source is None:
        path = Path(model)
        if path.is_file():
            return Resolved(path, path.name)
        if found := foreign.find(model):
            return Resolved(found.path, found.name, foreign=found)
        store.get(model)  # raises the error that names the fault
        raise NotFoundError(f"no model named {model}")
    if isinstance(source, Local):
        if not source.path.exists():
            raise NotFoundError(f"{source.path} does not exist")
        return Resolved(source.path, source.path.name)
    if entry := store.find_source(str(source)):
        return Resolved(store.path(entry), entry.manifest.name, entry)
    if found := foreign.find(model):
        return Resolved(found.path, found.name, foreign=found)
    click.echo(f"{source} is not in the store yet: pulling it", err=True)
    entry = fetch(source, store, Options(offline=offline), mode)
    return Resolved(store.path(entry), entry.manifest.name, entry)


def fetch(source: Source, store: Store, options: Options, mode: Mode) -> Entry:
    """Pull a model into the store, with progress on stderr."""
    from ..pull import pull_model

    with reporting(mode, unit="bytes") as report:
        return pull_model(source, store, options, report)
