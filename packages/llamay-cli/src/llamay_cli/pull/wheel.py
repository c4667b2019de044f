"""Reading a wheel as data: which files it holds, and that they are those of its RECORD.

A wheel (PEP 427) is a zip file whose `*.dist-info/RECORD` lists every file with its SHA-256. Nothing is
unpacked under a name that the wheel chose, so a name like `../x` has nowhere to go; it is refused all the
same.
"""

from __future__ import annotations

import base64
import binascii
import csv
import hashlib
import io
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Self

from ..console.tables import format_bytes
from ..errors import CliError, IntegrityError
from ..store import Role
from .limits import Limits

CHUNK = 1 << 20
_GGUF = re.compile(r"\.gguf$", re.IGNORECASE)
_PIECE = re.compile(r"(?P<stem>.+\.gguf)\.part(?P<number>\d{1,6})$", re.IGNORECASE)
_ROLES: tuple[tuple[re.Pattern[str], Role], ...] = (
    (re.compile(r"(?i)(licen[sc]e|copying|terms|eula)"), "license"),
    (re.compile(r"(?i)notice"), "notice"),
    (re.compile(r"(?i)readme"), "readme"),
)
_UNRECORDED = {"RECORD", "RECORD.jws", "RECORD.p7s"}


@dataclass(frozen=True)
class FilePiece:
    """One numbered part of a GGUF file that is spread over several wheels."""

    wheel: Wheel
    member: str
    file: str
    number: int


class Wheel:
    """A wheel, opened for reading; raises IntegrityError for one that is not whole and as its RECORD says."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self._limits = limits
        try:
            self._zip = zipfile.ZipFile(path)
        except (zipfile.BadZipFile, ValueError, OverflowError) as error:
            raise IntegrityError(f"{path.name} is not a wheel: {error}") from None
        try:
            self._members = self._index()
            self._record = self._read_record()
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zip.close()

    @property
    def models(self) -> list[str]:
        """The members that are whole GGUF files."""
        return sorted(name for name in self._members if _GGUF.search(name))

    @property
    def pieces(self) -> list[FilePiece]:
        """The members that are numbered parts of a GGUF file."""
        found = ((name, _PIECE.fullmatch(PurePosixPath(name).name)) for name in self._members)
        return [FilePiece(self, name, match["stem"], int(match["number"])) for name, match in found if match]

    @property
    def documents(self) -> list[tuple[str, Role]]:
        """Licences, notices and readmes, as members with their roles."""
        found: list[tuple[str, Role]] = []
        for name in sorted(self._members):
            path = PurePosixPath(name)
            if path.suffix in (".py", ".pyi", ".so") or _GGUF.search(name):
                continue
            words = path.name if "licenses" not in path.parts[:-1] else f"license {path.name}"
            role = next((role for pattern, role in _ROLES if pattern.search(words)), None)
            if role:
                found.append((name, role))
        return found

    def size(self, member: str) -> int:
        """Return the unpacked size that the archive states; reading never yields more."""
        return self._members[member].file_size

    def chunks(self, member: str) -> Iterator[bytes]:
        """Yield the bytes of `member`; the end is reached only if they have the SHA-256 of the RECORD."""
        digest = hashlib.sha256()
        try:
            with self._zip.open(self._members[member]) as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
                    yield chunk
        except (
            zipfile.BadZipFile,
            EOFError,
            NotImplementedError,
            RuntimeError,
            ValueError,
            OSError,
        ) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise IntegrityError(f"{member} in {self.path.name} cannot be unpacked: {error}") from None
        except Exception as error:  # zlib.error and its kin have no common base
            if type(error).__name__ != "error":
                raise
            raise IntegrityError(f"{member} in {self.path.name} cannot be unpacked: {error}") from None
        if digest.digest() != self._record[member]:
            raise IntegrityError(
                f"{member} in {self.path.name} has SHA-256 {digest.hexdigest()}, "
                f"its RECORD says {self._record[member].hex()}"
            )

    def read(self, member: str) -> bytes:
        """Return a small member whole."""
        if self.size(member) > self._limits.document:
            raise IntegrityError(
                f"{member} in {self.path.name} is longer than {format_bytes(self._limits.document)}"
            )
        return b"".join(self.chunks(member))

    def metadata(self) -> str:
        """Return the text of METADATA."""
        return self.read(self._info("METADATA")).decode("utf-8", "replace")

    def checksums(self) -> dict[str, str]:
        """Return file name -> SHA-256 of the SHA256SUMS that the wheel carries; empty if it carries none."""
        sums: dict[str, str] = {}
        for name in self._members:
            if PurePosixPath(name).name.upper() not in ("SHA256SUMS", "SHA256SUMS.TXT"):
                continue
            for number, line in enumerate(self.read(name).decode("utf-8", "replace").splitlines(), 1):
                if not line.strip() or line.startswith("#"):
                    continue
                match = re.fullmatch(r"([0-9a-fA-F]{64}) [ *](.+)", line.strip())
                if not match:
                    raise IntegrityError(
                        f"line {number} of {name} in {self.path.name} is not a SHA-256 and a name"
                    )
                sums[PurePosixPath(match[2]).name] = match[1].lower()
        return sums

    def _index(self) -> dict[str, zipfile.ZipInfo]:
        infos = [info for info in self._zip.infolist() if not info.is_dir()]
        if len(infos) > self._limits.files:
            raise IntegrityError(
                f"{self.path.name} holds {len(infos)} files, over the limit of {self._limits.files}"
            )
        members: dict[str, zipfile.ZipInfo] = {}
        for info in infos:
            # ZipInfo cuts a name at a NUL; orig_filename still has it.
            name, path = info.orig_filename, PurePosixPath(info.orig_filename)
            if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
                raise IntegrityError(f"{self.path.name} holds a file with an unsafe name: {name!r}")
            if name in members:
                raise IntegrityError(f"{self.path.name} holds {name!r} twice")
            if info.flag_bits & 1:
                raise IntegrityError(f"{name} in {self.path.name} is encrypted")
            members[name] = info
        total = sum(info.file_size for info in infos)
        if total > self._limits.model:
            raise CliError(
                f"{self.path.name} unpacks to {format_bytes(total)}", "--max-size raises the limit"
            )
        return members

    def _info(self, file: str) -> str:
        found = [n for n in self._members if re.fullmatch(rf"[^/]+\.dist-info/{file}", n)]
        if len(found) != 1:
            raise IntegrityError(
                f"{self.path.name} is not a wheel: it has {len(found)} dist-info/{file} files"
            )
        return found[0]

    def _read_record(self) -> dict[str, bytes]:
        """Return member -> SHA-256; every member must be listed, with its size."""
        name = self._info("RECORD")
        if self.size(name) > self._limits.document:
            raise IntegrityError(
                f"the RECORD of {self.path.name} is longer than {format_bytes(self._limits.document)}"
            )
        try:
            text = self._zip.read(self._members[name]).decode()
            rows = list(csv.reader(io.StringIO(text)))
        except Exception as error:
            raise IntegrityError(f"the RECORD of {self.path.name} cannot be read: {error}") from None
        record: dict[str, bytes] = {}
        for row in rows:
            if not row:
                continue
            if len(row) != 3:
                raise IntegrityError(f"the RECORD of {self.path.name} has a line of {len(row)} fields")
            member, digest, size = row
            if member in self._members and digest:
                record[member] = self._digest(member, digest)
                if size and size != str(self.size(member)):
                    raise IntegrityError(
                        f"{member} in {self.path.name} has {self.size(member)} bytes, its RECORD says {size}"
                    )
        missing = [m for m in self._members if m not in record and PurePosixPath(m).name not in _UNRECORDED]
        if missing:
            raise IntegrityError(f"{missing[0]} in {self.path.name} is not in its RECORD")
        return record

    def _digest(self, member: str, text: str) -> bytes:
        algorithm, _, encoded = text.partition("=")
        try:
            digest = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (binascii.Error, ValueError):
            digest = b""
        if algorithm != "sha256" or len(digest) != 32:
            raise IntegrityError(f"the RECORD of {self.path.name} has no SHA-256 for {member}")
        return digest
