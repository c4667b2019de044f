"""Models in Ollama's store.

$OLLAMA_MODELS, ~/.ollama/models, /usr/share/ollama/.ollama/models
manifests/<host>/<namespace>/<model>/<tag>    JSON: layers with media type, digest and size
blobs/sha256-<64 hex>
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ...errors import IntegrityError
from ...paths import expand
from ..ollama_manifest import DIGEST, LAYER, MAX_BYTES, TEXTS
from ..sources import LIBRARY, REGISTRY, ollama_name
from .files import MAX_FILES, is_file, read_bounded, walk
from .model import ForeignModel


def models(warn: Callable[[str], None]) -> Iterator[ForeignModel]:
    """Yield every model that can be used; `warn` is told of those that cannot."""
    for root in _roots():
        for manifest in _manifests(root):
            try:
                yield _read(root, manifest)
            except IntegrityError as error:
                warn(error.message)


def find(name: str) -> ForeignModel | None:
    """Return Ollama's model of `name`; None where there is none. Raises IntegrityError for a damaged model."""
    parts = ollama_name(name)
    if parts is None:
        return None
    for root in _roots():
        manifest = root.joinpath("manifests", *parts)
        if is_file(manifest):
            return _read(root, manifest)
    return None


def _roots() -> list[Path]:
    if chosen := os.environ.get("OLLAMA_MODELS"):
        return [expand(chosen)]
    with contextlib.suppress(RuntimeError):  # a user without a home
        return [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]
    return []


def _manifests(root: Path) -> Iterator[Path]:
    folder = root / "manifests"
    for n, path in enumerate(sorted(walk(folder, 4))):
        if n == MAX_FILES:
            return
        if len(path.relative_to(folder).parts) == 4 and not path.name.startswith("."):
            yield path


def _read(root: Path, manifest: Path) -> ForeignModel:
    host, namespace, model, tag = manifest.relative_to(root / "manifests").parts
    name = f"{model}:{tag}"
    if (host, namespace) != (REGISTRY, LIBRARY):
        name = f"{namespace}/{name}" if host == REGISTRY else f"{host}/{namespace}/{name}"
    where = f"{name} in Ollama's store"
    try:
        text = read_bounded(manifest, MAX_BYTES)
        layers = json.loads(text)["layers"]
        kinds = [(str(each["mediaType"]), str(each["digest"]), int(each["size"])) for each in layers]
        modified = manifest.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise IntegrityError(
            f"the manifest of {where} is damaged ({error})", "pull it again with Ollama"
        ) from None
    files: list[tuple[str, Path, int]] = []
    for kind, digest, size in kinds:
        if not kind.startswith(LAYER):
            continue
        match = DIGEST.fullmatch(digest)
        if match is None:
            raise IntegrityError(f"{where} has a layer with an invalid digest: {digest[:80]!r}")
        blob = root / "blobs" / f"sha256-{match[1]}"
        files.append((kind.removeprefix(LAYER), blob, size))
    weights = [(blob, size) for kind, blob, size in files if kind == "model"]
    if len(weights) != 1 or any(kind == "adapter" for kind, _, _ in files):
        what = "an adapter" if len(weights) == 1 else f"{len(weights)} files of weights"
        raise IntegrityError(f"{where} has {what}, which cannot be used here")
    for blob, size in weights:
        if not is_file(blob) or blob.stat().st_size != size:
            raise IntegrityError(f"{where} is not whole: {blob.name} is missing or cut short")
    texts = tuple((kind, blob) for kind, blob, _ in files if kind in TEXTS)
    identity = hashlib.sha256(text.encode()).hexdigest()
    return ForeignModel(
        name, weights[0][0], sum(size for _, _, size in files), identity, modified, "ollama", texts
    )
