"""The guide to adding a storage backend, followed to the letter: what the package relies on holds for its example."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay_kv import BlockStore, Context, DiskCache, File, Key, Layout, Pool, SnapshotError, Vfs, verify

PAGE = Path(__file__).parents[2] / "docs" / "state.md"
KEY = Key("k", b"k" * 32)
LAYOUT = Layout.uniform(n_layers=1, kv_heads=1, k_dim=4, v_dim=4, precision="f16")


@pytest.fixture
def vfs(tmp_path: Path) -> Iterator[Any]:
    guide = PAGE.read_text("utf-8").partition("## To add a storage backend")[2]
    names: dict[str, Any] = {}
    exec(compile(re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S)[0], str(PAGE), "exec"), names)
    made = names["SqliteVfs"](str(tmp_path / "state.db"))
    yield made
    made.connection.close()


def filled(pool: Pool, n: int) -> Context:
    context = pool.context()
    with context.reserve(n) as lease:
        rows = np.arange(n * 4, dtype="f4").reshape(n, 1, 4)
        lease.write(0, rows, rows)
        lease.commit(range(n))
    return context


def spoil(vfs: Any, path: str) -> None:
    """Flip a bit in the middle of a file."""
    ((data,),) = vfs.run("SELECT data FROM files WHERE path = ?", path)
    half = len(data) // 2
    vfs.run(
        "UPDATE files SET data = ? WHERE path = ?",
        data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :],
        path,
    )


def test_it_has_the_operations_and_their_errors(vfs: Any) -> None:
    assert isinstance(vfs, Vfs)
    with vfs.create("d/a") as file:
        assert isinstance(file, File)
        file.append([b"one", memoryview(b"two")])
        file.sync()
    vfs.create("d/e/f").close()
    assert [(f.name, f.size) for f in vfs.list("d")] == [("a", 6)]
    with pytest.raises(FileExistsError):
        vfs.create("d/a")
    for use in (vfs.open, vfs.remove, vfs.touch, lambda path: vfs.replace(path, "d/a")):
        with pytest.raises(FileNotFoundError):
            use("d/none")
    buffers = [memoryview(bytearray(2)), memoryview(bytearray(9))]
    with vfs.open("d/a") as file:
        assert file.read_into(buffers, 1) == 5
    assert [bytes(b) for b in buffers] == [b"ne", b"two\0\0\0\0\0\0"]
    vfs.replace("d/a", "d/e/f")
    assert [(f.name, f.size) for f in vfs.list("d/e")] == [("f", 6)]
    vfs.connection.close()
    with pytest.raises(OSError, match="closed"):
        vfs.list("d")


@pytest.mark.parametrize("key", [None, KEY])
def test_snapshots_come_back_and_damage_is_found(vfs: Any, key: Key | None) -> None:
    pool = Pool(LAYOUT, pages=16)
    context = filled(pool, 200)
    for _ in range(2):  # the second replaces the first
        manifest = context.save("s/a.kv", key=key, vfs=vfs)
        assert verify("s/a.kv", keys=KEY, vfs=vfs) == manifest
    assert [f.name for f in vfs.list("s")] == ["a.kv"]
    restored = pool.restore("s/a.kv", keys=KEY, vfs=vfs)
    assert restored.tokens == context.tokens
    np.testing.assert_array_equal(restored.read(0)[0], context.read(0)[0])
    spoil(vfs, "s/a.kv")
    with pytest.raises(SnapshotError):
        pool.restore("s/a.kv", keys=KEY, vfs=vfs)


def test_a_cache_finds_what_it_wrote_and_computes_again_what_is_damaged(vfs: Any) -> None:
    pool = Pool(LAYOUT, pages=16)
    context = filled(pool, 128)
    for _ in range(2):  # the second time over what the first left
        cache = DiskCache("prefixes", budget_bytes=1 << 20, min_free_bytes=0, vfs=vfs)
        cache.save(context)
        cache.flush()
        found = cache.load(pool, context.tokens)
        assert found is not None
        assert found.tokens == context.tokens
        cache.close()
    for file in vfs.list("prefixes"):
        if file.name != "secret":
            spoil(vfs, f"prefixes/{file.name}")
    cache = DiskCache("prefixes", budget_bytes=1 << 20, min_free_bytes=0, vfs=vfs)
    assert not cache.load(pool, context.tokens)
    cache.close()


def test_the_budget_evicts_what_was_used_longest_ago_and_threads_may_write(vfs: Any) -> None:
    with BlockStore("blocks", budget_bytes=6000, key=KEY, min_free_bytes=0, vfs=vfs) as store:
        threads = [
            threading.Thread(target=store.put, args=({bytes([n]): bytes([n]) * 1000},)) for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(store.get(bytes([n])) == bytes([n]) * 1000 for n in (1, 2, 3, 0))
        store.put({b"a": bytes(1000), b"b": bytes(1000), b"c": bytes(1000)})
        assert store.get(b"\0") is not None
        assert store.get(b"\1") is None
