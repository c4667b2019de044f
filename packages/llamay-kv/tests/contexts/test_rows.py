"""Rows that are not tokens: known by digest and index, never taken for a token or for another row."""

import gc
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kv_driver import ROWS, described
from kv_filled import check, fill

from llamay_kv import (
    UNKNOWN_TOKEN,
    CacheFolder,
    DiskCache,
    Group,
    Key,
    Layer,
    Layout,
    Pool,
    PrefixTree,
    SnapshotError,
    diff,
    inspect,
    rekey,
    stored_tokens,
    verify,
)
from llamay_kv._kv import crc64, describe_ids, resolve_ids
from llamay_kv.snapshots.format import HEADER, MAGIC

LAYOUT = Layout([Group.full([Layer(0, 1, 2, 2)], "f32")])
CAT, DOG = hashlib.sha256(b"a cat").digest(), hashlib.sha256(b"a dog").digest()
KEY = Key("k", b"k" * 32)


@pytest.fixture
def pool():
    return Pool(LAYOUT, 16, pages=200)


def named(rows):
    ROWS.update({row: (rows.digest, i) for i, row in enumerate(rows)})
    return list(rows)


def test_a_row_has_one_id_and_an_id_one_row(pool):
    cat, dog = pool.rows(CAT, 5), pool.rows(DOG, 3)
    assert isinstance(cat, Sequence)
    assert len({*cat, *dog}) == 8
    assert max(*cat, *dog) < UNKNOWN_TOKEN
    assert (len(cat), cat[-1], cat[1:4], cat[::-2]) == (
        5,
        list(cat)[4],
        list(cat)[1:4],
        [cat[4], cat[2], cat[0]],
    )
    longer = pool.rows(CAT, 9)
    assert list(longer)[:5] == list(cat), "more rows of the same"
    assert list(Pool(LAYOUT, 64, pages=1).rows(DOG, 3)) == list(dog), "in every pool"
    for rows in (longer, dog):
        assert [pool.digest_of(row) for row in rows] == [(rows.digest, i) for i in range(len(rows))]
    for other in (0, 7, UNKNOWN_TOKEN, -(1 << 31), 1 << 40):
        assert pool.digest_of(other) is None
    with pytest.raises(IndexError, match="there are 3 rows"):
        dog[3]


def test_what_is_no_digest_and_no_number_of_rows_is_refused(pool):
    with pytest.raises(ValueError, match="a digest has 32 bytes, not 31"):
        pool.rows(CAT[1:], 1)
    for n in (0, -1, 1 << 31):
        with pytest.raises(ValueError, match="n must be from 1 to"):
            pool.rows(CAT, n)


def test_rows_go_with_whoever_holds_them(pool):
    rows = pool.rows(CAT, 40)
    ids = list(rows)
    there = lambda: pool.digest_of(ids[7]) is not None  # noqa: E731
    context = pool.context()
    context.extend([1, *ids, 2], values(42))
    fork = context.fork()
    del rows
    context.close()
    assert there()
    tree = PrefixTree(pool, pool.budget_bytes)
    tree.insert(fork)
    fork.close()
    assert len(tree.match([1, *ids])) == 41
    found = tree.match([1, *ids, 9])
    tree.clear()
    assert there()
    found.truncate(41)
    found.extend([5], values(1))
    assert there()
    fork = found.fork()
    found.truncate(1)
    assert there()
    fork.close()
    found.truncate(1)
    found.extend([5], values(1))
    assert not there(), "the last who had it has cut it off"
    assert pool.digest_of(ids[0]) is None
    again = pool.rows(CAT, 40)
    assert not {*again} & {*ids}, "an id that is given back waits before it means something else"


def values(n):
    return {0: (np.zeros((n, 1, 2), "f4"), np.zeros((n, 1, 2), "f4"))}


def test_ids_that_are_nothing_are_not_committed(pool):
    gone = list(pool.rows(CAT, 3))
    for wrong in ([1, gone[0]], [-(1 << 31)], [gone[2]] * 3):
        context = pool.context()
        with context.reserve(3) as lease:
            with pytest.raises(ValueError, match="is neither a token nor a row that is held"):
                lease.commit(wrong)
            assert lease.open
            lease.commit([1, UNKNOWN_TOKEN, 2])
        assert context.tokens == [1, UNKNOWN_TOKEN, 2]


def test_a_sequence_of_rows_is_committed_as_it_is(pool):
    rows = pool.rows(CAT, 3)
    context = pool.context()
    context.extend(rows, values(3))
    context.extend(np.array([*rows, 4], np.int32), values(4))
    assert context.tokens == [*rows, *rows, 4]


def test_all_ids_can_be_given_out_and_given_back(pool):
    most = (1 << 31) - 2
    gc.collect()
    held = [pool.rows(bytes([i]) * 32, most // 4) for i in range(100, 103)]
    with pytest.raises(ValueError, match="there are no ids left for 536870911 rows"):
        [pool.rows(bytes([i]) * 32, most // 4) for i in range(103, 105)]
    assert pool.digest_of(held[1][most // 4 - 1]) == (bytes([101]) * 32, most // 4 - 1)
    first = held[1][0]
    del held[1]
    again = pool.rows(bytes([110]) * 32, most // 4)
    assert again[0] == first, "where there is no other room, what was given back comes again"
    spans = sorted((rows[-1], rows[0]) for rows in (*held, again))
    assert all(a[1] < b[0] for a, b in pairwise(spans))
    assert spans[0][0] >= -(1 << 31)
    assert spans[-1][1] <= -2


class Interning(RuleBasedStateMachine):
    """The table beside a dictionary, and a list of the holders of each id."""

    @initialize()
    def first(self):
        self.pool = Pool(LAYOUT, 16, pages=100)
        self.ids = {}  # digest and index -> id, of the rows that have a holder
        self.handles, self.contexts = [], []

    digests = st.sampled_from([CAT, DOG, b"0" * 32, b"0" * 31 + b"1"])

    def _have(self):
        had = {row for _, tokens in self.contexts for row in tokens if row < -1}
        digests = {d for (d, _), row in self.ids.items() if row in had} | {r.digest for r in self.handles}
        self.ids = {row: n for row, n in self.ids.items() if row[0] in digests}
        return digests

    @rule(digest=digests, n=st.integers(1, 60))
    def intern(self, digest, n):
        rows = self.pool.rows(digest, n)
        self.handles.append(rows)
        for i, n in enumerate(rows):
            assert self.ids.setdefault((digest, i), n) == n

    @rule(data=st.data())
    def let_go(self, data):
        if self.handles:
            self.handles.pop(data.draw(st.integers(0, len(self.handles) - 1)))
            self._have()

    @rule(data=st.data())
    def commit(self, data):
        if not self.handles:
            return
        rows = data.draw(st.sampled_from(self.handles))
        begin = data.draw(st.integers(0, len(rows) - 1))
        tokens = [*rows[begin : begin + 20], 3]
        if not self.contexts or data.draw(st.booleans()):
            self.contexts.append((self.pool.context(), []))
        i = data.draw(st.integers(0, len(self.contexts) - 1))
        context, had = self.contexts[i]
        context.extend(tokens, values(len(tokens)))
        self.contexts[i] = context, had + tokens

    @rule(data=st.data())
    def cut(self, data):
        if not self.contexts:
            return
        i = data.draw(st.integers(0, len(self.contexts) - 1))
        context, tokens = self.contexts[i]
        n = data.draw(st.integers(0, len(tokens)))
        context.truncate(n)
        self.contexts[i] = context, tokens[:n]
        self._have()

    @rule(data=st.data())
    def close(self, data):
        if self.contexts:
            self.contexts.pop(data.draw(st.integers(0, len(self.contexts) - 1)))[0].close()
            self._have()

    @invariant()
    def every_id_means_its_row(self):
        if not hasattr(self, "pool"):
            return
        for row, n in self.ids.items():
            assert self.pool.digest_of(n) == row
        for context, tokens in self.contexts:
            assert context.tokens == tokens

    @rule()
    def nothing_else_is_held(self):
        for digest in {CAT, DOG} - self._have():
            assert not [n for n in range(-400, -1) if (self.pool.digest_of(n) or (0,))[0] == digest]

    def teardown(self):
        for context, _ in getattr(self, "contexts", ()):
            context.close()


TestInterning = Interning.TestCase
TestInterning.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_a_tree_never_takes_one_picture_for_another(pool):
    tree = PrefixTree(pool, pool.budget_bytes)
    cat, dog = pool.rows(CAT, 40), pool.rows(DOG, 40)
    tree.insert(fill(pool.context(), [1, 2, *cat, 3]))
    assert len(tree.match([1, 2, *cat, 3])) == 43
    assert len(tree.match([1, 2, *dog, 3])) == 2
    assert len(tree.match([1, 2, *cat[1:], 3])) == 2, "the same picture from its second row on is other rows"
    miss = tree.explain_miss([1, 2, *cat[:10], dog[10]])
    assert (miss.equal, miss.wanted, miss.stored) == (12, dog[10], cat[10])
    tree.insert(fill(pool.context(), [1, 2, *dog, 3]))
    for picture in (cat, dog):
        check(tree.match([1, 2, *picture, 3, 4]), [1, 2, *picture, 3])


def test_what_nobody_told_is_found_by_nobody(pool, tmp_path):
    tree = PrefixTree(pool, pool.budget_bytes)
    tokens = [*range(70), UNKNOWN_TOKEN, *range(100)]
    context = fill(pool.context(), tokens)
    assert tree.insert(context) == 70
    for _ in range(2):
        check(tree.match(tokens), tokens[:70])
        assert tree.explain_miss(tokens).equal == 70
        assert len(tree.match([UNKNOWN_TOKEN] * 3)) == 0
        tree.insert(fill(pool.context(), [UNKNOWN_TOKEN] * 3))
    with DiskCache(tmp_path, budget_bytes=1 << 30, min_free_bytes=0) as cache:
        cache.save(context)
        cache.flush()
        assert cache.counters()["written_chunks"] == 1
        check(cache.load(pool, tokens), tokens[:64])


def test_a_description_of_ids_is_the_same_whatever_they_are_here(pool):
    cat, dog = pool.rows(CAT, 9), pool.rows(DOG, 9)
    tokens = [5, *dog[3:5], 6, *cat, *dog[3:8], UNKNOWN_TOKEN, cat[0], *cat[7:]]
    named(cat)
    named(dog)
    stored, table = describe_ids(tokens)
    assert (stored.tobytes(), table) == described(tokens)
    assert len(table) == 3 * 40, "two runs of the dog and one of the cat"
    here, held = resolve_ids(stored, table)
    assert here.tolist() == tokens
    del held
    assert describe_ids(here)[1] == table


TABLES = {
    "is not made of whole entries": lambda ids, table: (ids, table[:-1]),
    "lacks a row that is listed": lambda ids, table: (ids, b""),
    "has an entry that no list of ids has": lambda ids, table: (ids, table[:36] + b"\0\0\0\0"),
    "is not in the form that its ids have": lambda ids, table: (ids[::-1], table),
}
EXTREMES = {
    "too many rows": lambda ids, table: (ids, table[:36] + b"\xff" * 4),
    "an index out of range": lambda ids, table: (ids, table[:32] + b"\xff" * 4 + table[36:]),
    "an index that leaves no room": lambda ids, table: (ids, table[:32] + b"\xff\xff\xff\x7f" + table[36:]),
    "a row twice": lambda ids, table: (ids, table + table),
    "an unused row": lambda ids, table: (ids[:2], table),
    "split runs": lambda ids, table: (
        ids,
        table[:36] + b"\1\0\0\0" + table[:32] + b"\1\0\0\0" + b"\2\0\0\0",
    ),
    "an id below all": lambda ids, table: ([-(1 << 31), *ids], table),
}


@pytest.mark.parametrize("name", [*TABLES, *EXTREMES])
def test_tables_that_do_not_fit_are_refused(pool, name):
    cat = pool.rows(CAT, 3)
    ids, table = describe_ids([1, *cat, 2])
    ids, table = {**TABLES, **EXTREMES}[name](ids.tolist(), table)
    with pytest.raises(ValueError, match=name if name in TABLES else "the table of rows"):
        resolve_ids(ids, table)


def picture_context(pool):
    cat, dog = pool.rows(CAT, 30), pool.rows(DOG, 70)
    tokens = [1, 2, *cat, 3, *dog, *cat[:5], 4]
    return fill(pool.context(), tokens), [*cat], [*dog]


@pytest.mark.parametrize("key", [None, KEY])
def test_a_snapshot_has_its_rows(pool, tmp_path, key):
    context, cat, dog = picture_context(pool)
    manifest = context.save(tmp_path / "s", key=key)
    assert manifest.rows == 2
    assert inspect(tmp_path / "s") == verify(tmp_path / "s", keys=key) == manifest
    restored = Pool(LAYOUT, 64, pages=20).restore(tmp_path / "s", keys=key)
    check(restored, context.tokens)
    assert restored.checksum() == context.checksum()
    local = [1, 2, *range(-2, -32, -1), 3, *range(-32, -102, -1), *range(-2, -7, -1), 4]
    assert stored_tokens(tmp_path / "s", keys=key) == local
    assert (CAT in (tmp_path / "s").read_bytes()) == (key is None), (
        "what was seen is as secret as what was said"
    )
    rekey(tmp_path / "s", None if key else KEY, keys=key)
    again = Pool(LAYOUT, 64, pages=20).restore(tmp_path / "s", keys=KEY)
    assert again.tokens == [1, 2, *cat, 3, *dog, *cat[:5], 4]


def test_the_same_rows_give_the_same_file_whatever_their_ids_are(pool, tmp_path):
    context, *_ = picture_context(pool)
    context.save(tmp_path / "a")
    old = context.tokens
    context.close()
    del _
    gc.collect()
    assert pool.digest_of(old[3]) is None
    between = pool.rows(b"something else".ljust(32), 1000)
    context, *_ = picture_context(pool)
    assert between[0] not in context.tokens
    assert context.tokens != old
    # The values of `fill` depend on the ids: the values of the first context are written.
    restored = pool.restore(tmp_path / "a")
    assert restored.tokens == context.tokens
    restored.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_files_without_rows_are_what_they_were(tmp_path):
    layout = Layout([Group.full([Layer(0, 1, 2, 2)], "f32"), Group.sliding(20, [Layer(1, 2, 3, 1)], "f16")])
    context = fill(Pool(layout, 16, pages=20).context(), range(100))
    context.save(tmp_path / "s", side={"sampler": (1, b"x")})
    digest = hashlib.sha256((tmp_path / "s").read_bytes()).hexdigest()
    assert digest == "a98fc9613809ef2e0225d4a558d9e386d535380dd9a416663ff28853eef0bb83"


def test_a_release_that_knows_no_rows_refuses_the_file(pool, tmp_path):
    """By the flag: it looks at nothing else."""
    picture_context(pool)[0].save(tmp_path / "s")
    head = (tmp_path / "s").read_bytes()[: HEADER.size]
    assert HEADER.unpack(head)[1:3] == (1, 2)


def test_every_damage_to_a_file_with_rows_is_refused(pool, tmp_path):
    cat = pool.rows(CAT, 3)
    context = fill(pool.context(), [1, *cat, 2])
    context.save(tmp_path / "s")
    good = (tmp_path / "s").read_bytes()
    fresh, parts = Pool(LAYOUT, 16, pages=2), set()
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= 1 << i % 8
        (tmp_path / "s").write_bytes(bad)
        with pytest.raises(SnapshotError) as caught:
            fresh.restore(tmp_path / "s")
        parts.add(caught.value.part)
    assert parts == {"header", "manifest", "tokens", "rows", "chunk 0 of group 0"}
    assert fresh.used_bytes == 0


def forged(path, change, flags=2):
    """A file whose checksums are right: `change` gets its manifest and the payloads of its ids and its table."""
    good = path.read_bytes()
    size = HEADER.unpack(good[: HEADER.size])[3]
    manifest = json.loads(good[HEADER.size : HEADER.size + size])
    at, n = HEADER.size + size, 4 * manifest["tokens"]
    ids, table = good[at : at + n], good[at + n + 8 : at + n + 8 + 40 * manifest["rows"]]
    rest = good[at + n + 16 + len(table) :]
    manifest, ids, table = change(manifest, ids, table)
    manifest["tokens_sha256"] = hashlib.sha256(ids + table).hexdigest()
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(text).digest()
    frames = []
    payloads = [(1, ids), *([(4, table)] if manifest.get("rows") else []), (3, rest[:-8])]
    for index, (kind, payload) in enumerate(payloads):
        place = digest + b"".join(n.to_bytes(4, "little") for n in (index, kind, 0))
        frames.append(payload + crc64(payload, crc64(place)).to_bytes(8, "little"))
    total = HEADER.size + len(text) + sum(map(len, frames))
    head = HEADER.pack(MAGIC, 1, flags, len(text), total, digest, 0)[:-8]
    path.write_bytes(head + crc64(head).to_bytes(8, "little") + text + b"".join(frames))


FORGERIES = {
    "nothing": (lambda m, ids, table: (m, ids, table), 2, None, None),
    "no flag": (lambda m, ids, table: (m, ids, table), 0, "header", "disagree about rows"),
    "no rows": (
        lambda m, ids, table: ({k: v for k, v in m.items() if k != "rows"}, ids, b""),
        0,
        "tokens",
        "lacks a row that is listed",
    ),
    "a flag too many": (
        lambda m, ids, table: ({k: v for k, v in m.items() if k != "rows"}, ids, b""),
        2,
        "header",
        "disagree about rows",
    ),
    "more rows than tokens": (
        lambda m, ids, table: ({**m, "rows": 6}, ids, table * 6),
        2,
        "manifest",
        "rows is not an integer from 1 to 5",
    ),
    "an entry twice": (
        lambda m, ids, table: ({**m, "rows": 2}, ids, table * 2),
        2,
        "rows",
        "the table of rows",
    ),
    "another numbering": (
        lambda m, ids, table: (m, ids[:4] + ids[8:12] + ids[4:8] + ids[12:], table),
        2,
        "rows",
        "not in the form",
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_tables_are_refused(pool, tmp_path, name):
    cat = pool.rows(CAT, 3)
    context = fill(pool.context(), [1, *cat, 2])
    context.save(tmp_path / "s")
    change, flags, part, message = FORGERIES[name]
    forged(tmp_path / "s", change, flags)
    fresh = Pool(LAYOUT, 16, pages=2)
    if part is None:
        assert fresh.restore(tmp_path / "s").tokens == context.tokens
        return
    for read in (fresh.restore, verify):
        with pytest.raises(SnapshotError, match=message) as caught:
            read(tmp_path / "s")
        assert caught.value.part == part
    assert fresh.used_bytes == 0


def test_two_files_differ_where_their_pictures_do(pool, tmp_path):
    cat, dog = pool.rows(CAT, 30), pool.rows(DOG, 30)
    for name, picture in (("cat", cat), ("dog", dog), ("both", [*cat[:10], *dog[10:]])):
        fill(pool.context(), [1, *picture, 2]).save(tmp_path / name)
    for a, b, common in (("cat", "dog", 1), ("cat", "both", 11), ("dog", "both", 1), ("cat", "cat", 32)):
        assert diff(tmp_path / a, tmp_path / b).tokens == (32, 32, common)


def test_chunks_of_different_pictures_have_different_names(pool, tmp_path):
    cat, dog = pool.rows(CAT, 100), pool.rows(DOG, 100)
    with DiskCache(tmp_path, budget_bytes=1 << 30, key=KEY, min_free_bytes=0) as cache:
        cache.save(fill(pool.context(), [1, *cat]))
        cache.flush()
        for n, tokens in (
            (64, [1, *cat]),
            (0, [1, *dog]),
            (0, [1, *cat[1:]]),
            (0, [1, *range(-2, -101, -1)][:1]),
        ):
            assert len(cache.load(pool, tokens)) == n
        folder = CacheFolder(tmp_path, key=KEY)
        assert folder.explain_miss(LAYOUT, [1, *cat]).stored == 64
        assert folder.explain_miss(LAYOUT, [1, *dog]).reason == "unknown"


OTHER = """
import sys
from llamay_kv import DiskCache, Pool
from test_rows import CAT, DOG, KEY, LAYOUT, check, fill, picture_context
pool = Pool(LAYOUT, 64, pages=50)
numbering = pool.rows(b"another numbering".ljust(32), int(sys.argv[2]))
with DiskCache(sys.argv[1] + "/cache", budget_bytes=1 << 30, key=KEY, min_free_bytes=0) as cache:
    if sys.argv[3] == "write":
        context = fill(pool.context(), range(109))  # values that do not depend on the numbering
        values = {0: context.read(0)}
        other, *_ = picture_context(pool)
        context = pool.context()
        context.extend(other.tokens, values)
        cache.save(context)
        context.save(sys.argv[1] + "/s")
    else:
        restored = pool.restore(sys.argv[1] + "/s")
        assert [pool.digest_of(row) for row in restored.tokens[2:32]] == [(CAT, i) for i in range(30)]
        assert [pool.digest_of(row) for row in restored.tokens[33:103]] == [(DOG, i) for i in range(70)]
        assert restored.tokens[2] == numbering[-1] - 1
        loaded = cache.load(pool, restored.tokens)
        assert len(loaded) == 64 and loaded.tokens == restored.tokens[:64]
        assert (loaded.read(0)[0] == restored.read(0, 0, 64)[0]).all()
        cat, dog = pool.rows(CAT, 70), pool.rows(DOG, 30)
        assert len(cache.load(pool, [1, 2, *dog, 3, *cat])) == 0
"""


def test_processes_agree_on_rows_whatever_their_ids_are(tmp_path):
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (here, here.parent)))}
    for numbering, verb in ((1, "write"), (777, "read")):
        command = [sys.executable, "-c", OTHER, str(tmp_path), str(numbering), verb]
        subprocess.run(command, check=True, env=environment)
