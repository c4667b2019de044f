"""A model of Ollama's registry, or of one that speaks as it does (the OCI distribution API).

The manifest lists layers by digest and size. The weights come as every download does, resumed and verified; the small
layers (template, system prompt, parameters, messages, license) become the model's own defaults. No credentials are
sent: a registry that wants some is reported as unreachable.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from ..errors import CliError, IntegrityError, NotFoundError
from ..store import Incoming, Store
from ..store.gguf_header import has_template
from ..store.ollama_manifest import DIGEST, LAYER, MAX_BYTES, TEXTS
from ..store.sources import REGISTRY, Ollama
from . import download
from .limits import Limits
from .records import Fetched, Options, Progress

_MAX_TEXT, _MAX_LAYERS = 512 << 10, 64
_ACCEPT = "application/vnd.docker.distribution.manifest.v2+json"


class Stage(str):
    """The layer that is pulled: its description, and its digest, by which Ollama's clients name progress bars."""

    digest: str

    def __new__(cls, digest: str) -> Self:
        """Return the stage of fetching the layer with this digest."""
        stage = super().__new__(cls, f"pulling {digest.removeprefix('sha256:')[:12]}")
        stage.digest = digest
        return stage


def fetch(source: Ollama, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Download the weights and the small layers."""
    base = f"{address(source.host)}/v2/{source.namespace}/{source.model}"
    url = f"{base}/manifests/{source.tag}"
    with download.client(insecure=options.insecure, headers={"Accept": _ACCEPT}) as http:
        try:
            manifest, _ = download.document(http, url, Limits(document=MAX_BYTES))
        except NotFoundError:
            raise NotFoundError(f"pull model manifest: file does not exist ({source})") from None
        layers = _layers(manifest, url)
        weights = [layer for layer in layers if layer[0] == "model"]
        if len(weights) != 1 or any(kind == "adapter" for kind, _, _ in layers):
            what = "an adapter" if len(weights) == 1 else f"{len(weights)} files of weights"
            raise CliError(f"{source} has {what}, which cannot be used here")
        options.limits.check(sum(size for _, _, size in layers), store, str(source))
        own: dict[str, Any] = {}
        for kind, digest, size in layers:
            if kind in TEXTS:
                _keep(own, kind, _text(http, f"{base}/blobs/{digest}", digest, size))
        _, digest, size = weights[0]
        got = download.Download(
            http,
            f"{base}/blobs/{digest}",
            folder / "model",
            store=store,
            limits=options.limits,
            progress=progress,
            size=size,
            sha256=digest.removeprefix("sha256:"),
            stage=Stage(digest),
        ).run()
    if "template" in own and has_template(got.path):
        del own["template"]
    details = {"profile": json.dumps(own, ensure_ascii=False)} if own else {}
    return Fetched([Incoming(got.path, f"{source.model}-{source.tag}.gguf", got.sha256, "model")], details)


def address(host: str) -> str:
    """Return where a registry is asked; `LLAMAY_OLLAMA_REGISTRY` is asked in place of Ollama's own."""
    if host == REGISTRY:
        return os.environ.get("LLAMAY_OLLAMA_REGISTRY", f"https://{REGISTRY}").rstrip("/")
    plain = host.rpartition(":")[0] or host
    return f"http://{host}" if plain in ("localhost", "127.0.0.1") else f"https://{host}"


def _layers(manifest: Any, url: str) -> list[tuple[str, str, int]]:
    """Return kind, digest and size of each layer. Raises IntegrityError for a manifest of another form."""
    layers = manifest.get("layers") if isinstance(manifest, Mapping) else None
    if not isinstance(layers, list) or not 0 < len(layers) <= _MAX_LAYERS:
        raise IntegrityError(f"{url} is not a manifest with 1 to {_MAX_LAYERS} layers")
    found = []
    for layer in layers:
        kind, digest, size = (
            (layer.get(key) for key in ("mediaType", "digest", "size"))
            if isinstance(layer, Mapping)
            else (None,) * 3
        )
        match = DIGEST.fullmatch(digest) if isinstance(digest, str) else None
        if match is None:
            raise IntegrityError(f"{url} lists a digest that is not a SHA-256: {str(digest)[:80]!r}")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
            raise IntegrityError(f"{url} gives {digest} a size of {str(size)[:40]}")
        if isinstance(kind, str) and kind.startswith(LAYER):
            found.append((kind.removeprefix(LAYER), f"sha256:{match[1]}", size))
    return found


def _text(http: httpx.Client, url: str, digest: str, size: int) -> str:
    if size > _MAX_TEXT:
        raise IntegrityError(f"{url} is {size} bytes, and a text of a model has at most {_MAX_TEXT}")
    body = bytearray()
    try:
        with http.stream("GET", url, headers={"Accept-Encoding": "identity"}) as response:
            download.check_status(response, url)
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > size:
                    break
    except httpx.HTTPError as error:
        raise CliError(f"{url}: {error}") from None
    if f"sha256:{hashlib.sha256(body).hexdigest()}" != digest:
        raise IntegrityError(f"{url} has another SHA-256 than its name says")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise IntegrityError(f"{url} is not UTF-8 text") from None


def _keep(own: dict[str, Any], kind: str, text: str) -> None:
    if kind == "license":
        own.setdefault("license", []).append(text)
        return
    if kind not in ("params", "messages"):
        own[kind] = text
        return
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict if kind == "params" else list):
        raise IntegrityError(f"the {kind} of the model are damaged")
    own["parameters" if kind == "params" else kind] = value
