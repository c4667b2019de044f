"""Computed prefixes that outlive the process: chunks on disk, stored once for all histories that share them."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np

from llamay_kv import arguments
from llamay_kv._kv import OutOfPagesError, hold_rows, token_ids
from llamay_kv.context import Context, Pool
from llamay_kv.identity import Identity
from llamay_kv.ids import known
from llamay_kv.layout import Group, Layout
from llamay_kv.snapshots.format import CHUNK, first_needed
from llamay_kv.storage.crypto import Key
from llamay_kv.storage.vfs import Vfs
from llamay_kv.tiers.chunk import DamagedError, Link
from llamay_kv.tiers.chunk_files import ChunkFiles

_NOBODY = Identity()
_FORGIVE = 0.9
"""Factor for the measured seconds per byte after a declined load, so that the disk is tried again some time."""


class DiskCache:
    """Chunks of 64 positions in a directory, keyed by everything that leads to them.

    Args:
        directory: created if need be. Several processes may use it at once.
        budget_bytes: the most bytes that the files of all identities together take. The least recently used are evicted
            first.
        key: encrypts the chunks. Without one the directory gets a random secret of its own, in a file that its owner
            alone can read: chunks are then authenticated, and no more confidential than the directory.
        min_free_bytes: nothing is written that would leave less room on the file system.
        ram_bytes: keep so many bytes of decrypted chunks in memory; 0 for none.
        queue_contexts: how many contexts may wait to be written. While so many wait, `save` skips.
        durable: whether `flush` returns only when saved chunks would survive a loss of power. Without it writing is
            two to three times as fast, and chunks that a loss of power tears are detected and computed again.
        vfs: where files live.

    Reading never raises because of a file: a chunk that is missing, damaged or not authentic is computed again.
    Failures are counted.

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
        waiting = arguments.whole("queue_contexts", queue_contexts, 1)
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
        self._queue: queue.Queue[tuple[Context, Identity, str] | None] = queue.Queue(waiting)
        self._closed = False
        self._closing = threading.Lock()  # no save comes after the end of the queue
        self._writer = threading.Thread(target=self._write_all, name="llamay-kv disk cache", daemon=True)
        self._writer.start()

    # Saving

    def save(self, context: Context, *, identity: Identity = _NOBODY, tenant: str = "") -> bool:
        """Have the context's whole chunks written in the background; return False if that is skipped.

        Takes microseconds: call it when the answer is out. The context may go on at once; the writer has a fork of it.
        Of a context with recurrent groups the chunks are written up to the last one that ends where there is a state:
        the end of the context or a checkpoint. A layout without groups has no chunks.
        """
        arguments.instance("context", context, Context)
        arguments.instance("identity", identity, Identity)
        arguments.text("tenant", tenant)
        if self._closed or not self._writer.is_alive() or not context.pool.layout.groups:
            return False
        frozen = context.fork()
        try:
            with self._closing:
                if not self._closed:
                    self._queue.put_nowait((frozen, identity, tenant))
                    return True
        except queue.Full:
            self._files.count("skipped")
        frozen.close()
        return False

    def flush(self) -> None:
        """Return when all saves are on disk, or were given up."""
        done = self._queue.all_tasks_done
        with done:
            while self._queue.unfinished_tasks and self._writer.is_alive():  # a forked process has no writer
                done.wait(1.0)

    def close(self) -> None:
        """Finish the waiting saves, and stop."""
        with self._closing:
            self._closed = True
        while self._writer.is_alive():
            with contextlib.suppress(queue.Full):
                self._queue.put(None, timeout=1.0)
                self._writer.join()

    def _write_all(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                self._write_and_close(*item)
            except BaseException:  # whatever the file system raises: nobody else writes, and `flush` waits
                self._files.count("failed_writes")  # a cache that cannot write is a cache that misses
            finally:
                self._queue.task_done()
        self._queue.task_done()

    def _write_and_close(self, context: Context, identity: Identity, tenant: str) -> None:
        try:
            self._write(context, identity, tenant)
        finally:
            context.close()

    def _write(self, context: Context, identity: Identity, tenant: str) -> None:
        tokens = known(np.array(context.tokens, np.int32))
        links = list(self._links(context.pool.layout, tokens, identity, tenant))
        self._files.write(self._missing(context, links))
        for link in reversed(links):  # so that a chunk is evicted before the chunks that it needs
            self._files.touch(link)

    def _missing(self, context: Context, links: list[Link]) -> Iterator[tuple[Link, int, memoryview]]:
        pool, first = context.pool, context.first_positions()
        states = {*context.checkpoints, len(context)}
        if _states(pool.layout):  # chunks after the last one that ends at a state could not be used
            del links[max((n // CHUNK for n in states if n % CHUNK == 0), default=0) :]
        for i, link in enumerate(links):
            begin, end = i * CHUNK, (i + 1) * CHUNK
            mine = sum(
                1 << g
                for g, group in enumerate(pool.layout.groups)
                if (end in states if group.kind == "state" else first[g] <= begin)
            )
            have = self._stored_parts(pool.layout, link)
            if have is not None and not mine & ~have:
                continue
            theirs: dict[int, memoryview] = {}
            if have is not None and have & ~mine:
                # The file and the context each have a part that the other lacks: a state, or a window.
                with contextlib.suppress(DamagedError):
                    theirs = _split(pool.layout, *self._files.read(link))
            parts = mine | sum(1 << g for g in theirs if not mine >> g & 1)
            payload = np.empty(_payload_bytes(pool.layout, parts), np.uint8)
            for g, out in _split(pool.layout, parts, payload.data).items():
                if not mine >> g & 1:
                    out[:] = theirs[g]
                elif pool.layout.groups[g].kind == "state":
                    out[:] = context.pack_state(g, end)
                else:
                    context.pack_into(g, begin, end, np.frombuffer(out, np.uint8))
            yield link, parts, payload.data

    def _stored_parts(self, layout: Layout, link: Link) -> int | None:
        """Return which groups the file of a chunk has, opening it only where its size does not tell."""
        if (size := self._files.size(link)) is None:
            return None
        sets = [s for s in _sets(layout) if _payload_bytes(layout, s) == size]
        return sets[0] if len(sets) == 1 else self._files.parts(link)

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
            pool: the pool of the new context.
            tokens: the tokens of the prompt.
            identity: the identity of the prefix.
            tenant: the owner of the prefix.
            onto: a context that has a prefix of the tokens already, from the prefix tree for instance. It is
                returned unchanged unless the disk has more; otherwise the result shares its pages.
            seconds_per_token: the time that computing a token takes. A load that would take longer, judged by the
                speed of earlier loads, is declined. Chunks in the memory tier cost nothing.

        """
        arguments.instance("pool", pool, Pool)
        arguments.instance("identity", identity, Identity)
        arguments.text("tenant", tenant)
        arguments.optional("onto", onto, Context)
        if seconds_per_token is not None:
            seconds_per_token = arguments.seconds("seconds_per_token", seconds_per_token)
        ids = known(token_ids(tokens))
        _held = hold_rows(ids)  # the caller may let go of them meanwhile
        have = 0 if onto is None else len(onto)
        layout = pool.layout
        chain = self._stored_chain(layout, ids, identity, tenant)
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
            except OutOfPagesError:
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
            before = self._seconds_per_byte
            self._seconds_per_byte = 0.7 * before + 0.3 * rate if before else rate

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
        chain, everything = [], (1 << len(layout.groups)) - 1
        # Where a chunk always has every group there is no need to look into the file.
        alone = all(group.kind not in ("window", "state") for group in layout.groups)
        for link in self._links(layout, tokens, identity, tenant):
            known = self._files.in_memory(link) or self._files.size(link) is not None
            groups = (everything if known else None) if alone else self._files.parts(link)
            if groups is None:
                break
            chain.append((link, groups))
        return chain

    def _usable(self, layout: Layout, chain: list[tuple[Link, int]]) -> int:
        """Return how many chunks from the start can be used: windows whole, recurrent groups with a state."""
        runs = [0] * len(layout.groups)  # up to where positions are missing
        states = _states(layout)
        best = 0
        for i, (_, groups) in enumerate(chain):
            n = (i + 1) * CHUNK
            for g in range(len(layout.groups)):
                if not (groups | states) >> g & 1:
                    runs[g] = n
            if groups & states == states and all(
                runs[g] <= first_needed(group, n) for g, group in enumerate(layout.groups)
            ):
                best = i + 1
        return best

    def _fill(
        self, pool: Pool, tokens: np.ndarray, chain: list[tuple[Link, int]], onto: Context | None
    ) -> Context | int:
        """Return the context, or the index of the chunk that could not be read."""
        layout, n = pool.layout, len(chain) * CHUNK
        context, start = self._base(pool, onto, chain)
        states = _states(layout)
        at = [
            (i + 1) * CHUNK - start
            for i in range(start // CHUNK, len(chain))
            if states and chain[i][1] & states == states
        ]
        try:
            needed = [first_needed(group, n) // CHUNK * CHUNK for group in layout.groups]
            with context.reserve(n - start, None if start else needed, states=at or None) as lease:
                for i in range(start // CHUNK, len(chain)):
                    begin, end = i * CHUNK, (i + 1) * CHUNK
                    try:
                        groups, payload = self._files.read(*chain[i])
                        if len(payload) != _payload_bytes(layout, groups):
                            raise DamagedError("it has not the length of its groups")
                    except DamagedError:
                        context.close()
                        return i
                    for g, part in _split(layout, groups, payload).items():
                        data = np.frombuffer(part, np.uint8)
                        if states >> g & 1:
                            if end - start in at:
                                lease.unpack_state(g, end - start, data)
                        elif start or begin >= needed[g]:  # behind a window there is no page
                            lease.unpack_from(g, begin, end, data)
                lease.commit(tokens[start:n], checkpoints=True)
            context.checkpoint()  # where the disk has a state others will branch as well
        except BaseException:
            context.close()
            raise
        return context

    @staticmethod
    def _base(pool: Pool, onto: Context | None, chain: list[tuple[Link, int]]) -> tuple[Context, int]:
        """Return the context that the chunks are appended to, and its length."""
        states = _states(pool.layout)
        start = 0
        if onto is not None:
            ends = (*onto.checkpoints, len(onto)) if states else (len(onto) // CHUNK * CHUNK,)
            start = max((n for n in ends if n % CHUNK == 0), default=0)
        everything = (1 << len(pool.layout.groups)) - 1
        # Behind a window chunks may lack a group. Only a context without tokens can have such a gap.
        gap = any(groups | states != everything for _, groups in chain[start // CHUNK :])
        if onto is None or start == 0 or gap:
            return pool.context(), 0
        context = onto.fork()
        try:
            context.truncate(start)
        except ValueError:  # its window has gone on
            context.close()
            return pool.context(), 0
        return context, start

    # Sizes and counters

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


def _states(layout: Layout) -> int:
    """Return the set of the recurrent groups: a chunk has their states after its last position, or not."""
    return sum(1 << g for g, group in enumerate(layout.groups) if group.kind == "state")


def _sets(layout: Layout) -> Iterator[int]:
    """Return the sets of groups that a chunk may have. Few: it is the missing windows that are one or the other."""
    loose = [g for g, group in enumerate(layout.groups) if group.kind in ("window", "state")]
    always = (1 << len(layout.groups)) - 1 - sum(1 << g for g in loose)
    for chosen in itertools.product((0, 1), repeat=len(loose)):
        yield always | sum(bit << g for bit, g in zip(chosen, loose, strict=True))


def _payload_bytes(layout: Layout, groups: int) -> int:
    return sum(_part_bytes(g) for i, g in enumerate(layout.groups) if groups >> i & 1)


def _part_bytes(group: Group) -> int:
    """Bytes of a group in a chunk: of its positions, or of one state."""
    return group.state_bytes if group.kind == "state" else group.position_bytes * CHUNK


def _split(layout: Layout, groups: int, payload: memoryview) -> dict[int, memoryview]:
    """Return the parts of a payload by group."""
    parts, at = {}, 0
    for g, group in enumerate(layout.groups):
        if groups >> g & 1:
            parts[g] = payload[at : at + _part_bytes(group)]
            at += _part_bytes(group)
    return parts
