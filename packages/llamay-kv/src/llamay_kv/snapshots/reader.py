"""Read snapshots: header and manifest at once, frames one by one, each verified."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

import numpy as np

from llamay_kv import arguments
from llamay_kv._kv import crc64
from llamay_kv.errors import SnapshotError
from llamay_kv.ids import Ids
from llamay_kv.snapshots import format as fmt
from llamay_kv.snapshots.format import Manifest
from llamay_kv.storage.crypto import Key, Keys, given_keys, nonce
from llamay_kv.storage.vfs import Buffer, File, Vfs, given_vfs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class SnapshotReader:
    """A snapshot with a valid header and manifest."""

    def __init__(self, vfs: Vfs, path: str) -> None:
        self.path = path
        self._cipher: AESGCM | None = None
        self._sealed = np.empty(0, np.uint8)
        self._file: File = vfs.open(path)
        try:
            self.manifest = self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> Manifest:
        size = self._file.size()
        head = bytearray(min(size, fmt.HEADER.size))
        self._fill([memoryview(head)], 0, "header")
        manifest_bytes, flags, digest = fmt.check_header(self.path, bytes(head), size)
        data = bytearray(manifest_bytes)
        self._fill([memoryview(data)], fmt.HEADER.size, "manifest")
        manifest = fmt.parse_manifest(self.path, bytes(data), digest)
        if bool(flags & fmt.ENCRYPTED) != (manifest.encryption is not None):
            raise SnapshotError(self.path, "header", "header and manifest disagree about encryption")
        if bool(flags & fmt.ROWS) != bool(manifest.rows):
            raise SnapshotError(
                self.path, "header", "header and manifest disagree about rows that are not tokens"
            )
        if manifest.file_bytes != size:
            reason = f"the file has {size} bytes and what the manifest lists takes {manifest.file_bytes}"
            raise SnapshotError(self.path, "end", reason)
        self._offset = fmt.HEADER.size + manifest_bytes
        return manifest

    def unlock(self, keys: Iterable[Key]) -> None:
        """Find the key of an encrypted snapshot. SnapshotError if the key is not among the given ones."""
        encryption = self.manifest.encryption
        if encryption is None:
            return
        key = encryption.find(keys)
        if key is None:
            reason = f"the snapshot is encrypted under the key {encryption.key!r}, which was not given"
            raise SnapshotError(self.path, "manifest", reason)
        self._cipher = encryption.cipher(key)

    def _fill(self, buffers: Sequence[memoryview], offset: int, part: str) -> None:
        wanted = sum(b.nbytes for b in buffers)
        got = self._file.read_into(buffers, offset)
        if got != wanted:
            raise SnapshotError(self.path, part, f"the file ends {wanted - got} bytes too early")

    def frames(self) -> Iterator[tuple[fmt.Frame, int]]:
        """Yield each frame and where it begins."""
        offset = self._offset
        for frame in self.manifest.frames():
            yield frame, offset
            offset += frame.size + self.manifest.trailer

    def read(self, frame: fmt.Frame, offset: int, out: np.ndarray) -> None:
        """Fill `out`, as long as the frame's payload, and verify it. An encrypted snapshot must be unlocked."""
        place = self.manifest.place(frame)
        if self.manifest.encryption is not None:
            self._decrypt(frame, offset, place, out)
            return
        checksum = bytearray(fmt.CHECKSUM.size)
        self._fill([out.data, memoryview(checksum)], offset, frame.name)
        if crc64(out, crc64(place)) != fmt.CHECKSUM.unpack(checksum)[0]:
            raise SnapshotError(self.path, frame.name, "its checksum does not match: the file is damaged")

    def _decrypt(self, frame: fmt.Frame, offset: int, place: bytes, out: np.ndarray) -> None:
        from cryptography.exceptions import InvalidTag

        if self._cipher is None:
            raise SnapshotError(self.path, frame.name, "the snapshot is encrypted, and no key was given")
        size = frame.size + fmt.TAG
        if len(self._sealed) < size:
            self._sealed = np.empty(size, np.uint8)
        sealed = self._sealed[:size].data
        self._fill([sealed], offset, frame.name)
        try:
            self._cipher.decrypt_into(nonce(frame.index), sealed, place, out.data)
        except InvalidTag:
            reason = "the frame is not authentic: the file is damaged, was changed, or the key is another"
            raise SnapshotError(self.path, frame.name, reason) from None

    def ids(self) -> Ids:
        """Return the ids of the tokens and rows, verified."""
        frames = self.frames()
        tokens = self._whole(*next(frames))
        table = self._whole(*next(frames)) if self.manifest.rows else b""
        return self.check_ids(tokens, table)

    def _whole(self, frame: fmt.Frame, offset: int) -> bytes:
        data = np.empty(frame.size, np.uint8)
        self.read(frame, offset, data)
        return data.tobytes()

    def check_ids(self, tokens: bytes, table: bytes) -> Ids:
        """Compare ids and the table of rows with each other and with the manifest."""
        wanted = self.manifest.tokens_sha256
        if wanted is not None and hashlib.sha256(tokens + table).hexdigest() != wanted:
            raise SnapshotError(self.path, "tokens", "their SHA-256 does not match the manifest's")
        try:
            return Ids.parse(tokens, table)
        except ValueError as error:
            raise SnapshotError(self.path, "rows" if table else "tokens", str(error)) from error

    def payloads(self) -> Iterator[tuple[fmt.Frame, Buffer]]:
        """Yield each frame, verified, with its payload, which the next one overwrites."""
        self.ids()
        buffer = np.empty(0, np.uint8)
        for frame, offset in self.frames():
            if len(buffer) < frame.size:
                buffer = np.empty(frame.size, np.uint8)
            self.read(frame, offset, buffer[: frame.size])
            yield frame, buffer[: frame.size].data

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def inspect(path: str | os.PathLike[str], *, vfs: Vfs | None = None) -> Manifest:
    """Return the manifest of a snapshot, reading and validating nothing but header and manifest."""
    with SnapshotReader(given_vfs(vfs), arguments.path("path", path)) as reader:
        return reader.manifest


def verify(path: str | os.PathLike[str], *, keys: Keys = None, vfs: Vfs | None = None) -> Manifest:
    """Read a snapshot to the end and check every byte; raise SnapshotError at the first fault.

    Takes memory for one frame. An encrypted snapshot can be verified with its key only.
    """
    given = given_keys(keys)
    with SnapshotReader(given_vfs(vfs), arguments.path("path", path)) as reader:
        reader.unlock(given)
        for _ in reader.payloads():
            pass
        return reader.manifest


def stored_tokens(path: str | os.PathLike[str], *, keys: Keys = None, vfs: Vfs | None = None) -> list[int]:
    """Return the token ids in a snapshot, without a pool; they are verified.

    Rows that are not tokens have negative numbers, which mean nothing outside of this file.
    """
    given = given_keys(keys)
    with SnapshotReader(given_vfs(vfs), arguments.path("path", path)) as reader:
        reader.unlock(given)
        ids: list[int] = reader.ids().stored.tolist()
        return ids
