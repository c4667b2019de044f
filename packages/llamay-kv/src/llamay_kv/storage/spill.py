"""Scratch files for idle pages when the budget in memory does not suffice. They end with the process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import pack
from typing import TYPE_CHECKING, Protocol

from llamay_kv import arguments
from llamay_kv.storage.crypto import Key

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

TAG = 16
_EXTENT = 64 << 20


class ScratchFile(Protocol):
    """A file without a name. All operations raise OSError."""

    def grow(self, size: int) -> None:
        """Make sure that writes of the first `size` bytes do not run out of room."""
        ...

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of it."""
        ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill the buffer; return how many bytes were read."""
        ...

    def free_bytes(self) -> int:
        """Return how much room the file system has left."""
        ...

    def close(self) -> None:
        """Give the file up."""
        ...


class LocalScratchFile:
    """A file of the operating system, unlinked as soon as it is open: the end of the process removes it."""

    def __init__(self, folder: str) -> None:
        import tempfile  # not with the package: it loads more than all the rest

        fd, path = tempfile.mkstemp(prefix=".spill-", suffix=".partial", dir=folder)
        self._fd = fd
        os.unlink(path)  # noqa: PTH108

    def grow(self, size: int) -> None:
        """Allocate blocks, where the file system can."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
        else:
            os.ftruncate(self._fd, size)

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write with pwrite until all is written."""
        view = memoryview(data)
        while view:
            done = os.pwrite(self._fd, view, offset)
            view, offset = view[done:], offset + done

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Read with preadv until the buffer is full or the file ends."""
        total = 0
        while total < len(buffer):
            done = os.preadv(self._fd, [buffer[total:]], offset + total)
            if not done:
                break
            total += done
        return total

    def free_bytes(self) -> int:
        """Ask the file system for the room that unprivileged users have."""
        status = os.fstatvfs(self._fd)
        return status.f_bavail * status.f_frsize

    def close(self) -> None:
        """Close the file, which removes it."""
        os.close(self._fd)


@dataclass(frozen=True)
class Spill:
    """Where a `Pool` puts idle pages.

    Args:
        folder: the folder of the files; it must exist. The files have no name there, and end with the process.
        bytes: the most bytes that the files take together.
        min_free_bytes: room that stays free on the file system.
        key: derives the key that pages are encrypted with (AES-256-GCM). Without one that key is random and never
            leaves the process.
        scratch: opens a scratch file, for tests and other stores.

    """

    folder: str | os.PathLike[str]
    bytes: int
    min_free_bytes: int = 1 << 30
    key: Key | None = field(default=None, repr=False)
    scratch: Callable[[str], ScratchFile] = field(default=LocalScratchFile, repr=False)

    def __post_init__(self) -> None:
        arguments.path("folder", self.folder)
        arguments.optional("key", self.key, Key)
        if not callable(self.scratch):
            arguments.refuse("scratch", "a function that opens a scratch file in a folder", self.scratch)
        for name in ("bytes", "min_free_bytes"):
            object.__setattr__(self, name, arguments.whole(name, getattr(self, name)))
        if self.bytes == 0:
            raise ValueError("bytes must be at least 1: a spill needs room")

    def open(self) -> SpillStore:
        """Return a store for one pool. OSError if the folder cannot be written to."""
        return SpillStore(self)


class SpillStore:
    """Encrypted pages in slots, one file for each group. The pool says which slot; it calls from one thread at a time.

    A slot is the ciphertext and its tag. The nonce is the number of the write, which no other write of this key has;
    the number stays in memory, so an older version of a slot is as good as damaged. Group and slot are associated data.
    """

    overhead = TAG

    def __init__(self, spill: Spill) -> None:
        self._folder = os.fspath(spill.folder)
        self._open, self._budget, self._floor = spill.scratch, spill.bytes, spill.min_free_bytes
        self._cipher = _cipher(spill.key)
        self._files: list[ScratchFile] = []
        self._sizes: list[int] = []
        self._slots: list[int] = []
        self._sealed = bytearray()
        if not os.path.isdir(self._folder):  # noqa: PTH112
            raise FileNotFoundError(f"the folder for spilled pages does not exist: {self._folder}")

    def slots(self, page_bytes: tuple[int, ...]) -> None:
        """Open a file for each group."""
        self._slots = [size + TAG for size in page_bytes]
        self._sizes = [0] * len(page_bytes)
        self._files = [self._open(self._folder) for _ in page_bytes]
        self._sealed = bytearray(max(self._slots, default=0))

    def _make_room(self, group: int, end: int) -> bool:
        file, have = self._files[group], self._sizes[group]
        if end <= have:
            return True
        # In large steps where the budget allows it, so that the file is in few pieces.
        slot = self._slots[group]
        step = max(end - have, min(_EXTENT, self._budget - sum(self._sizes)) // slot * slot)
        for more in (step, end - have):
            if file.free_bytes() - more >= self._floor:
                file.grow(have + more)
                self._sizes[group] = have + more
                return True
        return False

    def write(self, group: int, slot: int, serial: int, page: memoryview) -> bool:
        """Encrypt a page into its slot. False if the file system has no room to spare."""
        offset, size = slot * self._slots[group], self._slots[group]
        if not self._make_room(group, offset + size):
            return False
        sealed = memoryview(self._sealed)[:size]
        self._cipher.encrypt_into(_nonce(serial), page, pack("<II", group, slot), sealed)
        self._files[group].write(sealed, offset)
        return True

    def read(self, group: int, slot: int, serial: int, page: memoryview) -> None:
        """Decrypt a slot into a page. OSError unless every byte is as it was written."""
        from cryptography.exceptions import InvalidTag

        size = self._slots[group]
        sealed = memoryview(self._sealed)[:size]
        if self._files[group].read_into(sealed, slot * size) != size:
            raise OSError("the spill file ends too early")
        try:
            self._cipher.decrypt_into(_nonce(serial), sealed, pack("<II", group, slot), page)
        except InvalidTag:
            raise OSError("the spill file was damaged or changed") from None

    def __del__(self) -> None:
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()


def _nonce(serial: int) -> bytes:
    return pack("<QI", serial, 0)


def _cipher(key: Key | None) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    if key is None:
        return AESGCM(AESGCM.generate_key(256))
    # Serials start anew with every store, so no two stores may share a key.
    salt = os.urandom(32)
    return AESGCM(HKDF(algorithm=SHA256(), length=32, salt=salt, info=b"llamay spill 1").derive(key.secret))
