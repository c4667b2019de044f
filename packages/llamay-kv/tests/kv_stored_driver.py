"""The lockstep driver with persistent state: snapshots and the disk cache, in files and in an object store.

A snapshot is a full copy made when it was saved; in less precision, the copy goes through the reference conversions.
The cache is a table by file name of the contexts that chunks were last written from. A chunk was written if its nonce
is another than before, so that the reference need not know which chunks an eviction takes; and where several contexts
have the same tokens and other values (`overwrite`), it is known exactly whose values come back.

    python packages/llamay-kv/tests/kv_stored_driver.py 100 200    # seeds, operations; every configuration
"""

from __future__ import annotations

import hmac
import itertools
import random
import sys
import tempfile
import time
from dataclasses import dataclass

import numpy as np
from kv_driver import (
    LONG_MIXES,
    MEMORIES,
    MIXES,
    PAGE_TOKENS,
    PRECISIONS,
    Config,
    Driver,
    FullCopy,
    described,
)
from kv_precision import ROUND_TRIP

from llamay_kv import UNKNOWN_TOKEN, DiskCache, Identity, Key, LocalVfs, ObjectVfs, OutOfPagesError, Pool
from llamay_kv.tiers.chunk import HEAD, NONCE, OVERHEAD, Link

CHUNK = 64
KEY = Key("k", b"k" * 32)
WHO = ((Identity(weights=b"us"), ""), (Identity(weights=b"us"), "alice"), (Identity(weights=b"them"), ""))
STORES = ("files", "objects")
CONFIGS = [
    (Config(*values), STORES[(i + i // 2) % 2])
    for i, values in enumerate(itertools.product([*MIXES, *LONG_MIXES], PRECISIONS, MEMORIES, PAGE_TOKENS))
]


@dataclass
class Saved:
    """A snapshot: the context it was made from, and the options."""

    full: FullCopy
    identity: Identity
    key: Key | None
    precision: str | None


class StoredDriver(Driver):
    OPERATIONS = (
        [*Driver.OPERATIONS] + ["append", "keep", "load"] * 7 + ["snapshot", "restore"] * 2 + ["reopen"]
    )
    LENGTHS = (*Driver.LENGTHS, *[64, 64, 128, 130] * 3)

    def _asked(self, before, n):
        """Often where a chunk ends, for there the cache can have a state."""
        asked = super()._asked(before, n)
        ends = [i for i in range(1, n + 1) if (before + i) % CHUNK == 0]
        return sorted({*(asked or ()), *ends}) if ends and self.rng.random() < 0.5 else asked

    def __init__(self, config: Config, store: str, folder: str, pages: int, seed: int) -> None:
        super().__init__(config, folder, pages, seed)
        self.root, self.vfs = folder, LocalVfs()
        if store == "objects":
            from obstore.store import MemoryStore

            self.root, self.vfs = (
                "root",
                ObjectVfs(MemoryStore(), buffer_bytes=self.rng.choice((100, 1 << 20))),
            )
        self.vfs.make_directory(f"{self.root}/snapshots")
        whole = CHUNK * self.layout.position_bytes + sum(g.state_bytes for g in self.layout.groups) + OVERHEAD
        self.budget = self.rng.choice((1 << 30, self.rng.randint(1, 14) * whole))
        self.ram = self.rng.choice((0, 0, 3 * whole, 1 << 30))
        self.other_most, checkpoint_bytes = self._checkpoints()
        self.other = Pool(
            self.layout, 80 - self.P, pages=200, checkpoint_bytes=checkpoint_bytes
        )  # other pages
        self.snapshots: dict[str, Saved] = {}
        self.chunks: dict[str, dict[int, dict]] = {}
        self.histories: list[tuple] = []
        self.cache = self.open()

    def open(self):
        return DiskCache(
            f"{self.root}/chunks",
            budget_bytes=self.budget,
            key=KEY,
            min_free_bytes=0,
            ram_bytes=self.ram,
            durable=False,
            vfs=self.vfs,
        )

    # Snapshots

    def snapshot(self, context, full):
        path = f"{self.root}/snapshots/{self.rng.randrange(4)}"
        wide = self.config.precision in ("f32", "f16")
        precision = self.rng.choice((None, *PRECISIONS)) if wide else None
        key, (identity, _) = self.rng.choice((None, KEY)), self.rng.choice(WHO)
        try:
            manifest = context.save(
                path, identity=identity, key=key, precision=precision, durable=False, vfs=self.vfs
            )
        except OutOfPagesError:
            assert self.config.memory == "spill", "to save takes no page"
            return  # and an older snapshot under this name is still there
        if manifest.computed is not None:
            identity = identity.stored_as(precision)
        else:
            precision = None
        self.snapshots[path] = Saved(full.fork(), identity, key, precision)

    def restore(self, context, full):
        if not self.snapshots:
            return
        path = self.rng.choice(list(self.snapshots))
        saved = self.snapshots[path]
        pool = self.rng.choice((self.pool, self.pool, self.other))
        used = pool.used_bytes
        try:
            restored = pool.restore(path, identity=saved.identity, keys=saved.key, vfs=self.vfs)
        except OutOfPagesError:
            assert pool is self.pool
            assert self.config.memory == "spill" or pool.used_bytes == used
            return
        self.adopt(pool, restored, self.restored(saved, pool))

    def restored(self, saved: Saved, pool: Pool) -> FullCopy:
        full = saved.full.fork()
        n = len(full.tokens)
        full.most_kept = self.other_most if pool is self.other else self.most_kept
        stride = max(group.stride for group in self.layout.groups)
        if not stride or n % stride:  # then the checkpoints before the end are committed, and thinned, first
            last = full.kept.pop(n, None)
            full.thin()
            if last is not None:
                full.checkpoint()
        full.thin()
        full.first = [first_needed(group, n) for group in self.layout.groups]
        full.known = None
        for group in self.layout.groups:
            if group.kind == "state" or saved.precision is None:
                continue
            stored = "f16" if group.kind == "latent" and saved.precision == "vq8" else saved.precision
            if PRECISIONS.index(stored) <= PRECISIONS.index(group.precision):
                continue
            for layer in group.layers:
                if layer.index in full.rows:
                    full.rows[layer.index] = tuple(
                        back(narrow(x)) if x.shape[2] else x
                        for back, narrow, x in zip(
                            ROUND_TRIP[group.precision],
                            ROUND_TRIP[stored],
                            full.rows[layer.index],
                            strict=True,
                        )
                    )
        return full

    def adopt(self, pool, context, full):
        """Go on with a context of the driver's pool; compare and close one of the other pool."""
        if pool is self.pool:
            self._track(context, full)
            return
        assert context.tokens == full.tokens
        assert context.first_positions() == full.first
        assert context.checkpoints == sorted(full.kept)
        assert context.side == full.side
        assert context.checksum() == full.checksum()
        context.close()
        pool.audit()
        assert pool.used_bytes == 0

    # The disk cache

    def heads(self) -> dict[str, tuple[int, bytes]]:
        """Of each file its set of groups and its nonce."""
        found, total = {}, 0
        for listed in self.vfs.list(f"{self.root}/chunks"):
            with self.vfs.open(f"{self.root}/chunks/{listed.name}") as file:
                data = bytearray(HEAD.size + NONCE)
                file.read_into([memoryview(data)], 0)
            found[listed.name] = HEAD.unpack(data[: HEAD.size])[2], bytes(data[HEAD.size :])
            total += listed.size
        assert total == self.cache.used_bytes
        return found

    def links(self, tokens, identity, tenant):
        link = Link.root(KEY.secret, self.layout, identity, tenant)
        told = tokens[: tokens.index(UNKNOWN_TOKEN)] if UNKNOWN_TOKEN in tokens else tokens
        for i in range(len(told) // CHUNK):
            parts = described(told[i * CHUNK : (i + 1) * CHUNK])
            link = Link(hmac.digest(KEY.secret, b"".join((link.digest, *parts)), "sha256"))
            yield link

    def keep(self, context, full):
        identity, tenant = self.rng.choice((*[WHO[0]] * 5, *WHO))
        before, counted = self.heads(), self.cache.counters()
        assert self.cache.save(context, identity=identity, tenant=tenant)
        self.cache.flush()
        after, counts = self.heads(), self.cache.counters()
        assert self.cache.used_bytes <= self.budget
        if self.config.memory != "spill":
            assert "failed_writes" not in counts
        complete = all(
            counts.get(c) == counted.get(c) for c in ("evicted_chunks", "no_room", "failed_writes")
        )
        states = {**full.kept, **({} if full.present is None else {len(full.tokens): full.present})}
        kept = len(full.tokens)
        if any(group.kind == "state" for group in self.layout.groups):
            kept = max((end for end in states if end % CHUNK == 0), default=0)
        for i, link in enumerate(self.links(full.tokens[:kept], identity, tenant)):
            begin, end = i * CHUNK, (i + 1) * CHUNK
            mine = {}
            for g, group in enumerate(self.layout.groups):
                if group.kind == "state":
                    if end in states:
                        mine[g] = {layer.index: states[end][layer.index] for layer in group.layers}
                elif full.first[g] <= begin:
                    mine[g] = {
                        x.index: tuple(a[begin:end].copy() for a in full.rows[x.index]) for x in group.layers
                    }
            name = link.name
            if name in after and after[name] != before.get(name):
                had = self.chunks.get(name, {}) if name in before else {}
                parts = [g for g in range(len(self.layout.groups)) if after[name][0] >> g & 1]
                assert set(mine) <= set(parts)
                assert set(had) <= set(parts) or not complete, (
                    "a chunk that was written again has less than before"
                )
                self.chunks[name] = {g: mine[g] if g in mine else had[g] for g in parts}
            elif complete:
                assert name in after, "what was saved is not there"
                assert set(mine) <= set(self.chunks[name])
        if len(full.tokens) >= CHUNK:
            self.histories = [*self.histories[-7:], ([*full.tokens], (identity, tenant))]

    def load(self, context, full):
        wanted, (identity, tenant) = self._wanted(full)
        pool = self.rng.choice((self.pool, self.pool, self.other))
        onto = None if pool is self.other else self._onto(wanted)
        there = self.heads()
        chain = []
        for link in self.links(wanted, identity, tenant):
            if link.name not in there and not self.cache._files.in_memory(link):
                break
            chain.append(self.chunks[link.name])
        n = max((n for n in range(len(chain) + 1) if self.usable(chain[:n])), default=0)
        base = self.pairs[onto] if onto is not None else self._empty()
        if pool is self.other:
            base.most_kept = self.other_most
        only_in_memory = any(
            link.name not in there for link in self.links(wanted[: n * CHUNK], identity, tenant)
        )
        counted = self.cache.counters()
        loaded = self.cache.load(pool, wanted, identity=identity, tenant=tenant, onto=onto)
        counts = self.cache.counters()
        assert not {"damaged", "declined"} & set(counts)
        if counts.get("failed_reads") != counted.get("failed_reads"):
            # A chunk that an eviction had left in memory only was pushed out there by the chunks before it.
            assert only_in_memory
            assert self.ram < 1 << 30
            n = len(loaded) // CHUNK
            assert loaded is onto or self.usable(chain[:n])
        short = counts.get("no_pages") != counted.get("no_pages")
        assert not short or pool is self.pool
        if short or n * CHUNK <= len(base.tokens):
            if onto is None:
                assert len(loaded) == 0
                loaded.close()
            else:
                assert loaded is onto
            return
        self.adopt(
            pool, loaded, self.loaded(chain[:n], wanted, base, 80 - self.P if pool is self.other else self.P)
        )

    def _wanted(self, full):
        tokens, who = self.rng.choice([(full.tokens, WHO[0]), *self.histories])
        who = self.rng.choice((*[who] * 5, *WHO))
        cut = self.rng.choice((len(tokens), self.rng.randint(0, len(tokens))))
        return tokens[:cut] + [self.rng.randrange(1 << 20) for _ in range(self.rng.choice((0, 1, 70)))], who

    def _onto(self, wanted):
        """A context that has a prefix of the wanted tokens; often one that was cut short for it."""
        fits = [c for c, full in self.pairs.items() if full.tokens == wanted[: len(full.tokens)]]
        longer = [c for c, full in self.pairs.items() if full.tokens[:CHUNK] == wanted[:CHUNK]]
        if longer and self.rng.random() < 0.6:
            context = self.rng.choice(longer)
            full = self.pairs[context].fork()
            common = next(
                (i for i, (a, b) in enumerate(zip(full.tokens, wanted, strict=False)) if a != b),
                min(len(full.tokens), len(wanted)),
            )
            n = self.rng.choice([x for x in full.kept if x <= common] + [self.rng.randint(0, common)])
            if full.may_truncate(n):
                fork = context.fork()
                fork.truncate(n)
                full.truncate(n, self.P)
                self._track(fork, full)
                return fork
        return self.rng.choice([None, *fits])

    def usable(self, chain) -> bool:
        """Whether a context can be had that ends where these chunks do."""
        n = len(chain) * CHUNK
        return n == 0 or all(
            g in chain[-1]
            if group.kind == "state"
            else all(g in chunk for i, chunk in enumerate(chain) if (i + 1) * CHUNK > first_needed(group, n))
            for g, group in enumerate(self.layout.groups)
        )

    def loaded(self, chain, tokens, base, page_tokens) -> FullCopy:
        """The loaded context: as much of the base as can be shared, and the chunks after it."""
        n = len(chain) * CHUNK
        recurrent = [g for g, group in enumerate(self.layout.groups) if group.kind == "state"]
        placed = [g for g, group in enumerate(self.layout.groups) if group.kind != "state"]
        have = len(base.tokens)
        ends = (*base.kept, have) if recurrent else (have // CHUNK * CHUNK,)
        start = max(end for end in (*ends, 0) if end % CHUNK == 0)
        if any(g not in chunk for chunk in chain[start // CHUNK :] for g in placed) or not base.may_truncate(
            start
        ):
            start = 0
        full = base.fork() if start else FullCopy(self.layout, most_kept=base.most_kept)
        full.truncate(start, page_tokens)
        if not start:
            full.first = [first_needed(group, n) // CHUNK * CHUNK for group in self.layout.groups]
        part = chain[start // CHUNK :]
        rows = {
            layer.index: tuple(
                np.concatenate(
                    [
                        c[g][layer.index][j]
                        if g in c
                        else np.zeros((CHUNK, layer.kv_heads, (layer.k_dim, layer.v_dim)[j]), "f4")
                        for c in part
                    ]
                )
                for j in (0, 1)
            )
            for g in placed
            for layer in self.layout.groups[g].layers
        }
        states = {
            start + (i + 1) * CHUNK: {index: pair for g in recurrent for index, pair in c[g].items()}
            for i, c in enumerate(part)
            if recurrent and all(g in c for g in recurrent)
        }
        full.append(tokens[start:n], rows, states, page_tokens, checkpoints=True)
        full.checkpoint()
        return full

    def reopen(self, context, full):
        self.cache.close()
        self.cache = self.open()

    def finish(self) -> None:
        self.cache.close()
        super().finish()
        assert self.other.used_bytes == 0


def first_needed(group, n):
    return max(0, n + 1 - group.window) if group.kind == "window" and n else 0


def run(config: Config, store: str, seed: int, steps: int) -> None:
    rng = random.Random(f"{config} {store} {seed}")
    with tempfile.TemporaryDirectory() as folder:
        pages = rng.randint(8, 120) if config.page_tokens == 16 else rng.randint(4, 50)
        driver = StoredDriver(config, store, folder, pages, rng.getrandbits(32))
        try:
            for _ in range(steps):
                driver.step()
            driver.finish()
        except BaseException as error:
            error.add_note(f"{config}, {store}, seed {seed}, step {driver.steps}")
            raise
        finally:
            driver.cache.close()


def main() -> None:
    """The long run: so many seeds, operations, and the first seed. Stores alternate from seed to seed."""
    seeds, steps, first = (int(n) for n in [*sys.argv[1:], 0][:3])
    for seed in range(first, first + seeds):
        for config, store in CONFIGS:
            run(config, STORES[(STORES.index(store) + seed) % 2], seed, steps)
        print(
            f"{seed - first + 1} seeds x {steps} operations x {len(CONFIGS)} configurations held,",
            f"{time.process_time():.0f} s of one core",
            flush=True,
        )


if __name__ == "__main__":
    main()
