"""Models that other programs have fetched, in Ollama's store and Hugging Face's cache: read, never written.

    $OLLAMA_MODELS, ~/.ollama/models, /usr/share/ollama/.ollama/models
        manifests/<host>/<namespace>/<model>/<tag>    JSON: layers with media type, digest and size
        blobs/sha256-<64 hex>
    $HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub
        models--<owner>--<repo>/refs/<revision>, snapshots/<commit>/<file>

Nothing of them is copied. What is damaged is skipped, and said where somebody asks for it by name.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._paths import expand
from .errors import IntegrityError, NotFoundError
from .pull._source import LIBRARY, REGISTRY, ollama_name

if TYPE_CHECKING:
    from .pull import HuggingFace

__all__ = ["Foreign", "find", "has_template", "huggingface", "models"]

_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_MAX_MANIFEST, _MAX_TEXT, _MAX_FILES = 1 << 20, 512 << 10, 10_000
_LAYER = "application/vnd.ollama.image."


@dataclass(frozen=True)
class Foreign:
    """A model that is in somebody else's store. `id` is 64 hex digits; sizes are bytes, times epoch seconds."""

    name: str
    path: Path
    size: int
    id: str
    modified: float
    source: str
    """"ollama" or "huggingface"."""
    layers: tuple[tuple[str, Path], ...] = field(default=(), repr=False)

    def settings(self) -> dict[str, Any]:
        """Template, system prompt, license, parameters and opening messages, as far as the model has its own.

        Raises IntegrityError where they cannot be read.
        """
        out: dict[str, Any] = {}
        for kind, path in self.layers:
            try:
                text = _text(path)
                if kind == "license":
                    out.setdefault("license", []).append(text)
                elif kind in ("params", "messages"):
                    out["parameters" if kind == "params" else kind] = _checked(kind, json.loads(text))
                else:
                    out[kind] = text
            except (OSError, ValueError, RecursionError) as error:
                raise IntegrityError(
                    f"the {kind} of {self.name} in Ollama's store cannot be read: {error}"
                ) from None
        if "template" in out and has_template(self.path):
            # The file's own is what its tool calls and its thinking are read by.
            del out["template"]
        return out


def models(warn: Callable[[str], None] = lambda text: None) -> Iterator[Foreign]:
    """Yield every model that can be used, Ollama's first; `warn` is told of those that cannot."""
    for root in _ollama_roots():
        for manifest in _manifests(root):
            try:
                yield _read(root, manifest)
            except IntegrityError as error:
                warn(error.message)
    yield from _cached()


def find(name: str) -> Foreign | None:
    """Return what `name` means to Ollama, or a file of Hugging Face's cache; None where it means nothing.

    Raises IntegrityError for a model that is there and damaged.
    """
    parts = ollama_name(name)
    if parts is not None:
        for root in _ollama_roots():
            manifest = root.joinpath("manifests", *parts)
            if _is_file(manifest):
                return _read(root, manifest)
    if re.match(r"(?i)hf:|(?:https://)?(?:hf|huggingface)\.co/", name):
        from .pull import HuggingFace, parse

        source = parse(name)
        if isinstance(source, HuggingFace):
            return huggingface(source)
    return None


def huggingface(source: HuggingFace) -> Foreign | None:
    """Return the file of Hugging Face's cache that `source` stands for, where all parts of it are there."""
    from .pull._huggingface import choose, listed

    folder = _hub() / f"models--{source.owner}--{source.repo}"
    commit = _commit(folder, source.revision)
    if commit is None:
        return None
    snapshot = folder / "snapshots" / commit
    found = [(p.relative_to(snapshot).as_posix(), p.stat().st_size) for p in _ggufs(snapshot)]
    if not found:
        return None
    try:
        chosen = choose([listed(path, size) for path, size in found], source)
    except NotFoundError:
        return None
    first = snapshot / chosen[0].path
    name = f"hf.co/{source.owner}/{source.repo}" + (f":{source.file}" if source.file else "")
    return _cached_file(name, first, sum(part.size for part in chosen))


# -- Ollama


def _ollama_roots() -> list[Path]:
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return [expand(chosen)]
    with contextlib.suppress(RuntimeError):  # nobody's home
        return [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]
    return []


def _manifests(root: Path) -> Iterator[Path]:
    folder = root / "manifests"
    for n, path in enumerate(sorted(_walk(folder, 4))):
        if n == _MAX_FILES:
            return
        if len(path.relative_to(folder).parts) == 4 and not path.name.startswith("."):
            yield path


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    """Files below a folder, never through links to folders, so that no link leads in circles."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if depth > 1:
                yield from _walk(folder / entry.name, depth - 1)
        elif _is_file(folder / entry.name):
            yield folder / entry.name


def _read(root: Path, manifest: Path) -> Foreign:
    host, namespace, model, tag = manifest.relative_to(root / "manifests").parts
    name = f"{model}:{tag}"
    if (host, namespace) != (REGISTRY, LIBRARY):
        name = f"{namespace}/{name}" if host == REGISTRY else f"{host}/{namespace}/{name}"
    where = f"{name} in Ollama's store"
    try:
        text = _text(manifest, _MAX_MANIFEST)
        layers = json.loads(text)["layers"]
        kinds = [(str(each["mediaType"]), str(each["digest"]), int(each["size"])) for each in layers]
        modified = manifest.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(
            f"the manifest of {where} is damaged ({error})", "pull it again with Ollama"
        ) from None
    files: list[tuple[str, Path, int]] = []
    for kind, digest, size in kinds:
        if not kind.startswith(_LAYER):
            continue
        match = _DIGEST.fullmatch(digest)
        if match is None:
            raise IntegrityError(f"{where} has a layer whose digest is none: {digest[:80]!r}")
        blob = root / "blobs" / f"sha256-{match[1]}"
        files.append((kind.removeprefix(_LAYER), blob, size))
    weights = [(blob, size) for kind, blob, size in files if kind == "model"]
    if len(weights) != 1 or any(kind == "adapter" for kind, _, _ in files):
        what = "an adapter" if len(weights) == 1 else f"{len(weights)} files of weights"
        raise IntegrityError(f"{where} has {what}, which cannot be used here")
    for blob, size in weights:
        if not _is_file(blob) or blob.stat().st_size != size:
            raise IntegrityError(f"{where} is not whole: {blob.name} is missing or cut short")
    texts = tuple(
        (kind, b) for kind, b, _ in files if kind in ("template", "system", "license", "params", "messages")
    )
    identity = hashlib.sha256(text.encode()).hexdigest()
    return Foreign(
        name, weights[0][0], sum(size for _, _, size in files), identity, modified, "ollama", texts
    )


def has_template(path: Path) -> bool:
    """Return whether a GGUF file has a chat template of its own."""
    from llamay_models import gguf

    try:
        with gguf.open(path) as file:
            return isinstance(file.metadata.get("tokenizer.chat_template"), str)
    except (gguf.GGUFError, OSError):
        return False  # loading it will say so


def _checked(kind: str, value: Any) -> Any:
    good = isinstance(value, dict) if kind == "params" else isinstance(value, list)
    if not good:
        raise ValueError("it has another form")
    return value


def _text(path: Path, most: int = _MAX_TEXT) -> str:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"longer than {most} bytes")
    return data.decode()


# -- Hugging Face


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
        commit = _text(folder / "refs" / revision, 4096).strip()
        return commit if _COMMIT.fullmatch(commit) else None
    return None


def _ggufs(snapshot: Path) -> list[Path]:
    found = [p for p in _walk(snapshot, 4) if p.suffix.lower() == ".gguf"]
    return sorted(p for p in found if not p.name.lower().startswith(("mmproj", "imatrix")))[:_MAX_FILES]


def _cached() -> Iterator[Foreign]:
    try:
        folders = sorted(_hub().glob("models--*--*"))
    except OSError:
        return
    for folder in folders[:_MAX_FILES]:
        owner, _, repo = folder.name.removeprefix("models--").partition("--")
        commit = _commit(folder, "main")
        for file in _ggufs(folder / "snapshots" / commit) if commit else ():
            if not re.search(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", file.name, re.IGNORECASE):
                path = file.relative_to(folder / "snapshots" / str(commit)).as_posix()
                yield _cached_file(f"hf.co/{owner}/{repo}:{path}", file, file.stat().st_size)


def _cached_file(name: str, path: Path, size: int) -> Foreign:
    # The cache names a blob by its SHA-256, and links to it.
    blob = path.resolve().name
    identity = blob if re.fullmatch(r"[0-9a-f]{64}", blob) else hashlib.sha256(str(path).encode()).hexdigest()
    return Foreign(name, path, size, identity, path.stat().st_mtime, "huggingface")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a link in a circle, a name that is none
        return False
