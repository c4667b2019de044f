"""Computed prefixes that outlive the process: chunks on disk, stored once for all histories that share them."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from llamay_kv._chunk import Damaged, Link
from llamay_kv._chunk_files import ChunkFiles
from llamay_kv._context import Context, Pool
from llamay_kv._crypto import Key
from llamay_kv._format import CHUNK, first_needed
from llamay_kv._identity import Identity
from llamay_kv._kv import OutOfPages
from llamay_kv._layout import Layout
from llamay_kv._vfs import Vfs

_NOBODY = Identity()
_FORGIVE = 0.9
"""What a load that was declined does to the rate that spoke against it, so that a disk gets another chance."""


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
        durable: whether `flush` returns only when what was saved would survive a loss of power. Without it writing is
            two to three times as fast, and what a loss of power tears is found out and computed again.
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
        durable: bool = True,
        vfs: Vfs | None = None,
    ) -> None:
        self._files = ChunkFiles(
            directory,
            budget_bytes=budget_bytes,
            key=key,
            min_free_bytes=min_free_bytes,
            ram_bytes=ram_bytes,
            durable=durable,
            vfs=vfs,
        )
        self._seconds_per_byte = 0.0
        self._queue: queue.Queue[tuple[Context, Identity, str] | None] = queue.Queue(queue_contexts)
        self._writer = threading.Thread(target=self._write_all, name="llamay-kv disk cache", daemon=True)
        self._writer.start()

    # Saving

    def save(self, context: Context, *, identity: Identity = _NOBODY, tenant: str = "") -> bool:
        """Have the context's whole chunks written in the background; return False if that is skipped.

        Takes microseconds: call it when the answer is out. The context may go on at once; what is written is its
        state now.
        """
        if not self._writer.is_alive() or _recurrent(context.pool.layout):
            return False
        frozen = context.fork()
        try:
            self._queue.put_nowait((frozen, identity, tenant))
        except queue.Full:
            frozen.close()
            self._files.count("skipped")
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
                self._files.count("failed_writes")  # a cache that cannot write is a cache that misses
            finally:
                context.close()
                self._queue.task_done()
        self._queue.task_done()

    def _write(self, context: Context, identity: Identity, tenant: str) -> None:
        tokens = np.array(context.tokens, np.int32)
        links = list(self._links(context.pool.layout, tokens, identity, tenant))
        self._files.write(self._missing(context, links))
        for link in reversed(links):  # so that what is behind goes before what it needs
            self._files.touch(link)

    def _missing(self, context: Context, links: list[Link]) -> Iterator[tuple[Link, int, memoryview]]:
        layout, first = context.pool.layout, context.first_positions()
        for i, link in enumerate(links):
            begin, end = i * CHUNK, (i + 1) * CHUNK
            groups = sum(1 << g for g in range(len(layout.groups)) if first[g] <= begin)
            wanted = _payload_bytes(layout, groups)
            # Other sets of groups have other lengths; a longer one has these and more.
            if (stored := self._files.size(link)) is not None and stored >= wanted:
                continue
            payload, at = np.empty(wanted, np.uint8), 0
            for g in range(len(layout.groups)):
                if groups >> g & 1:
                    size = context.pool.packed_bytes(g, CHUNK)
                    context.pack_into(g, begin, end, payload[at : at + size])
                    at += size
            yield link, groups, payload.data

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
            seconds_per_token: what computing takes. A load that would take longer, by what loads from the disk have
                taken so far, is left. What is in the memory tier counts as nothing.

        """
        ids = np.asarray(tokens, np.int32)
        have = 0 if onto is None else len(onto)
        layout = pool.layout
        chain = [] if _recurrent(layout) else self._stored_chain(layout, ids, identity, tenant)
        n = self._usable(layout, chain)
        gain = n * CHUNK - have
        self._files.count("lookups")
        if gain > 0 and seconds_per_token is not None:
            expected = self._disk_bytes(layout, chain[have // CHUNK : n]) * self._seconds_per_byte
            if expected > gain * seconds_per_token:
                self._seconds_per_byte *= _FORGIVE
                self._files.count("declined")
                gain = 0
        if gain <= 0:
            return pool.context() if onto is None else onto
        while n * CHUNK > have:
            size = self._disk_bytes(layout, chain[have // CHUNK : n])
            started = time.perf_counter()
            try:
                loaded = self._fill(pool, ids, chain[:n], onto)
            except OutOfPages:
                self._files.count("no_pages")
                break
            if isinstance(loaded, Context):
                self._files.count("hits")
                self._files.count("loaded_tokens", n * CHUNK - have)
                self._learn(size, time.perf_counter() - started)
                for link, _ in reversed(chain[:n]):
                    self._files.touch(link)
                return loaded
            n = self._usable(layout, chain[:loaded])  # the chunk with that index was no good
        return pool.context() if onto is None else onto

    def _learn(self, size: int, seconds: float) -> None:
        if size:
            rate = seconds / size
            known = self._seconds_per_byte
            self._seconds_per_byte = 0.7 * known + 0.3 * rate if known else rate

    def _disk_bytes(self, layout: Layout, chain: list[tuple[Link, int]]) -> int:
        return sum(
            _payload_bytes(layout, groups) for link, groups in chain if not self._files.in_memory(link)
        )

    def _links(self, layout: Layout, tokens: np.ndarray, identity: Identity, tenant: str) -> Iterator[Link]:
        secret = self._files.secret
        link = Link.root(secret, layout, identity, tenant)
        for i in range(len(tokens) // CHUNK):
            link = link.next(secret, tokens[i * CHUNK : (i + 1) * CHUNK])
            yield link

    def _stored_chain(
        self, layout: Layout, tokens: np.ndarray, identity: Identity, tenant: str
    ) -> list[tuple[Link, int]]:
        self._files.relist()
        chain = []
        alone = len(layout.groups) == 1  # then there is one set of groups, and no need to look into the file
        for link in self._links(layout, tokens, identity, tenant):
            known = self._files.in_memory(link) or self._files.size(link) is not None
            groups = (1 if known else None) if alone else self._files.parts(link)
            if groups is None:
                break
            chain.append((link, groups))
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
                        groups, payload = self._files.read(*chain[i])
                        if len(payload) != _payload_bytes(pool.layout, groups):
                            raise Damaged("it has not the length of its groups")
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

    # What it says of itself

    @property
    def used_bytes(self) -> int:
        """Bytes of the chunks that are known to be in the directory."""
        return self._files.used_bytes

    def counters(self) -> dict[str, int]:
        """Return sums since the cache was opened.

        lookups, hits, loaded_tokens, ram_hits, declined, written_chunks, evicted_chunks, skipped, no_room, damaged,
        failed_reads, failed_writes, no_pages.
        """
        return self._files.counters()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def _recurrent(layout: Layout) -> bool:
    """Whether positions are not all there is: the states of recurrent layers are not in chunks."""
    return any(group.kind == "state" for group in layout.groups)


def _payload_bytes(layout: Layout, groups: int) -> int:
    return sum(g.position_bytes * CHUNK for i, g in enumerate(layout.groups) if groups >> i & 1)
