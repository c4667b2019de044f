"""GGUF files in the cache of Hugging Face's tools.

$HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub
models--<owner>--<repo>/refs/<revision>, snapshots/<commit>/<file>
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ...errors import NotFoundError
from ...paths import expand
from ..repository import RepositoryFile, choose
from ..sources import HuggingFace, parse
from .files import MAX_FILES, read_bounded, walk
from .model import ForeignModel

_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def models() -> Iterator[ForeignModel]:
    """Yield every GGUF file, the first one of a split model."""
    try:
        folders = sorted(_hub().glob("models--*--*"))
    except OSError:
        return
    for folder in folders[:MAX_FILES]:
        owner, _, repo = folder.name.removeprefix("models--").partition("--")
        commit = _commit(folder, "main")
        for file in _ggufs(folder / "snapshots" / commit) if commit else ():
            if _is_first(file.name):
                path = file.relative_to(folder / "snapshots" / str(commit)).as_posix()
                yield _cached_file(f"hf.co/{owner}/{repo}:{path}", file, file.stat().st_size)


def find(name: str) -> ForeignModel | None:
    """Return the file that a name such as hf:OWNER/REPO means; None where there is none."""
    if re.match(r"(?i)hf:|(?:https://)?(?:hf|huggingface)\.co/", name):
        source = parse(name)
        if isinstance(source, HuggingFace):
            return find_source(source)
    return None


def find_source(source: HuggingFace) -> ForeignModel | None:
    """Return the file that `source` stands for, where all parts of it are there."""
    folder = _hub() / f"models--{source.owner}--{source.repo}"
    commit = _commit(folder, source.revision)
    if commit is None:
        return None
    snapshot = folder / "snapshots" / commit
    found = [(p.relative_to(snapshot).as_posix(), p.stat().st_size) for p in _ggufs(snapshot)]
    if not found:
        return None
    try:
        chosen = choose([RepositoryFile(path, size) for path, size in found], source)
    except NotFoundError:
        return None
    first = snapshot / chosen[0].path
    name = f"hf.co/{source.owner}/{source.repo}" + (f":{source.file}" if source.file else "")
    return _cached_file(name, first, sum(part.size for part in chosen))


def _hub() -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if chosen := os.environ.get(variable):
            return expand(chosen)
    if home := os.environ.get("HF_HOME"):
        return expand(home) / "hub"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (expand(cache) if cache else Path("~/.cache").expanduser()) / "huggingface" / "hub"


def _commit(folder: Path, revision: str) -> str | None:
    if ".." in revision.split("/"):
        return None
    if _COMMIT.fullmatch(revision) and (folder / "snapshots" / revision).is_dir():
        return revision
    with contextlib.suppress(OSError, ValueError):
        commit = read_bounded(folder / "refs" / revision, 4096).strip()
        return commit if _COMMIT.fullmatch(commit) else None
    return None


def _ggufs(snapshot: Path) -> list[Path]:
    found = [p for p in walk(snapshot, 4) if p.suffix.lower() == ".gguf"]
    return sorted(p for p in found if not p.name.lower().startswith(("mmproj", "imatrix")))[:MAX_FILES]


def _is_first(name: str) -> bool:
    # Imported for files that are there: `llamay list` starts several times as fast without the engine.
    from llamay_models.gguf.split import parts_of

    return parts_of(name)[0] == name


def _cached_file(name: str, path: Path, size: int) -> ForeignModel:
    # The cache names a blob by its SHA-256, and links to it.
    blob = path.resolve().name
    identity = blob if re.fullmatch(r"[0-9a-f]{64}", blob) else hashlib.sha256(str(path).encode()).hexdigest()
    return ForeignModel(name, path, size, identity, path.stat().st_mtime, "huggingface")
