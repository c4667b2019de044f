"""Opaque blocks come back byte for byte or not at all, whatever happens to the files."""

import contextlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_crash import CrashVfs, PowerLoss

from llamay_kv import BlockStore, Identity, Key
from llamay_kv.tiers.chunk import OVERHEAD

KEY = Key("k", b"k" * 32)


def store_on(where, budget=1 << 30, **options):
    return BlockStore(where, budget_bytes=budget, **{"key": KEY, "min_free_bytes": 0, **options})


def test_what_is_put_comes_back_in_another_process(tmp_path):
    blocks = {bytes([i]) * 3: bytes([i]) * (i * 100) for i in range(5)}
    with store_on(tmp_path) as store:
        assert store.put(blocks) == set(blocks)
        assert store.counters()["written_chunks"] == 5
        assert store.put(blocks) == set(blocks)
        assert store.counters()["written_chunks"] == 5, "what is there is not written again"
    with store_on(tmp_path) as store:
        for key, data in blocks.items():
            assert key in store
            assert bytes(store.get(key)) == data
            out = bytearray(len(data))
            assert store.get_into(key, out)
            assert out == data
            assert not store.get_into(key, bytearray(len(data) + 1))
        assert store.get(b"another") is None
        store.remove([b"\0\0\0", b"another"])
        assert b"\0\0\0" not in store
        assert store.used_bytes == sum(f.stat().st_size for f in tmp_path.glob("*.kvc"))


def test_identity_tenant_and_key_keep_blocks_apart(tmp_path):
    ours = {"identity": Identity(weights=b"a"), "tenant": "alice"}
    with store_on(tmp_path, **ours) as store:
        store.put({b"k": b"value"})
        assert b"value" not in b"".join(f.read_bytes() for f in tmp_path.iterdir())
    for other in (
        ours | {"identity": Identity(weights=b"b")},
        ours | {"tenant": "bob"},
        ours | {"key": Key("k", b"x" * 32)},
    ):
        with store_on(tmp_path, **other) as store:
            assert b"k" not in store
            assert store.get(b"k") is None
    with store_on(tmp_path, **ours) as store:
        assert bytes(store.get(b"k")) == b"value"


def test_every_single_byte_corruption_and_every_truncation_is_a_miss(tmp_path):
    with store_on(tmp_path) as store:
        store.put({b"k": b"some bytes that matter"})
    (path,) = tmp_path.glob("*.kvc")
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= int(rng.integers(1, 256))
        for broken in (bad, good[:i]):
            path.write_bytes(broken)
            out = bytearray(22)
            with store_on(tmp_path) as store:
                assert not store.get_into(b"k", out)
                assert store.counters()["damaged"] == 1
            assert out == bytes(22)
            assert not path.exists()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 60)), max_size=30), st.integers(0, 400))
def test_the_budget_holds_after_every_put(operations, budget):
    vfs = CrashVfs()
    with store_on("d", budget, vfs=vfs) as store:
        for key, size in operations:
            name = b"%d-%d" % (key, size)
            fits = size + OVERHEAD <= budget
            assert store.put([(name, bytes(size))]) == ({name} if fits else set())
            assert store.used_bytes == sum(len(i.data) for i in vfs.inodes()) <= budget


def test_a_group_is_synced_together():
    vfs = CrashVfs()
    steps = []
    vfs.step = steps.append
    with store_on("d", vfs=vfs) as store:
        steps.clear()
        store.put({bytes([i]): b"x" for i in range(10)})
    assert steps.count("sync directory") == 1
    assert steps.index("sync") > max(i for i, s in enumerate(steps) if s == "append")
    assert steps.index("replace") > max(i for i, s in enumerate(steps) if s == "sync")
    with store_on("d", vfs=vfs, durable=False) as store:
        steps.clear()
        store.put({bytes([i]) * 2: b"x" for i in range(10)})
    assert not {"sync", "sync directory"} & set(steps)


@pytest.mark.parametrize("durable", [True, False])
def test_after_a_loss_of_power_what_was_acknowledged_is_there_and_nothing_is_wrong(durable):
    blocks = {bytes([i]): bytes([i]) * 700 for i in range(4)}
    for n in range(1, 60):
        vfs = CrashVfs(crash_at=n)
        stored = set()
        with contextlib.suppress(PowerLoss):
            with store_on("d", vfs=vfs, durable=durable) as store:
                for key in blocks:
                    stored |= store.put({key: blocks[key]})
            vfs.dead = True
        for seed in range(6):
            with store_on("d", vfs=vfs.after_crash(seed)) as store:
                for key, data in blocks.items():
                    found = store.get(key)
                    assert found is None or bytes(found) == data
                    assert found is not None or not durable or key not in stored


def test_whatever_call_fails_a_block_is_whole_or_not_there():
    blocks = {bytes([i]): bytes([i]) * 700 for i in range(3)}
    for n in range(1, 100):
        vfs = CrashVfs()
        with store_on("d", vfs=vfs) as store:
            vfs.fail_at = vfs.steps + n
            with contextlib.suppress(OSError):
                store.put(blocks)
            for key, data in blocks.items():
                found = store.get(key)
                assert found is None or bytes(found) == data
            if vfs.failed not in ("remove",):
                assert not [name for name in vfs.names if name.endswith(".partial")]
            if not vfs.failed:
                break
    else:
        pytest.fail("it never came to its end")


def test_a_full_disk_is_an_error_and_leaves_nothing_behind():
    vfs = CrashVfs(capacity=1000)
    with store_on("d", vfs=vfs) as store:
        assert store.put([(b"a", bytes(400)), (b"b", bytes(400)), (b"c", bytes(400))]) == {b"a", b"b"}
        assert store.counters()["no_room"] == 1
        vfs.free_bytes = lambda path: 1 << 40
        with pytest.raises(OSError, match="No space"):
            store.put([(b"d", bytes(400))])
        assert sorted(len(i.data) for i in vfs.inodes()) == [444, 444]
        assert bytes(store.get(b"a")) == bytes(400)


def test_what_is_pinned_stays_and_others_go():
    with store_on("d", 3 * (100 + OVERHEAD), vfs=CrashVfs()) as store:
        store.put([(b"%d" % i, bytes(100)) for i in range(3)])
        assert store.pin(b"0")
        assert store.pin(b"0")
        assert not store.pin(b"another")
        store.unpin(b"another")
        store.unpin(b"0")
        assert store.put([(b"3", bytes(100)), (b"4", bytes(100))]) == {b"3", b"4"}
        assert [b"%d" % i in store for i in range(5)] == [True, False, False, True, True]
        for i in (3, 4):
            assert store.pin(b"%d" % i)
        assert store.put([(b"5", bytes(100))]) == set()
        assert store.counters()["no_room"] == 1
        store.unpin(b"0")
        assert store.put([(b"5", bytes(100))]) == {b"5"}
        assert b"0" not in store
