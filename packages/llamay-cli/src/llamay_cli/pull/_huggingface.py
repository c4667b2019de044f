"""A file, or a quantization, from the Hugging Face hub.

Two documents are asked for: which commit a revision is, and which files that commit has (with their
SHA-256, which the hub keeps for every large file). The files then come by that commit, so a push in between
changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin, urlsplit

import httpx

from ..errors import CliError, IntegrityError, NotFoundError, RefusedError
from ..store import Incoming, Role, Store
from . import _http
from ._source import HuggingFace

if TYPE_CHECKING:
    from . import Fetched, Options, Progress

PREFERRED = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q4_1", "Q5_K_M", "Q8_0", "BF16", "F16", "F32")
"""Quantizations in the order in which they are taken when the user names none."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_PAGES = 100
_SMALL = 4 << 20


@dataclass(frozen=True)
class _Remote:
    path: str
    size: int
    sha256: str | None

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


def listed(path: str, size: int) -> _Remote:
    """Return a file as a hub's list has it, for files that are on this machine."""
    return _Remote(path, size, None)


def fetch(source: HuggingFace, store: Store, folder: Path, options: Options, progress: Progress) -> Fetched:
    """Download the chosen GGUF file (all parts of a split one) and the repository's licence texts."""
    from . import Fetched

    hub = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    token = _token()
    with _http.client(insecure=options.insecure) as http:
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


def choose(remote: Sequence[_Remote], source: HuggingFace) -> list[_Remote]:
    """Return the file that `source` names (path, name, quantization) or the preferred one, with all parts."""
    models = [
        f
        for f in remote
        if f.path.lower().endswith(".gguf") and not f.name.lower().startswith(("mmproj", "imatrix"))
    ]
    first = [f for f in models if not (m := _SPLIT.search(f.name)) or int(m[1]) == 1]
    if not first:
        raise NotFoundError(
            f"{source.owner}/{source.repo} has no GGUF file", "look for a repository whose name ends in -GGUF"
        )
    if source.file:
        wanted = source.file.casefold()
        found = [f for f in first if wanted in (f.path.casefold(), f.name.casefold())]
        found = found or [f for f in first if _quant(f.name) == wanted]
        if not found:
            there = ", ".join(sorted(f.name for f in first)[:12])
            raise NotFoundError(
                f"{source.owner}/{source.repo} has no GGUF file for {source.file}", f"it has {there}"
            )
        pick = found[0]
    else:
        ranked = [f for quant in PREFERRED for f in first if _quant(f.name) == quant.casefold()]
        pick = (ranked or sorted(first, key=lambda f: f.size))[0]
    match = _SPLIT.search(pick.name)
    if not match:
        return [pick]
    stem = pick.path[: -len(match[0])]
    by_path = {f.path: f for f in models}
    wanted_parts = [f"{stem}-{i:05d}-of-{match[2]}{pick.path[-5:]}" for i in range(1, int(match[2]) + 1)]
    if missing := [path for path in wanted_parts if path not in by_path]:
        raise IntegrityError(f"{source.owner}/{source.repo} lacks {missing[0]}, a part of the model")
    return [by_path[path] for path in wanted_parts]


def _quant(name: str) -> str:
    stem = _SPLIT.sub("", name) if _SPLIT.search(name) else re.sub(r"(?i)\.gguf$", "", name)
    match = re.search(r"(?i)(?:^|[-._])((?:i?q\d[a-z0-9_]*|tq\d_\d|mxfp4|bf16|f16|f32|fp16|fp32))$", stem)
    return match[1].casefold() if match else ""


def _commit(
    http: httpx.Client, hub: str, source: HuggingFace, options: Options, token: str | None
) -> tuple[str, Any]:
    url = f"{hub}/api/models/{source.owner}/{source.repo}/revision/{quote(source.revision, safe='')}"
    answer, _ = _http.document(http, url, options.limits, token=token)
    commit = answer.get("sha") if isinstance(answer, dict) else None
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise IntegrityError(f"{url} names no commit")
    card = answer.get("cardData")
    return commit, card.get("license") if isinstance(card, dict) else None


def _tree(
    http: httpx.Client, hub: str, source: HuggingFace, commit: str, options: Options, token: str | None
) -> list[_Remote]:
    url: str | None = f"{hub}/api/models/{source.owner}/{source.repo}/tree/{commit}?recursive=true"
    files: list[_Remote] = []
    for _ in range(_PAGES):
        if url is None:
            return files
        answer, response = _http.document(http, url, options.limits, token=token)
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


def _remote(item: Any, url: str) -> _Remote | None:
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
    return _Remote(str(path), size, sha256)


def _download(
    http: httpx.Client,
    base: str,
    file: _Remote,
    role: Role,
    number: int,
    folder: Path,
    store: Store,
    options: Options,
    progress: Progress,
    token: str | None,
) -> Incoming:
    got = _http.Download(
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


def _texts(remote: Sequence[_Remote]) -> list[_Remote]:
    return [
        f
        for f in remote
        if "/" not in f.path and f.size <= _SMALL and re.match(r"(?i)(licen[sc]e|notice|use_policy)", f.name)
    ]


def _text(http: httpx.Client, url: str, token: str | None) -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with http.stream("GET", url, headers=headers) as response:
            _http.check_status(response, url)
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
        # The hub answers alike for what does not exist and what may not be seen.
        return NotFoundError(
            f"{source.owner}/{source.repo} does not exist on {hub}, or is private",
            "HF_TOKEN opens private ones",
        )
    return error
