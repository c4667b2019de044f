"""A GGUF file on this machine, copied into the store (a link would let later changes reach into it)."""

from __future__ import annotations

from pathlib import Path

from ..errors import CliError, NotFoundError
from ..store import Incoming, Store
from ..store.hashing import chunks_of, sha256_of
from ..store.sources import Local
from .records import Fetched, Options, Progress


def fetch(source: Local, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Copy and hash the file, or all parts of a split model when one of them is named."""
    from llamay_models.gguf.split import parts_of

    if source.path.is_dir():
        raise CliError(f"{source.path} is a folder", "name the GGUF file in it")
    paths = [source.path.with_name(name) for name in parts_of(source.path.name)]
    for path in paths:
        if not path.is_file():
            raise NotFoundError(f"{path} does not exist")
    options.limits.check(sum(path.stat().st_size for path in paths), store, str(source.path))
    files = [_copy(path, folder / f"{i:05d}", progress) for i, path in enumerate(paths)]
    return Fetched(files, {"path": str(source.path)})


def _copy(path: Path, target: Path, progress: Progress) -> Incoming:
    total = path.stat().st_size
    with path.open("rb") as source, target.open("wb") as out:
        sha256 = sha256_of(chunks_of(source), lambda done: progress(path.name, done, total), out)
    return Incoming(target, path.name, sha256, "model")
