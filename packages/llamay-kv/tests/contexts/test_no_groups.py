"""A model that keeps nothing has contexts all the same: they count tokens and take no page."""

import pytest

from llamay_kv import (
    DiskCache,
    Identity,
    IdentityMismatchError,
    Layout,
    Pool,
    PrefixTree,
    SnapshotError,
    Spill,
    diff,
)

NOTHING = Layout([])


@pytest.fixture
def pool():
    return Pool(NOTHING, budget_bytes=0)


def test_contexts_count_tokens_and_take_no_page(pool):
    context = pool.context()
    context.extend(range(1000), {})
    with context.reserve(3) as lease:
        lease.commit([7, 8])
    fork = context.fork()
    fork.truncate(5)
    fork.side = {"pooled": (1, b"x")}
    assert (len(context), fork.tokens, fork.fork().side) == (1002, [0, 1, 2, 3, 4], {"pooled": (1, b"x")})
    assert (pool.used_bytes, pool.page_bytes, pool.live_pages, NOTHING.position_bytes) == (0, (), (), 0)
    assert context.first_positions() == []
    assert context.checksum() != fork.checksum()
    assert fork.checksum() == fork.fork().checksum()
    with pytest.raises(IndexError, match="the layout has 0 groups"):
        context.page_numbers(0)
    with pytest.raises(IndexError, match="the layout has no layer 0"):
        context.read(0)
    with pytest.raises(ValueError, match="layer 0 is not one of the layout"):
        context.extend([1], {0: ()})
    pool.audit()


def test_a_view_has_no_groups(pool):
    context = pool.context()
    with context.reserve(3) as lease:
        view = lease.__llamay_kv_view__()
        lease.commit([1, 2, 3])
    del view
    assert len(context) == 3


@pytest.mark.parametrize("room", [{"budget_bytes": 0}, {"budget_bytes": 1 << 20}, {"pages": 5}])
def test_any_budget_will_do(room, tmp_path):
    pool = Pool(NOTHING, 16, spill=Spill(tmp_path, 1 << 20, 0), **room)
    context = pool.context()
    context.extend(range(100), {})
    assert pool.spill_out(1) == 0
    assert context.fork().tokens == list(range(100))
    assert pool.trim() == 0
    pool.audit()


def test_a_snapshot_is_its_tokens_and_its_side_state(pool, tmp_path):
    context = pool.context()
    context.extend(range(100), {})
    context.side = {"pooled": (1, b"x")}
    context.save(tmp_path / "s", identity=Identity(weights=b"w"))
    restored = Pool(NOTHING, 16, budget_bytes=0).restore(tmp_path / "s", identity=Identity(weights=b"w"))
    assert (restored.tokens, restored.side) == (context.tokens, context.side)
    assert not diff(tmp_path / "s", tmp_path / "s")
    with pytest.raises(IdentityMismatchError):
        pool.restore(tmp_path / "s", identity=Identity(weights=b"v"))
    with pytest.raises(SnapshotError, match="the layout is not the pool's: 0 groups, not 1"):
        Pool(Layout.uniform(1, 1, 1), 16, pages=10).restore(tmp_path / "s")
    Pool(Layout.uniform(1, 1, 1), 16, pages=10).context().save(tmp_path / "t")
    with pytest.raises(SnapshotError, match="the layout is not the pool's: 1 groups, not 0"):
        pool.restore(tmp_path / "t")


def test_tree_and_disk_keep_nothing(pool, tmp_path):
    context = pool.context()
    context.extend(range(1000), {})
    tree = PrefixTree(pool, 1 << 20)
    assert tree.insert(context) == 0
    assert len(tree.match(range(1000))) == 0
    assert tree.counters()["nodes"] == 0
    with DiskCache(tmp_path, budget_bytes=1 << 20, min_free_bytes=0) as cache:
        assert not cache.save(context)
        cache.flush()
        assert len(cache.load(pool, range(1000))) == 0
        assert cache.load(pool, range(1000), onto=context) is context
        assert cache.used_bytes == 0
