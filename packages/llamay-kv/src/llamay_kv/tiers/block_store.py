"""Opaque blocks under opaque keys, on disk, for engines with pages of their own."""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Self

from llamay_kv import arguments
from llamay_kv.identity import Identity
from llamay_kv.storage.crypto import Key
from llamay_kv.storage.vfs import Buffer, Vfs
from llamay_kv.tiers.chunk import DamagedError, Link
from llamay_kv.tiers.chunk_files import ChunkFiles

_NOBODY = Identity()


class BlockStore:
    """Bytes by key: sealed, verified whenever they are read, under one budget, durable when `put` returns.

    Args:
        directory: created if need be. Several processes may use it at once, `DiskCache` too.
        budget_bytes: the most bytes that all files in the directory take. The least recently used are evicted first.
        identity: everything that the bytes depend on; blocks of another identity are not found.
        tenant: the owner of the blocks; blocks of another tenant are not found.
        key: encrypts the blocks. Without one the directory gets a random secret of its own.
        min_free_bytes: nothing is written that would leave less room on the file system.
        ram_bytes: keep so many bytes of blocks in memory; 0 for none.
        durable: whether `put` returns only when the blocks would survive a loss of power. Without it a block may be
            torn then, which is detected when it is read.
        vfs: where files live.

    The name of a block's file says nothing about its key, and its contents cannot be read under another key, identity
    or tenant. Methods may be called from any thread.

    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        budget_bytes: int,
        identity: Identity = _NOBODY,
        tenant: str = "",
        key: Key | None = None,
        min_free_bytes: int = 1 << 30,
        ram_bytes: int = 0,
        durable: bool = True,
        vfs: Vfs | None = None,
    ) -> None:
        arguments.instance("identity", identity, Identity)
        label = b"llamay block root 1\0" + identity.digest + arguments.text("tenant", tenant).encode()
        self._files = ChunkFiles(
            directory,
            budget_bytes=budget_bytes,
            key=key,
            min_free_bytes=min_free_bytes,
            ram_bytes=ram_bytes,
            durable=durable,
            vfs=vfs,
        )
        self._root = hmac.digest(self._files.secret, label, "sha256")

    def _link(self, key: bytes, name: str = "key") -> Link:
        return Link(hmac.digest(self._files.secret, self._root + arguments.data(name, key), "sha256"))

    def _links(self, keys: Iterable[bytes]) -> Iterator[Link]:
        if not isinstance(keys, Iterable) or isinstance(keys, str | arguments.Bytes):
            arguments.refuse("keys", "a collection of keys, each of them bytes", keys)
        return (self._link(key, "keys: a key") for key in keys)

    def put(self, blocks: Mapping[bytes, Buffer] | Iterable[tuple[bytes, Buffer]]) -> set[bytes]:
        """Write blocks together; return the keys of the blocks that are stored now.

        A key that is stored already is not written again: the block of a key never changes. Where there is no room
        the rest is left out. Raises OSError; a block is then stored whole or not at all.
        """
        items = blocks.items() if isinstance(blocks, Mapping) else blocks
        if not isinstance(items, Iterable) or isinstance(items, str | arguments.Bytes):
            arguments.refuse("blocks", "a mapping from keys to blocks, or pairs of these", blocks)
        stored: set[bytes] = set()
        new: dict[Link, tuple[bytes, Buffer]] = {}
        for block in items:
            key, data = arguments.pair("blocks: an entry", block)
            link = self._link(key, "blocks: a key")
            data = arguments.buffer("blocks: a block", data)
            if self._files.size(link) == data.nbytes:
                self._files.touch(link)
                stored.add(key)
            else:
                new[link] = key, data
        written = self._files.write((link, 1, data) for link, (_, data) in new.items())
        return stored | {new[link][0] for link in written}

    def get(self, key: bytes) -> memoryview | None:
        """Return a block, every byte verified; None if it is missing or damaged."""
        link = self._link(key)
        if self._files.size(link) is None and not self._files.in_memory(link):
            return None
        try:
            block = self._files.read(link)[1]
        except DamagedError:
            return None
        self._files.touch(link)
        return block

    def get_into(self, key: bytes, out: Buffer) -> bool:
        """Fill a writable buffer with a block of exactly its length; without one return False and leave the buffer."""
        block = self.get(key)
        target = arguments.buffer("out", out, writable=True)
        if block is None or block.nbytes != target.nbytes:
            return False
        target[:] = block
        return True

    def __contains__(self, key: bytes) -> bool:
        """Whether the block is stored, by its name alone. Changes by other processes are seen within half a minute."""
        self._files.relist()
        link = self._link(key)
        return self._files.in_memory(link) or self._files.size(link) is not None

    def touch(self, keys: Iterable[bytes]) -> None:
        """Record a use of blocks now."""
        for link in self._links(keys):
            self._files.touch(link)

    def pin(self, key: bytes) -> bool:
        """Keep this process from evicting a block until `unpin`; False if the block is not there."""
        self._files.relist()
        return self._files.pin(self._link(key))

    def unpin(self, key: bytes) -> None:
        """Take one pin back."""
        self._files.unpin(self._link(key))

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove blocks; a missing block is no error."""
        for link in self._links(keys):
            self._files.drop(link)

    @property
    def used_bytes(self) -> int:
        """Bytes of all files that are known to be in the directory."""
        return self._files.used_bytes

    @property
    def budget_bytes(self) -> int:
        """The most bytes that the files take."""
        return self._files.budget_bytes

    def counters(self) -> dict[str, int]:
        """Return sums since the store was opened.

        ram_hits, written_chunks, evicted_chunks, no_room, damaged, failed_reads.
        """
        return self._files.counters()

    def close(self) -> None:
        """Do nothing: `put` leaves nothing to be written."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()
