"""Look after a folder of sealed chunks: survey it, verify it, and remove chunks."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from llamay_kv import arguments
from llamay_kv._kv import token_ids
from llamay_kv.errors import SnapshotError
from llamay_kv.identity import Identity
from llamay_kv.ids import known
from llamay_kv.layout import Layout
from llamay_kv.snapshots.format import CHUNK
from llamay_kv.storage.crypto import Key
from llamay_kv.storage.vfs import TEMPORARY, Listed, Vfs, given_vfs
from llamay_kv.tiers import chunk
from llamay_kv.tiers.chunk import DamagedError, Link

_STALE = 600.0


@dataclass(frozen=True, slots=True)
class Survey:
    """The contents of a folder.

    Attributes:
        chunks: the number of chunks.
        chunk_bytes: their size in bytes.
        oldest: the last use of the chunk that is unused for longest, in seconds since 1970; None without chunks.
        newest: the last use of the chunk that was used last.
        unfinished: names of unfinished files.
        own_secret: whether the folder has a random secret of its own instead of a given key.
        other: names of files that are none of these.

    """

    chunks: int
    chunk_bytes: int
    oldest: float | None
    newest: float | None
    unfinished: tuple[str, ...]
    own_secret: bool
    other: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class FolderMiss:
    """The reason why a folder has no longer prefix.

    Attributes:
        length: how many tokens were asked for.
        stored: how many of them, in whole chunks, are there under this identity, tenant and key.
        reason: what ends the prefix: "complete" (no whole chunk more was asked for), "unknown" (nothing of this
            identity, tenant and key begins like that), "not stored" (no longer part of the history is stored) or
            "damaged".
        damaged: what is wrong with a damaged chunk.

    """

    length: int
    stored: int
    reason: str
    damaged: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        if self.reason == "complete":
            return f"{self.stored} of {self.length} tokens are stored; the rest is no whole chunk of {CHUNK}"
        if self.reason == "unknown":
            return (
                f"none of {self.length} tokens are stored: nothing here begins with them under this identity, "
                "tenant and key"
            )
        if self.reason == "damaged":
            return f"{self.stored} of {self.length} tokens can be used; the next chunk is damaged: {self.damaged}"
        end = self.stored + CHUNK
        return f"{self.stored} of {self.length} tokens are stored; no history here goes on to token {end} like this"


class CacheFolder:
    """The folder of a `DiskCache` or a `BlockStore`, while it is in use or not.

    Args:
        directory: where it is.
        key: the key that the folder was written under; by default the folder's own secret.
        vfs: where files live.

    """

    def __init__(
        self, directory: str | os.PathLike[str], *, key: Key | None = None, vfs: Vfs | None = None
    ) -> None:
        self._vfs, self._directory = given_vfs(vfs), arguments.path("directory", directory)
        self._key = arguments.optional("key", key, Key)

    def survey(self) -> Survey:
        """Count the files, without opening them."""
        chunks, unfinished, other, own = [], [], [], False
        for file in self._vfs.list(self._directory):
            if file.name.endswith(chunk.SUFFIX):
                chunks.append(file)
            elif file.name.endswith(TEMPORARY):
                unfinished.append(file.name)
            elif file.name == "secret":
                own = True
            else:
                other.append(file.name)
        used = [file.used for file in chunks]
        return Survey(
            len(chunks),
            sum(file.size for file in chunks),
            min(used, default=None),
            max(used, default=None),
            tuple(sorted(unfinished)),
            own,
            tuple(sorted(other)),
        )

    def verify(self) -> dict[str, str]:
        """Read every byte of every chunk; return the faults by the name of the file. Takes memory for one chunk."""
        secret = self._secret()
        wrong = {}
        for file in self._chunks():
            try:
                self._read(secret, file.name)
            except FileNotFoundError:
                continue  # evicted meanwhile
            except (DamagedError, OSError) as error:
                wrong[file.name] = str(error)
        return wrong

    def collect(
        self, *, budget_bytes: int | None = None, older_than: float | None = None, damaged: bool = False
    ) -> dict[str, int]:
        """Remove chunks and unfinished files; return the size of each removed file.

        Args:
            budget_bytes: the most bytes that the chunks may take; the least recently used are removed first.
            older_than: seconds without a use after which a chunk is removed.
            damaged: whether to read every chunk and remove the damaged ones.

        Unfinished files without a write for ten minutes are removed in any case.

        """
        if budget_bytes is not None:
            budget_bytes = arguments.whole("budget_bytes", budget_bytes)
        if older_than is not None:
            older_than = arguments.seconds("older_than", older_than)
        damaged = arguments.flag("damaged", damaged)
        now = time.time()
        goes = {
            file.name: file.size
            for file in self._vfs.list(self._directory)
            if file.name.endswith(TEMPORARY) and now - file.used > _STALE
        }
        chunks = sorted(self._chunks(), key=lambda file: file.used)
        wrong = self.verify() if damaged else {}
        total = sum(file.size for file in chunks)
        for file in chunks:
            old = older_than is not None and now - file.used > older_than
            if old or file.name in wrong or (budget_bytes is not None and total > budget_bytes):
                goes[file.name] = file.size
                total -= file.size
        for name in list(goes):
            with contextlib.suppress(FileNotFoundError):
                self._vfs.remove(f"{self._directory}/{name}")
        return goes

    def explain_miss(
        self,
        layout: Layout,
        tokens: Sequence[int] | np.ndarray,
        *,
        identity: Identity | None = None,
        tenant: str = "",
    ) -> FolderMiss:
        """Say how many of the tokens a `DiskCache` on this folder has, and why it has no more."""
        arguments.instance("layout", layout, Layout)
        arguments.optional("identity", identity, Identity)
        arguments.text("tenant", tenant)
        ids, secret = known(token_ids(tokens)), self._secret()
        names = {file.name for file in self._chunks()}
        link = Link.root(secret, layout, identity or Identity(), tenant)
        for i in range(len(ids) // CHUNK):
            link = link.next(secret, ids[i * CHUNK : (i + 1) * CHUNK])
            if link.name not in names:
                return FolderMiss(len(tokens), i * CHUNK, "not stored" if i else "unknown")
            try:
                self._read(secret, link.name)
            except (DamagedError, OSError) as error:
                return FolderMiss(len(tokens), i * CHUNK, "damaged", str(error))
        return FolderMiss(len(tokens), len(ids) // CHUNK * CHUNK, "complete")

    def _chunks(self) -> list[Listed]:
        return [file for file in self._vfs.list(self._directory) if file.name.endswith(chunk.SUFFIX)]

    def _read(self, secret: bytes, name: str) -> None:
        link = Link.named(name)
        with self._vfs.open(f"{self._directory}/{name}") as file:
            data = bytearray(file.size())
            if file.read_into([memoryview(data)], 0) != len(data):
                raise DamagedError("it ends too early")
        chunk.open_sealed(secret, link, data)

    def _secret(self) -> bytes:
        if self._key is not None:
            return self._key.secret
        path = f"{self._directory}/secret"
        try:
            with self._vfs.open(path) as file:
                secret = bytearray(min(file.size(), 33))
                file.read_into([memoryview(secret)], 0)
        except FileNotFoundError:
            raise SnapshotError(
                path, "secret", "the folder was written under a key, which was not given"
            ) from None
        if len(secret) != 32:
            raise SnapshotError(path, "secret", "it should have 32 bytes")
        return bytes(secret)
