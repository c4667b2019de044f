"""A GGUF file on this machine, copied into the store (a link would let later changes reach into it)."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from ..errors import CliError, NotFoundError
from ..store import Incoming, Store
from ..store.sources import Local
from .records import Fetched, Options, Progress

CHUNK = 1 << 20
_PART = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)


def fetch(source: Local, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Copy and hash the file, or all parts of a split model when one of them is named."""
    if source.path.is_dir():
        raise CliError(f"{source.path} is a folder", "name the GGUF file in it")
    paths = split_parts(source.path)
    for path in paths:
        if not path.is_file():
            raise NotFoundError(f"{path} does not exist")
    options.limits.check(sum(path.stat().st_size for path in paths), store, str(source.path))
    files = [_copy(path, folder / f"{i:05d}", progress) for i, path in enumerate(paths)]
    return Fetched(files, {"path": str(source.path)})


def split_parts(path: Path) -> list[Path]:
    """Return all parts of the split model that `path` is a part of, in order; just `path` if it is none."""
    if not (match := _PART.search(path.name)):
        return [path]
    stem = path.name[: match.start()]
    return [path.with_name(f"{stem}-{i:05d}-of-{match[2]}{match[3]}") for i in range(1, int(match[2]) + 1)]


def _copy(path: Path, target: Path, progress: Progress) -> Incoming:
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with path.open("rb") as source, target.open("wb") as out:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            out.write(chunk)
            done += len(chunk)
            progress(path.name, done, total)
    return Incoming(target, path.name, digest.hexdigest(), "model")
