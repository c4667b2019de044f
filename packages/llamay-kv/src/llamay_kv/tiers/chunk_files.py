"""The files of sealed chunks in one directory: under one budget, written in groups, verified when read."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from llamay_kv import arguments
from llamay_kv.errors import SnapshotError
from llamay_kv.storage.crypto import Key
from llamay_kv.storage.vfs import TEMPORARY, Batch, Buffer, Vfs, given_vfs, write_atomically
from llamay_kv.tiers import chunk
from llamay_kv.tiers.chunk import DamagedError, Link

_STALE = 600.0  # seconds after which an unfinished file belongs to no running process
_RELIST = 30.0  # seconds for which changes by other processes may go unseen
_RELIST_FULL = 5.0  # the same before an eviction, which should not be decided by an old list
_GROUP_FILES, _GROUP_BYTES = 64, 32 << 20
"""The most files and bytes that are made durable together. Until then they are in memory and may be lost."""


@dataclass
class _Stored:
    size: int
    used: float


class ChunkFiles:
    """The files of `DiskCache` and `BlockStore`. Safe from several threads and several processes.

    Args:
        directory: created if need be.
        budget_bytes: the most bytes that the files take, those of other processes included. The least recently used
            are evicted first.
        key: seals the chunks. Without one the directory gets a random secret of its own.
        min_free_bytes: nothing is written that would leave less room on the file system.
        ram_bytes: keep so many bytes of opened chunks in memory; 0 for none.
        durable: whether written chunks survive a loss of power. If not, a chunk may be torn then, which is detected.
        vfs: where files live.

    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        budget_bytes: int,
        key: Key | None = None,
        min_free_bytes: int = 1 << 30,
        ram_bytes: int = 0,
        durable: bool = True,
        vfs: Vfs | None = None,
    ) -> None:
        self.vfs = given_vfs(vfs)
        self.directory = arguments.path("directory", directory)
        self._budget = arguments.whole("budget_bytes", budget_bytes)
        self._floor = arguments.whole("min_free_bytes", min_free_bytes)
        self._ram_budget = arguments.whole("ram_bytes", ram_bytes)
        self._durable = arguments.flag("durable", durable)
        arguments.optional("key", key, Key)
        self._lock = threading.RLock()
        self._index: dict[str, _Stored] = {}
        self._total = 0
        self._victims: deque[tuple[str, float]] = deque()
        self.listed = 0.0
        self._ram: OrderedDict[str, tuple[int, memoryview]] = OrderedDict()
        self._ram_bytes = 0
        self._counts: Counter[str] = Counter()
        self._pins: Counter[str] = Counter()
        self.vfs.make_directory(self.directory)
        self.secret = key.secret if key else self._own_secret()
        self.relist(force=True)

    def path(self, link: Link) -> str:
        """Return where the chunk's file is."""
        return f"{self.directory}/{link.name}"

    # Writing

    def write(self, chunks: Iterable[tuple[Link, int, Buffer]]) -> set[Link]:
        """Write chunks, given as link, set of parts and payload, in groups; return the links of the written ones.

        Each appears whole or not at all. Writing stops where there is no room. Raises OSError; chunks of earlier
        calls stay.
        """
        written: set[Link] = set()
        group = Batch(self.vfs, self.directory, durable=self._durable)
        held: list[tuple[Link, int, int, Buffer]] = []
        size = 0
        try:
            for link, parts, payload in chunks:
                length = memoryview(payload).nbytes + chunk.OVERHEAD
                if not self._make_room(length, size):
                    self.count("no_room")
                    break
                group.add(self.path(link), chunk.seal(self.secret, link, parts, payload))
                held.append((link, parts, length, payload))
                size += length
                if len(held) >= _GROUP_FILES or size >= _GROUP_BYTES:
                    written |= self._commit(group, held)
                    size = 0
            written |= self._commit(group, held)
        finally:
            group.abandon()
        return written

    def _commit(self, group: Batch, held: list[tuple[Link, int, int, Buffer]]) -> set[Link]:
        group.commit()
        now = time.time()
        with self._lock:
            for link, _, length, _ in held:
                self._enter(link.name, _Stored(length, now))
                self._counts["written_chunks"] += 1
        for link, parts, _, payload in held:
            self._remember(link, parts, memoryview(payload))
        done = {link for link, _, _, _ in held}
        held.clear()
        return done

    def _make_room(self, size: int, pending: int) -> bool:
        """Evict until `size` more bytes, beside the pending ones, keep budget and floor; False if none can be."""
        if size + pending > self._budget:
            return False
        for look_again in (True, False):
            short = self._short(size, pending)
            if short <= 0:
                return True
            if look_again:
                self.relist(older_than=_RELIST_FULL)
        with self._lock:
            while short > 0 and (name := self._next_victim()) is not None:
                stored = self._index[name]
                try:
                    self.vfs.remove(f"{self.directory}/{name}")
                except FileNotFoundError:
                    pass
                except OSError:
                    self._counts["failed_writes"] += 1
                    stored.used = time.time()  # so that the next eviction tries another file first
                    return False
                self._leave(name)
                self._counts["evicted_chunks"] += 1
                short -= stored.size
        return short <= 0

    def _short(self, size: int, pending: int) -> int:
        over = self._total + pending + size - self._budget
        return max(over, size + self._floor - self.vfs.free_bytes(self.directory))

    def _next_victim(self) -> str | None:
        """Return the least recently used name, sorting once for many calls; None if all are pinned."""
        for again in (False, True):
            if again:
                free = ((n, s.used) for n, s in self._index.items() if n not in self._pins)
                self._victims.extend(sorted(free, key=lambda victim: victim[1]))
            while self._victims:
                name, used = self._victims.popleft()
                stored = self._index.get(name)
                if stored is not None and stored.used == used and name not in self._pins:
                    return name
        return None

    def pin(self, link: Link) -> bool:
        """Keep this process from evicting a chunk until it is unpinned as often; False if it is not there."""
        with self._lock:
            if link.name not in self._index:
                return False
            self._pins[link.name] += 1
            return True

    def unpin(self, link: Link) -> None:
        """Take a pin back; a missing pin is no error."""
        with self._lock:
            self._pins[link.name] -= 1
            if self._pins[link.name] <= 0:
                del self._pins[link.name]

    # Reading

    def size(self, link: Link) -> int | None:
        """Return the bytes of the chunk's payload as far as is known, None if it is not there."""
        stored = self._index.get(link.name)
        return None if stored is None else stored.size - chunk.OVERHEAD

    def parts(self, link: Link) -> int | None:
        """Return which parts the chunk says it has, None if it is not there or cannot be read."""
        if (held := self._ram.get(link.name)) is not None:
            return held[0]
        if link.name not in self._index:
            return None
        try:
            with self.vfs.open(self.path(link)) as file:
                head = bytearray(chunk.HEAD.size)
                got = file.read_into([memoryview(head)], 0)
                return chunk.present(bytes(head[:got]))
        except DamagedError:
            self.drop(link, "damaged")
        except OSError:
            self.drop(link, "failed_reads")
        return None

    def read(self, link: Link, parts: int = 0, *, keep: bool = False) -> tuple[int, memoryview]:
        """Return the parts of a chunk and its payload, verified. A damaged chunk is removed, and DamagedError raised.

        With `keep` a damaged chunk stays, for callers that cannot know whether it is theirs.
        """
        if (held := self._ram.get(link.name)) is not None and held[0] & parts == parts:
            with self._lock, contextlib.suppress(KeyError):
                self._ram.move_to_end(link.name)
            self.count("ram_hits")
            return held
        try:
            with self.vfs.open(self.path(link)) as file:
                data = bytearray(file.size())
                if file.read_into([memoryview(data)], 0) != len(data):
                    raise DamagedError("it ends too early")
            now, payload = chunk.open_sealed(self.secret, link, data)
            if now & parts != parts:
                raise DamagedError("it holds less than before")
        except OSError as error:
            self.drop(link, "failed_reads")
            raise DamagedError(str(error)) from error
        except DamagedError:
            if not keep:
                self.drop(link, "damaged")
            raise
        self._remember(link, now, payload)
        return now, payload

    def in_memory(self, link: Link) -> bool:
        """Whether reading it takes no file."""
        return link.name in self._ram

    def touch(self, link: Link) -> None:
        """Record a use of the chunk now."""
        with self._lock:
            if (stored := self._index.get(link.name)) is not None:
                stored.used = time.time()
        with contextlib.suppress(OSError):
            self.vfs.touch(self.path(link))

    def drop(self, link: Link, why: str | None = None) -> None:
        """Forget a chunk, and remove its file unless it merely could not be read. `why` is counted."""
        with self._lock:
            if why:
                self._counts[why] += 1
            self._leave(link.name)
            self._forget(link.name)
        if why != "failed_reads":
            with contextlib.suppress(OSError):
                self.vfs.remove(self.path(link))

    # Keeping house

    def _own_secret(self) -> bytes:
        """Return the secret in the directory; the first process to come puts one there."""
        path = f"{self.directory}/secret"
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError), self.vfs.open(path) as file:
                secret = bytearray(32)
                if file.size() == 32 and file.read_into([memoryview(secret)], 0) == 32:
                    return bytes(secret)
                reason = "it should have 32 bytes; remove it to begin with an empty cache"
                raise SnapshotError(path, "secret", reason)
            write_atomically(self.vfs, path, [[os.urandom(32)]])
        raise SnapshotError(path, "secret", "it cannot be read back")

    def relist(self, *, force: bool = False, older_than: float = _RELIST) -> None:
        """List the directory again: other processes write and remove there, too."""
        now = time.time()
        if not force and now - self.listed < older_than:
            return
        try:
            listed = self.vfs.list(self.directory)
        except OSError:
            self.count("failed_reads")
            return
        with self._lock:
            self.listed = now
            self._index = {f.name: _Stored(f.size, f.used) for f in listed if f.name.endswith(chunk.SUFFIX)}
            self._total = sum(stored.size for stored in self._index.values())
            self._victims.clear()
        for file in listed:
            if file.name.endswith(TEMPORARY) and now - file.used > _STALE:
                with contextlib.suppress(OSError):
                    self.vfs.remove(f"{self.directory}/{file.name}")

    def names(self) -> list[str]:
        """Return the names of the files that are known to be there."""
        with self._lock:
            return list(self._index)

    def _enter(self, name: str, stored: _Stored) -> None:
        self._leave(name)
        self._index[name] = stored
        self._total += stored.size

    def _leave(self, name: str) -> None:
        if (stored := self._index.pop(name, None)) is not None:
            self._total -= stored.size

    def _remember(self, link: Link, parts: int, payload: memoryview) -> None:
        with self._lock:
            self._forget(link.name)  # even if this does not fit: it would be an older one, with less
            if not 0 < payload.nbytes <= self._ram_budget:
                return
            self._ram[link.name] = (parts, payload)
            self._ram_bytes += payload.nbytes
            while self._ram_bytes > self._ram_budget:
                self._forget(next(iter(self._ram)))

    def _forget(self, name: str) -> None:
        held = self._ram.pop(name, None)
        self._ram_bytes -= held[1].nbytes if held else 0

    @property
    def used_bytes(self) -> int:
        """Bytes of the files that are known to be in the directory."""
        with self._lock:
            return self._total

    @property
    def budget_bytes(self) -> int:
        """The most bytes that the files take."""
        return self._budget

    def count(self, name: str, n: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name] += n

    def counters(self) -> dict[str, int]:
        """Return the counters."""
        with self._lock:
            return dict(self._counts)
