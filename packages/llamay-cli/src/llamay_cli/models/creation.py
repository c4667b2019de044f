"""Models made of another model's files or of uploads, with a prompt, template and settings of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from llamay_server import Profile, Recipe, Status

from ..errors import CliError, IntegrityError, NotFoundError
from ..store import Entry, File, Store

KEY = "profile"
"""The entry of a manifest's details that holds the profile, as JSON."""


def profile_of(entry: Entry) -> Profile:
    """Return the profile that a created model has beside its file. Raises IntegrityError where it is damaged."""
    text = entry.manifest.details.get(KEY)
    if text is None:
        return Profile()
    try:
        known = json.loads(text)
        return Profile(
            str(known.get("parent", "")),
            known.get("template"),
            known.get("system"),
            tuple(known.get("license", ())),
            dict(known.get("parameters", {})),
            tuple(known.get("messages", ())),
        )
    except (ValueError, TypeError, AttributeError) as error:
        raise IntegrityError(f"the profile of {entry.manifest.name} is damaged", "create it again") from error


def create(store: Store, name: str, source: Entry | None, recipe: Recipe, status: Status) -> None:
    """Make `name` of `source`, or of the recipe's uploads.

    Raises NotFoundError for blobs that the store does not have, and CliError for files that make no model and for a
    template or a quantization that cannot be used.
    """
    base = Profile() if source is None else profile_of(source)
    if source is not None:
        base = dataclasses.replace(base, parent=source.manifest.name)
    profile = dataclasses.replace(base, **recipe.changes)
    if profile.template is not None:
        _check_template(profile.template)
    if source is not None:
        status({"status": f"using existing model {source.manifest.name}"})
        files = list(source.manifest.files)
    else:
        status({"status": "parsing GGUF"})
        files = _uploaded(store, recipe.files)
    if recipe.quantize:
        files = _quantized(store, files, recipe.quantize, status)
    there = {file.digest for file in files}
    files += [file for file in _adapters(store, recipe.adapters) if file.digest not in there]
    for file in files:
        status({"status": f"using existing layer {file.digest.replace('-', ':', 1)}"})
    status({"status": "writing manifest"})
    details = {} if source is None else dict(source.manifest.details)
    details[KEY] = json.dumps(dataclasses.asdict(profile), ensure_ascii=False)
    if recipe.quantize:
        # The digest of the files before the quantization.
        details.pop("sha256", None)
    where = f"create:{source.manifest.name}" if source is not None else "create:upload"
    store.make(name, where, files, details)


def _check_template(template: str) -> None:
    from llamay_models.chat import ChatTemplate, ChatTemplateError, as_jinja

    try:
        ChatTemplate(as_jinja(template))
    except ChatTemplateError as error:
        raise CliError(f"template: {error}") from error


def _uploaded(store: Store, given: Mapping[str, str]) -> list[File]:
    """Return uploads as a model's files, in the order of their names, after checking that they are one."""
    import tempfile

    from llamay_models import gguf

    store.uploads.mkdir(parents=True, exist_ok=True)
    files = []
    # Parts of a split model find each other by their file names, which uploads do not have.
    with tempfile.TemporaryDirectory(prefix=".view-", dir=store.uploads) as folder:
        for name, sha256 in sorted(given.items()):
            blob = store.upload(sha256)
            if blob is None:
                raise NotFoundError(f"files: the blob sha256:{sha256} is not in the store")
            view = Path(folder) / name
            try:
                view.hardlink_to(blob)
            except OSError:
                view.symlink_to(blob.resolve())
            files.append(File(name, f"sha256-{sha256}", blob.stat().st_size, "model"))
        first = Path(folder) / files[0].name
        try:
            with gguf.open(first) as file:
                count = file.metadata.get("split.count")
        except (gguf.GGUFError, OSError) as error:
            text = str(error).replace(str(first), files[0].name).replace(f"{folder}/", "")
            raise CliError(f"files: {text}") from error
    parts = count if isinstance(count, int) and count > 1 else 1
    if len(files) != parts:
        raise CliError(f"files: {files[0].name} is a model of {parts} files, not {len(files)}")
    return files


def _adapters(store: Store, given: Mapping[str, str]) -> list[File]:
    """Return uploads as adapters, in the order in which they were given, after checking each."""
    from llamay_models.adapters import Adapter
    from llamay_models.errors import ModelError
    from llamay_models.gguf import GGUFError

    files = []
    for name, sha256 in given.items():
        blob = store.upload(sha256)
        if blob is None:
            raise NotFoundError(f"adapters: the blob sha256:{sha256} is not in the store")
        try:
            Adapter.open(blob)
        except (ModelError, GGUFError, OSError) as error:
            raise CliError(f"adapters: {str(error).replace(str(blob), name)}") from error
        files.append(File(name, f"sha256-{sha256}", blob.stat().st_size, "adapter"))
    return files


def _quantized(store: Store, files: list[File], kind: str, status: Status) -> list[File]:
    """Return the model in another format, written beside the uploads."""
    import tempfile

    from llamay_models.quantization import MIXES, QuantizeError, quantize_file

    name = kind.upper()
    if name not in MIXES:
        raise CliError(f"quantize: {kind[:40]!r} is unknown", f"choose one of {', '.join(MIXES)}")
    models = [file for file in files if file.role == "model"]
    store.uploads.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".view-", dir=store.uploads) as folder:
        for file in models:
            found = store.upload(file.digest.removeprefix("sha256-"))
            if found is None:
                raise IntegrityError(f"{file.name} is missing from the store", "pull the model again")
            (Path(folder) / file.name).symlink_to(found.resolve())
        target = Path(folder) / "quantized"
        try:
            quantize_file(Path(folder) / models[0].name, target, name, progress=ollama_progress(status))
        except QuantizeError as error:
            text = str(error).replace(f"{folder}/", "")
            raise CliError(f"quantize: {text}") from error
        with target.open("rb") as handle:
            sha256 = hashlib.file_digest(handle, "sha256").hexdigest()
        size = target.stat().st_size
        store.keep_upload(target, sha256)
    written = File(f"{Path(models[0].name).stem}-{name}.gguf", f"sha256-{sha256}", size, "model")
    return [written, *(file for file in files if file.role != "model")]


def ollama_progress(status: Status) -> Callable[[str, int, int], None]:
    """Return a progress callback that names stages as Ollama does."""

    def progress(stage: str, done: int, total: int) -> None:
        line: dict[str, Any] = {"status": str(stage), "completed": done}
        if (digest := getattr(stage, "digest", None)) is not None:
            line["digest"] = digest
        status({**line, "total": total} if total else line)

    return progress
