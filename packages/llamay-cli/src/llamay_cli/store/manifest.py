"""The manifest of a name in the store."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast, get_args

from ..errors import CliError, WrongUsageError

Role = Literal["model", "adapter", "license", "notice", "readme"]
DIGEST = re.compile(r"sha256-[0-9a-f]{64}")
SCHEMA = 1
_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._+-]*[A-Za-z0-9])?")
_RESERVED = re.compile(r"(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?")
_MAX_NAME = 180


class BrokenManifestError(CliError):
    """A manifest that cannot be read as one; the model behind it has to be pulled again."""


@dataclass(frozen=True)
class File:
    """One file of a model: its own name, the digest and the size of its bytes, and its role."""

    name: str
    digest: str
    size: int
    role: Role


@dataclass(frozen=True)
class Manifest:
    """The manifest of a name: source, files and details."""

    name: str
    source: str
    created: float
    files: tuple[File, ...]
    details: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the canonical text; its SHA-256 is the model's id."""
        files = [{"name": f.name, "digest": f.digest, "size": f.size, "role": f.role} for f in self.files]
        document = {
            "schema": SCHEMA,
            "name": self.name,
            "source": self.source,
            "created": self.created,
            "files": files,
            "details": dict(self.details),
        }
        return json.dumps(document, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parse strictly; raises ValueError, which names the fault."""
        document = json.loads(text)
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise ValueError(f"schema is not {SCHEMA}")
        name, source, created = (document.get(key) for key in ("name", "source", "created"))
        details, files = document.get("details"), document.get("files")
        if not isinstance(name, str) or not isinstance(source, str) or not isinstance(created, int | float):
            raise ValueError("name, source or created is missing")
        if not isinstance(details, dict) or not all(isinstance(v, str) for v in details.values()):
            raise ValueError("details is not a mapping to text")
        if not isinstance(files, list) or not files:
            raise ValueError("it lists no files")
        return cls(check_name(name), source, float(created), tuple(_file(item) for item in files), details)


def _file(item: Any) -> File:
    if not isinstance(item, dict):
        raise ValueError("a file is not an object")
    name, digest, size, role = (item.get(key) for key in ("name", "digest", "size", "role"))
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise ValueError("a digest is not sha256-<64 hex>")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 62:
        raise ValueError(f"the size of {digest} is not one")
    if not isinstance(name, str) or not name or name != Path(name).name or name.startswith("."):
        raise ValueError(f"the file name of {digest} is not one")
    if role not in get_args(Role):
        raise ValueError(f"the role of {name} is unknown")
    return File(name, digest, size, cast(Role, role))


@dataclass(frozen=True)
class Entry:
    """A manifest and its id (SHA-256 of its text, hex)."""

    manifest: Manifest
    id: str

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.manifest.files)

    @property
    def models(self) -> tuple[File, ...]:
        """The GGUF files, in order: one, or the parts of a split model."""
        return tuple(file for file in self.manifest.files if file.role == "model")

    @property
    def adapters(self) -> tuple[File, ...]:
        """LoRA adapters that the model is used with, in order."""
        return tuple(file for file in self.manifest.files if file.role == "adapter")

    @property
    def sha256(self) -> str | None:
        """SHA-256 of the GGUF file, of a split model of all parts one after the other, hex."""
        if len(self.models) == 1:
            return self.models[0].digest.removeprefix("sha256-")
        return self.manifest.details.get("sha256")

    @property
    def digests(self) -> list[str]:
        """SHA-256 of each GGUF file, hex."""
        return [file.digest.removeprefix("sha256-") for file in self.models]

    def to_json(self) -> dict[str, Any]:
        """Return the entry as `llamay list --json` prints it."""
        manifest = self.manifest
        return {
            "name": manifest.name,
            "id": self.id,
            "size": self.size,
            "created": manifest.created,
            "source": manifest.source,
            "sha256": self.digests,
            "details": dict(manifest.details),
            "files": [
                {"name": f.name, "size": f.size, "role": f.role, "digest": f.digest} for f in manifest.files
            ],
        }


def check_name(name: str) -> str:
    """Return `name` if it is one: up to four parts `[A-Za-z0-9._+-]` joined by `/`, then perhaps `:tag`."""
    path, colon, tag = name.partition(":")
    parts = [*path.split("/"), tag] if colon else path.split("/")
    good = len(name) <= _MAX_NAME and len(path.split("/")) <= 4
    if not good or not all(
        _PART.fullmatch(part) and ".." not in part and not _RESERVED.fullmatch(part) for part in parts
    ):
        raise WrongUsageError(
            f"{name[:100]!r} is not a model name",
            "a name is letters, digits and . _ + - in up to four parts joined by /, then perhaps :tag",
        )
    return name
