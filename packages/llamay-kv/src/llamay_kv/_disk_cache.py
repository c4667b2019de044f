"""Computed prefixes that outlive the process: chunks on disk, stored once for all histories that share them."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from llamay_kv import _chunk
from llamay_kv._chunk import Damaged, Link
from llamay_kv._context import Context, Pool
from llamay_kv._crypto import Key
from llamay_kv._errors import SnapshotError
from llamay_kv._format import CHUNK, first_needed
from llamay_kv._identity import Identity
from llamay_kv._kv import OutOfPages
from llamay_kv._layout import Layout
from llamay_kv._vfs import TEMPORARY, LocalVfs, Vfs, write_atomically

_NOBODY = Identity()
_STALE = 600.0  # seconds after which an unfinished file belongs to no running process
_RELIST = 30.0  # seconds for which what other processes do to the directory may go unseen


@dataclass
class _Stored:
    size: int
    used: float


class DiskCache:
    """Chunks of 64 positions in a directory, keyed by everything that leads to them.

    Args:
        directory: created if need be. Several processes may use it at once.
        budget_bytes: what the files of all identities together may take. The least recently used go first.
        key: encrypts the chunks. Without one the directory gets a random secret of its own, in a file that its owner
            alone can read: chunks are then authenticated, and no more confidential than the directory.
        min_free_bytes: nothing is written that would leave less room on the file system.
        ram_bytes: keep so many bytes of decrypted chunks in memory; 0 for none.
        queue_contexts: how many contexts may wait to be written. While so many wait, `save` skips.
        vfs: where files live.

    Reading never raises for what is wrong with a file: a chunk that is missing, damaged or not authentic is computed
    again. What failed is counted.

    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        budget_bytes: int,
        key: Key | None = None,
        min_free_bytes: int = 1 << 30,
        ram_bytes: int = 0,
        queue_contexts: int = 4,
        vfs: Vfs | None = None,
    ) -> None:
        self._vfs = vfs or LocalVfs()
        self._directory = os.fspath(directory)
        self._budget, self._floor, self._ram_budget = budget_bytes, min_free_bytes, ram_bytes
        self._lock = threading.RLock()
        self._index: dict[str, _Stored] = {}
        self._listed = 0.0
        self._ram: OrderedDict[str, tuple[int, memoryview]] = OrderedDict()
        self._ram_bytes = 0
        self._counts: Counter[str] = Counter()
        self._seconds_per_byte = 0.0
        self._vfs.make_directory(self._directory)
        self._secret = key.secret if key else self._own_secret()
        self._relist(force=True)
        self._queue: queue.Queue[tuple[Context, Identity, str] | None] = queue.Queue(queue_contexts)
        self._writer = threading.Thread(target=self._write_all, name="llamay-kv disk cache", daemon=True)
        self._writer.start()

    # Saving

    def save(self, context: Context, *, identity: Identity = _NOBODY, tenant: str = "") -> bool:
        """Have the context's whole chunks written in the background; return False if that is skipped.

        Takes microseconds: call it when the answer is out. The context may go on at once; what is written is its
        state now.
        """
        if not self._writer.is_alive():
            return False
        frozen = context.fork()
        try:
            self._queue.put_nowait((frozen, identity, tenant))
        except queue.Full:
            frozen.close()
            self._count("skipped")
            return False
        return True

    def flush(self) -> None:
        """Return when everything that was handed to `save` is on disk, or was given up."""
        self._queue.join()

    def close(self) -> None:
        """Write what waits, and stop."""
        if self._writer.is_alive():
            self._queue.put(None)
            self._writer.join()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            context, identity, tenant = item
            try:
                self._write(context, identity, tenant)
            except Exception:
                self._count("failed_writes")  # a cache that cannot write is a cache that misses
            finally:
                context.close()
                self._queue.task_done()
        self._queue.task_done()

    def _write(self, context: Context, identity: Identity, tenant: str) -> None:
        layout, first = context.pool.layout, context.first_positions()
        tokens = np.array(context.tokens, np.int32)
        links = self._links(layout, tokens, identity, tenant)
        for i, link in enumerate(links):
            begin, end = i * CHUNK, (i + 1) * CHUNK
            groups = sum(1 << g for g in range(len(layout.groups)) if first[g] <= begin)
            if self._known(link, layout, groups):
                continue
            sizes = [
                context.pool.packed_bytes(g, CHUNK) if groups >> g & 1 else 0
                for g in range(len(layout.groups))
            ]
            if not self._make_room(sum(sizes) + _chunk.OVERHEAD):
                self._count("no_room")
                return
            payload, at = np.empty(sum(sizes), np.uint8), 0
            for g, size in enumerate(sizes):
                if size:
                    context.pack_into(g, begin, end, payload[at : at + size])
                    at += size
            parts = _chunk.seal(self._secret, link, groups, payload.data)
            write_atomically(self._vfs, self._path(link), [parts])
            with self._lock:
                self._index[link.name] = _Stored(sum(map(len, parts)), time.time())
                self._count("written_chunks")
            self._remember(link, groups, payload.data)
        for link in reversed(links):  # so that what is behind goes before what it needs
            self._touch(link)

    def _known(self, link: Link, layout: Layout, groups: int) -> bool:
        """Whether the chunk is stored with all of these groups. Other sets of groups have other lengths."""
        stored = self._index.get(link.name)
        return stored is not None and stored.size - _chunk.OVERHEAD >= _payload_bytes(layout, groups)

    # Loading

    def load(
        self,
        pool: Pool,
        tokens: Sequence[int] | np.ndarray,
        *,
        identity: Identity = _NOBODY,
        tenant: str = "",
        onto: Context | None = None,
        seconds_per_token: float | None = None,
    ) -> Context:
        """Return a context with the longest prefix of the tokens that is stored, in whole chunks.

        Args:
            pool: where its pages will be.
            tokens: what is wanted.
            identity: what must have computed it.
            tenant: whose it must be.
            onto: a context that has a prefix of the tokens already, from the prefix tree for instance. It is
                returned as it is unless the disk has more; otherwise the result shares its pages.
            seconds_per_token: what computing takes. A load that would take longer, by what loads have taken so
                far, is left.

        """
        ids = np.asarray(tokens, np.int32)
        have = 0 if onto is None else len(onto)
        layout = pool.layout
        chain = self._stored_chain(layout, ids, identity, tenant)
        n = self._usable(layout, chain)
        gain = n * CHUNK - have
        size = sum(_payload_bytes(layout, groups) for _, groups in chain[have // CHUNK : n])
        if (
            gain > 0
            and seconds_per_token is not None
            and size * self._seconds_per_byte > gain * seconds_per_token
        ):
            self._count("declined")
            gain = 0
        self._count("lookups")
        if gain <= 0:
            return pool.context() if onto is None else onto
        started = time.perf_counter()
        while n * CHUNK > have:
            try:
                loaded = self._fill(pool, ids, chain[:n], onto)
            except OutOfPages:
                self._count("no_pages")
                break
            if isinstance(loaded, Context):
                self._count("hits")
                self._count("loaded_tokens", n * CHUNK - have)
                seconds = (time.perf_counter() - started) / max(1, size)
                self._seconds_per_byte = (
                    seconds if not self._seconds_per_byte else (0.7 * self._seconds_per_byte + 0.3 * seconds)
                )
                for link, _ in reversed(chain[:n]):
                    self._touch(link)
                return loaded
            n = self._usable(layout, chain[:loaded])  # the chunk with that index was no good
        return pool.context() if onto is None else onto

    def _links(self, layout: Layout, tokens: np.ndarray, identity: Identity, tenant: str) -> list[Link]:
        link = Link.root(self._secret, layout, identity, tenant)
        links = []
        for i in range(len(tokens) // CHUNK):
            link = link.next(self._secret, tokens[i * CHUNK : (i + 1) * CHUNK])
            links.append(link)
        return links

    def _stored_chain(
        self, layout: Layout, tokens: np.ndarray, identity: Identity, tenant: str
    ) -> list[tuple[Link, int]]:
        self._relist()
        chain = []
        link = Link.root(self._secret, layout, identity, tenant)
        for i in range(len(tokens) // CHUNK):
            link = link.next(self._secret, tokens[i * CHUNK : (i + 1) * CHUNK])
            if (held := self._ram.get(link.name)) is not None:
                chain.append((link, held[0]))
            elif link.name in self._index:
                try:
                    with self._vfs.open(self._path(link)) as file:
                        head = bytearray(_chunk.HEAD.size)
                        got = file.read_into([memoryview(head)], 0)
                        chain.append((link, _chunk.present(bytes(head[:got]))))
                except Damaged:
                    self._drop(link, "damaged")
                    break
                except OSError:
                    self._drop(link, "failed_reads")
                    break
            else:
                break
        return chain

    def _usable(self, layout: Layout, chain: list[tuple[Link, int]]) -> int:
        """Return how many chunks from the start can be used: windows need theirs whole."""
        runs = [0] * len(layout.groups)
        best = 0
        for i, (_, groups) in enumerate(chain):
            for g in range(len(layout.groups)):
                if not groups >> g & 1:
                    runs[g] = (i + 1) * CHUNK
            n = (i + 1) * CHUNK
            if all(runs[g] <= first_needed(group, n) for g, group in enumerate(layout.groups)):
                best = i + 1
        return best

    def _fill(
        self, pool: Pool, tokens: np.ndarray, chain: list[tuple[Link, int]], onto: Context | None
    ) -> Context | int:
        """Return the context, or the index of the chunk that could not be read."""
        n = len(chain) * CHUNK
        context, start = self._base(pool, onto, chain)
        try:
            needed = [first_needed(group, n) // CHUNK * CHUNK for group in pool.layout.groups]
            with context.reserve(n - start, None if start else needed) as lease:
                for i in range(start // CHUNK, len(chain)):
                    begin, end = i * CHUNK, (i + 1) * CHUNK
                    try:
                        groups, payload = self._read(*chain[i])
                    except Damaged:
                        context.close()
                        return i
                    data, at = np.frombuffer(payload, np.uint8), 0
                    for g in range(len(pool.layout.groups)):
                        size = pool.packed_bytes(g, CHUNK) if groups >> g & 1 else 0
                        if size and (start or begin >= needed[g]):  # behind a window there is no page
                            lease.unpack_from(g, begin, end, data[at : at + size])
                        at += size
                lease.commit(tokens[start:n])
        except BaseException:
            context.close()
            raise
        return context

    @staticmethod
    def _base(pool: Pool, onto: Context | None, chain: list[tuple[Link, int]]) -> tuple[Context, int]:
        """Return what the chunks are appended to, and its length."""
        start = 0 if onto is None else len(onto) // CHUNK * CHUNK
        everything = (1 << len(pool.layout.groups)) - 1
        # Behind a window chunks may lack a group. Only a context without tokens can have such a gap.
        if onto is None or start == 0 or any(groups != everything for _, groups in chain[start // CHUNK :]):
            return pool.context(), 0
        context = onto.fork()
        try:
            context.truncate(start)
        except ValueError:  # its window has gone on
            context.close()
            return pool.context(), 0
        return context, start

    def _read(self, link: Link, groups: int) -> tuple[int, memoryview]:
        if (held := self._ram.get(link.name)) is not None:
            with self._lock, contextlib.suppress(KeyError):
                self._ram.move_to_end(link.name)
            self._count("ram_hits")
            return held
        try:
            with self._vfs.open(self._path(link)) as file:
                data = bytearray(file.size())
                if file.read_into([memoryview(data)], 0) != len(data):
                    raise Damaged("it ends too early")
            now, payload = _chunk.open_sealed(self._secret, link, data)
            if now & groups != groups:
                raise Damaged("it holds less than before")
        except OSError as error:
            self._drop(link, "failed_reads")
            raise Damaged(str(error)) from error
        except Damaged:
            self._drop(link, "damaged")
            raise
        self._remember(link, now, payload)
        return now, payload

    # Keeping house

    def _path(self, link: Link) -> str:
        return f"{self._directory}/{link.name}"

    def _own_secret(self) -> bytes:
        """Return the secret in the directory; the first process to come puts one there."""
        path = f"{self._directory}/secret"
        for _ in range(2):
            with contextlib.suppress(FileNotFoundError), self._vfs.open(path) as file:
                secret = bytearray(32)
                if file.size() == 32 and file.read_into([memoryview(secret)], 0) == 32:
                    return bytes(secret)
                raise SnapshotError(
                    path, "secret", "it should have 32 bytes; remove it to begin with an empty cache"
                )
            write_atomically(self._vfs, path, [[os.urandom(32)]])
        raise SnapshotError(path, "secret", "it cannot be read back")

    def _relist(self, *, force: bool = False) -> None:
        """Look at the directory: other processes write and remove there too."""
        now = time.time()
        if not force and now - self._listed < _RELIST:
            return
        try:
            listed = self._vfs.list(self._directory)
        except OSError:
            self._count("failed_reads")
            return
        with self._lock:
            self._listed = now
            self._index = {f.name: _Stored(f.size, f.used) for f in listed if f.name.endswith(_chunk.SUFFIX)}
        for file in listed:
            if file.name.endswith(TEMPORARY) and now - file.used > _STALE:
                with contextlib.suppress(OSError):
                    self._vfs.remove(f"{self._directory}/{file.name}")

    def _make_room(self, size: int) -> bool:
        if size > self._budget:
            return False
        with self._lock:
            total = sum(stored.size for stored in self._index.values())
            short = total + size - self._budget
            free = self._vfs.free_bytes(self._directory)
            short = max(short, size + self._floor - free)
            if short <= 0:
                return True
            for name, stored in sorted(self._index.items(), key=lambda item: item[1].used):
                if short <= 0:
                    break
                try:
                    self._vfs.remove(f"{self._directory}/{name}")
                except FileNotFoundError:
                    pass
                except OSError:
                    self._count("failed_writes")
                    continue
                del self._index[name]
                self._count("evicted_chunks")
                short -= stored.size
            return short <= 0

    def _touch(self, link: Link) -> None:
        with self._lock:
            if (stored := self._index.get(link.name)) is not None:
                stored.used = time.time()
        with contextlib.suppress(OSError):
            self._vfs.touch(self._path(link))

    def _drop(self, link: Link, why: str) -> None:
        """Forget a chunk that is no good."""
        self._count(why)
        with self._lock:
            self._index.pop(link.name, None)
            self._forget(link.name)
        if why == "damaged":
            with contextlib.suppress(OSError):
                self._vfs.remove(self._path(link))

    def _remember(self, link: Link, groups: int, payload: memoryview) -> None:
        if len(payload) > self._ram_budget:
            return
        with self._lock:
            self._forget(link.name)
            self._ram[link.name] = (groups, payload)
            self._ram_bytes += len(payload)
            while self._ram_bytes > self._ram_budget:
                self._forget(next(iter(self._ram)))

    def _forget(self, name: str) -> None:
        held = self._ram.pop(name, None)
        self._ram_bytes -= len(held[1]) if held else 0

    @property
    def used_bytes(self) -> int:
        """Bytes of the chunks that are known to be in the directory."""
        with self._lock:
            return sum(stored.size for stored in self._index.values())

    def _count(self, name: str, n: int = 1) -> None:
        with self._lock:
            self._counts[name] += n

    def counters(self) -> dict[str, int]:
        """Return sums since the cache was opened.

        lookups, hits, loaded_tokens, ram_hits, declined, written_chunks, evicted_chunks, skipped, no_room, damaged,
        failed_reads, failed_writes, no_pages.
        """
        with self._lock:
            return dict(self._counts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _payload_bytes(layout: Layout, groups: int) -> int:
    return sum(g.position_bytes * CHUNK for i, g in enumerate(layout.groups) if groups >> i & 1)
