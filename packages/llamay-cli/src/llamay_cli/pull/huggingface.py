"""A file, or a quantization, from the Hugging Face hub.

Two documents are asked for: which commit a revision is, and which files that commit has (with their
SHA-256, which the hub keeps for every large file). The files then come by that commit, so a push in between
changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import httpx

from ..errors import CliError, IntegrityError, NotFoundError, RefusedError
from ..store import Incoming, Role, Store
from ..store.repository import RepositoryFile, choose
from ..store.sources import HuggingFace
from . import download
from .records import Fetched, Options, Progress

_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PAGES = 100
_SMALL = 4 << 20


def fetch(source: HuggingFace, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Download the chosen GGUF file (all parts of a split one) and the repository's licence texts."""
    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    token = _token()
    with download.client(insecure=options.insecure) as http:
        try:
            commit, card = _commit(http, hub, source, options, token)
            remote = _tree(http, hub, source, commit, options, token)
            chosen = choose(remote, source)
            options.limits.check(sum(file.size for file in chosen), store, str(source))
            files = [
                _download(
                    http,
                    f"{hub}/{source.owner}/{source.repo}/resolve/{commit}/",
                    file,
                    "model",
                    i,
                    folder,
                    store,
                    options,
                    progress,
                    token,
                )
                for i, file in enumerate(chosen)
            ]
            for file in _texts(remote):
                data = _text(
                    http, f"{hub}/{source.owner}/{source.repo}/resolve/{commit}/{quote(file.path)}", token
                )
                target = folder / f"text-{len(files)}"
                target.write_bytes(data)
                files.append(Incoming(target, file.name, _sha256(data), _role(file.name)))
        except RefusedError as error:
            raise _explain(error, hub, source, token) from None
    details = {"repository": f"{source.owner}/{source.repo}", "commit": commit}
    if isinstance(card, str):
        details["license"] = card[:200]
    return Fetched(files, details)


def _commit(
    http: httpx.Client, hub: str, source: HuggingFace, options: Options, token: str | None
) -> tuple[str, Any]:
    url = f"{hub}/api/models/{source.owner}/{source.repo}/revision/{quote(source.revision, safe='')}"
    answer, _ = download.document(http, url, options.limits, token=token)
    commit = answer.get("sha") if isinstance(answer, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise IntegrityError(f"{url} names no commit")
    card = answer.get("cardData")
    return commit, card.get("license") if isinstance(card, dict) else None


def _tree(
    http: httpx.Client, hub: str, source: HuggingFace, commit: str, options: Options, token: str | None
) -> list[RepositoryFile]:
    url: str | None = f"{hub}/api/models/{source.owner}/{source.repo}/tree/{commit}?recursive=true"
    files: list[RepositoryFile] = []
    for _ in range(_PAGES):
        if url is None:
            return files
        answer, response = download.document(http, url, options.limits, token=token)
        if not isinstance(answer, list):
            raise IntegrityError(f"{url} is not a list of files")
        files += [file for item in answer if (file := _remote(item, url))]
        if len(files) > options.limits.files:
            break
        onward = response.links.get("next", {}).get("url")
        url = urljoin(url, onward) if onward else None
        if url and urlsplit(url)[:2] != urlsplit(hub)[:2]:
            raise IntegrityError(f"{hub} continues its list of files at another host: {url}")
    raise IntegrityError(f"{source} has more files than the limit of {options.limits.files}")


def _remote(item: Any, url: str) -> RepositoryFile | None:
    """Read one item of the file list; a path or digest is believed only in the form it must have."""
    if not isinstance(item, dict) or item.get("type") != "file":
        return None
    path, size, lfs = item.get("path"), item.get("size"), item.get("lfs")
    pure = PurePosixPath(path) if isinstance(path, str) else None
    if (
        pure is None
        or pure.is_absolute()
        or ".." in pure.parts
        or not pure.name
        or "\0" in str(path)
        or "\\" in str(path)
    ):
        raise IntegrityError(f"{url} lists a file with an unsafe name: {path!r}")
    sha256 = lfs.get("oid") if isinstance(lfs, dict) else None
    if isinstance(lfs, dict):
        size = lfs.get("size", size)
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
        raise IntegrityError(f"{url} gives {path} a size of {size!r}")
    if sha256 is not None and (not isinstance(sha256, str) or not _SHA256.fullmatch(sha256)):
        raise IntegrityError(f"{url} gives {path} a digest that is not a SHA-256: {sha256!r}")
    return RepositoryFile(str(path), size, sha256)


def _download(
    http: httpx.Client,
    base: str,
    file: RepositoryFile,
    role: Role,
    number: int,
    folder: Path,
    store: Store,
    options: Options,
    progress: Progress,
    token: str | None,
) -> Incoming:
    got = download.Download(
        http,
        base + quote(file.path),
        folder / f"{number:05d}",
        store=store,
        limits=options.limits,
        progress=progress,
        size=file.size,
        sha256=file.sha256,
        token=token,
        stage=file.name,
    ).run()
    return Incoming(got.path, file.name, got.sha256, role)


def _texts(remote: Sequence[RepositoryFile]) -> list[RepositoryFile]:
    return [
        f
        for f in remote
        if "/" not in f.path and f.size <= _SMALL and re.match(r"(?i)(licen[sc]e|notice|use_policy)", f.name)
    ]


def _text(http: httpx.Client, url: str, token: str | None) -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with http.stream("GET", url, headers=headers) as response:
            download.check_status(response, url)
            body = bytearray()
            for chunk in response.iter_bytes(1 << 16):
                body += chunk
                if len(body) > _SMALL:
                    raise IntegrityError(f"{url} is longer than its list of files says")
            return bytes(body)
    except httpx.HTTPError as error:
        raise CliError(f"{url}: {error}") from None


def _sha256(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _role(name: str) -> Role:
    return "notice" if name.lower().startswith("notice") else "license"


def _token() -> str | None:
    """Return the user's token from where Hugging Face's own tools keep it; it is never printed or stored."""
    if token := os.environ.get("HF_TOKEN", "").strip():
        return token
    home = Path(
        os.environ.get(
            "HF_HOME", Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "huggingface"
        )
    )
    path = Path(os.environ.get("HF_TOKEN_PATH", home / "token"))
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _explain(error: RefusedError, hub: str, source: HuggingFace, token: str | None) -> CliError:
    page = f"{hub}/{source.owner}/{source.repo}"
    if error.reason == "GatedRepo":
        return RefusedError(
            f"{source.owner}/{source.repo} asks for its licence to be accepted",
            f"accept it at {page}, then set HF_TOKEN",
        )
    if error.reason == "RepoNotFound" or (not error.reason and not token and "answers 401" in error.message):
        # The hub gives the same answer for a missing repository and for a private one.
        return NotFoundError(
            f"{source.owner}/{source.repo} does not exist on {hub}, or is private",
            "HF_TOKEN opens private ones",
        )
    return error
