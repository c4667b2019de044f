"""Recurrent states and latent vectors are values like everything else: forked, rolled back, never changed in place."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from kv_recurrent import HYBRID, STRIDED, check, feed, states_of

from llamay_kv import (
    DiskCache,
    Group,
    Key,
    Layer,
    Layout,
    OutOfPagesError,
    Pool,
    PrefixTree,
    SnapshotError,
    verify,
)
from llamay_kv.snapshots.states import lengths


def test_a_state_is_read_back_without_a_copy_and_cannot_be_written():
    context = feed(Pool(HYBRID, 16, pages=8).context(), [3, 1, 4])
    check(context)
    k, v = context.state(1)
    assert (k.shape, v.shape, k.flags.writeable, v.flags.owndata) == ((2, 3), (2, 5), False, False)
    assert context.state(2)[0].shape == (1, 0)
    feed(context, [1, 5])
    np.testing.assert_array_equal(v, states_of(HYBRID, [3, 1, 4])[1][1], "a view stays as it is")


def test_a_fork_takes_no_page_and_goes_its_own_way():
    pool = Pool(HYBRID, 16, pages=8)
    parent = feed(pool.context(), [1, 2, 3])
    live = pool.live_pages
    forks = parent.fork(5)
    assert pool.live_pages == live == (1, 1)
    feed(forks[0], [9])
    check(forks[0])
    check(parent)
    assert pool.live_pages == (2, 2), "one state slot each"
    pool.audit()


def test_a_lease_that_ends_without_a_commit_leaves_the_state():
    pool = Pool(HYBRID, 16, pages=8)
    context = feed(pool.context(), [1, 2, 3])
    with context.reserve(4) as lease:
        for layer, (k, v) in states_of(HYBRID, [7, 7]).items():
            lease.write_state(layer, k, v)
        fork = context.fork()
    for c in (context, fork):
        check(c)
        assert c.tokens == [1, 2, 3]
    assert pool.live_pages == (1, 1)
    pool.audit()


def test_truncate_goes_to_checkpoints_and_names_the_nearest():
    pool = Pool(HYBRID, 16, pages=32)
    context = pool.context()
    for n in (5, 20, 40):
        feed(context, range(len(context), n))
        context.checkpoint()
    feed(context, range(40, 50))
    assert context.checkpoints == [5, 20, 40]
    assert repr(context) == "<Context of 50 tokens, checkpoints at 5, 20, 40>"
    with pytest.raises(
        ValueError,
        match=r"cannot truncate to 30 tokens: recurrent layers have no state there; "
        r"the nearest checkpoints are at 20 and 40",
    ):
        context.truncate(30)
    assert len(context) == 50
    fork = context.fork()
    context.truncate(20)
    check(context)
    assert context.checkpoints == [5, 20]
    feed(context, [99])
    check(context)
    check(context, 5)
    check(fork)
    check(fork, 40)
    fork.forget_checkpoints(30)
    assert (fork.checkpoints, context.checkpoints) == ([40], [5, 20])
    context.truncate(0)
    assert context.checkpoints == []
    with pytest.raises(ValueError, match="it is all zeros there"):
        context.state(1)
    with pytest.raises(ValueError, match="the nearest checkpoints are at 40"):
        fork.truncate(3)
    fork.close()
    pool.audit()
    assert pool.used_bytes == 0


def test_states_on_the_stride_become_checkpoints():
    pool = Pool(STRIDED, 16, pages=64)
    context = feed(pool.context(), range(35))
    assert context.checkpoints == [10, 20, 30]
    for at in context.checkpoints:
        check(context, at)
    feed(context, range(35, 40))
    assert context.checkpoints == [10, 20, 30, 40]
    context.truncate(30)
    check(context)
    with context.reserve(25) as lease:
        lease.write_state(0, np.zeros((1, 2), "f4"), np.zeros((1, 4), "f4"))
        with pytest.raises(ValueError, match="the recurrent state after 10 of the reserved tokens was not"):
            lease.commit(range(25))
    check(context)
    pool.audit()


def test_a_commit_ends_where_a_state_was_written():
    context = feed(Pool(HYBRID, 16, pages=32).context(), [1])
    with context.reserve(8, states=[2, 5]) as lease:
        for n in (2, 5, 8):
            for layer, (k, v) in states_of(HYBRID, [1, *range(n)]).items():
                lease.write_state(layer, k, v, after=n)
        with pytest.raises(
            ValueError, match="cannot commit 4 tokens: recurrent groups have a state after 2, 5, 8 of"
        ):
            lease.commit(range(4))
        lease.commit(range(5))
    check(context)
    assert context.checkpoints == []
    with (
        context.reserve(2) as lease,
        pytest.raises(ValueError, match="state after 2 of the reserved tokens was not"),
    ):
        lease.commit([1, 2])
    feed(context, [7, 8, 9], at=[1, 2], checkpoints=True)
    assert context.checkpoints == [7, 8]
    context.pool.audit()


def test_states_need_room_and_a_full_pool_changes_nothing():
    pool = Pool(HYBRID, 16, budget_bytes=sum(Pool(HYBRID, 16, pages=1).page_bytes))
    context = feed(pool.context(), [1])
    with pytest.raises(OutOfPagesError):
        context.reserve(1)
    check(context)
    pool.audit()


def test_what_does_not_fit_a_kind_is_refused():
    context = feed(Pool(HYBRID, 16, pages=8).context(), [1, 2])
    for use in (lambda: context.read(1), lambda: context.page(1, 0)):
        with pytest.raises(ValueError, match="layer 1 is recurrent: it has states and no positions"):
            use()
    with pytest.raises(ValueError, match="layer 0 is not recurrent"):
        context.state(0)
    with pytest.raises(ValueError, match="there is no state after 1 tokens"):
        context.state(1, 1)
    plain = Pool(Layout.uniform(1, 1, 1), 16, pages=1).context()
    with pytest.raises(ValueError, match="states are for layouts with recurrent groups"):
        plain.reserve(2, states=[1])
    with context.reserve(2) as lease:
        with pytest.raises(ValueError, match=r"k has the shape \(1, 3\), but layer 1 takes \(2, 3\)"):
            lease.write_state(1, np.zeros((1, 3), "f4"), np.zeros((2, 5), "f4"))
        with pytest.raises(ValueError, match="after: 3 is not from 1 to the 2 reserved tokens"):
            lease.write_state(1, np.zeros((2, 3), "f4"), np.zeros((2, 5), "f4"), after=3)
    for make, message in (
        (lambda: Group.recurrent([Layer(0, 1, 1, 1)], "q8"), "recurrent states are kept in f32 or f16"),
        (lambda: Group.latent([Layer(0, 1, 4, 1)]), "a latent group has no values apart from its keys"),
        (lambda: Pool(Layout([Group.recurrent([Layer(0, 1, 0, 0)])]), 16, pages=1), "must be from 1 to"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("precision", ["f32", "f16", "q8"])
def test_a_latent_group_has_keys_only(precision):
    layout = Layout([Group.latent([Layer(0, 1, 12, 0)], precision)])
    pool = Pool(layout, 16, pages=8)
    assert layout.position_bytes == {"f32": 48, "f16": 24, "q8": 16}[precision]
    context, rng = pool.context(), np.random.default_rng(0)
    k = rng.standard_normal((40, 1, 12)).astype("f4")
    with context.reserve(40) as lease:
        lease.write(0, k, np.zeros((40, 1, 0), "f4"))
        lease.commit(range(40))
    got, v = context.read(0)
    assert v.shape == (40, 1, 0)
    np.testing.assert_allclose(got, k, atol={"f32": 0, "f16": 1e-2, "q8": 4e-2}[precision])
    fork = context.fork()
    fork.truncate(20)
    np.testing.assert_array_equal(fork.read(0)[0], got[:20])


def test_the_view_lists_the_state_to_read_and_those_to_write():
    pool = Pool(HYBRID, 16, pages=8)
    context = feed(pool.context(), [1, 2, 3])
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    with context.reserve(6, states=[4]) as lease:
        capsule = lease.__llamay_kv_view__()
        view = get_pointer(capsule, b"llamay.kv_view.v1")
        stride = ctypes.c_uint32.from_address(view + 8).value
        group = ctypes.c_uint64.from_address(view + 16).value + stride
        page_tokens, kind = (ctypes.c_uint32.from_address(group + at).value for at in (44, 48))
        n = ctypes.c_uint64.from_address(group + 72).value
        at = (ctypes.c_uint32 * n).from_address(ctypes.c_uint64.from_address(group + 64).value)
        assert (stride, page_tokens, kind, list(at)) == (80, 1, 3, [3, 7, 9])
        blocks = ctypes.c_uint64.from_address(group + 16).value
        pages = (ctypes.c_int32 * n).from_address(ctypes.c_uint64.from_address(blocks).value)
        assert len(set(pages)) == 3
        lease.commit(range(4))
    assert len(context) == 7


def test_a_prefix_ends_at_a_state():
    pool = Pool(HYBRID, 16, pages=64)
    tree = PrefixTree(pool, pool.budget_bytes)
    context = feed(pool.context(), range(20))
    context.checkpoint()
    feed(context, range(20, 50))
    tree.insert(context)
    assert len(tree.match(range(60))) == 50
    found = tree.match(range(45))
    assert (len(found), found.checkpoints) == (20, [20]), "only a whole prefix: up to the nearest checkpoint"
    check(found)
    feed(found, [7, 7])
    check(found)
    assert len(tree.match(range(19))) == 0
    assert tree.explain_miss(range(45)).equal == 45
    branch = feed(pool.context(), [*range(30), 99])
    tree.insert(branch)
    assert len(tree.match([*range(30), 99, 5])) == 31
    check(tree.match([*range(30), 99, 5]))
    assert [entry[5] for entry in tree.entries_in(b"")] == []
    pool.audit()
    for c in (context, found, branch):
        c.close()
    tree.clear()
    pool.audit()
    assert pool.used_bytes == 0


def test_a_state_is_of_no_use_where_a_window_has_gone_on():
    layout = Layout([Group.recurrent([Layer(0, 1, 2, 4)]), Group.sliding(20, [Layer(1, 1, 2, 2)], "f32")])
    pool = Pool(layout, 16, pages=64)
    tree = PrefixTree(pool, pool.budget_bytes)
    context = feed(pool.context(), range(48))
    context.checkpoint()
    early = context.fork()
    feed(context, range(48, 150))
    tree.insert(context)
    assert len(tree.match(range(60))) == 0
    tree.insert(early)
    found = tree.match(range(60))
    assert len(found) == 48
    check(found)
    found.read(1, found.first_positions()[1])


def test_tenants_states_merge_when_a_page_becomes_everybodys():
    pool = Pool(HYBRID, 16, pages=64)
    tree = PrefixTree(pool, pool.budget_bytes)
    tree.insert(feed(pool.context(), range(16)), tenant="alice")
    tree.insert(feed(feed(pool.context(), range(8)), range(8, 24)), shared=16)
    assert len(tree.match(range(16), tenant="alice")) == 16
    check(tree.match(range(16), tenant="alice"))
    pool.audit()


def test_a_snapshot_has_the_state_and_the_checkpoints(tmp_path):
    pool = Pool(HYBRID, 16, pages=64)
    context = pool.context()
    for n in (5, 70, 100):
        feed(context, range(len(context), n))
        if n < 100:
            context.checkpoint()
    context.side = {"sampler": (3, b"seed")}
    key = Key.generate("k")
    for more, keys in (({}, {}), ({"key": key}, {"keys": [key]})):
        context.save(tmp_path / "s", **more)
        verify(tmp_path / "s", **keys)
        restored = Pool(HYBRID, 64, pages=20).restore(tmp_path / "s", **keys)
        assert (restored.tokens, restored.checkpoints, restored.side) == (
            context.tokens,
            [5, 70],
            context.side,
        )
        for at in (None, 5, 70):
            check(restored, at)
        np.testing.assert_array_equal(restored.read(0)[0], context.read(0)[0])
        restored.pool.audit()
        restored.truncate(5)
        check(restored)
    context.checkpoint()
    context.save(tmp_path / "s")
    assert pool.restore(tmp_path / "s").checkpoints == [5, 70, 100]
    pool.context().save(tmp_path / "empty")
    assert len(pool.restore(tmp_path / "empty")) == 0
    context.side = {"recurrent/x": (1, b"")}
    with pytest.raises(ValueError, match="begin with 'recurrent/' are taken"):
        context.save(tmp_path / "s")


def test_a_snapshot_on_the_stride_restores_the_states_it_has(tmp_path):
    context = feed(Pool(STRIDED, 16, pages=64).context(), range(35))
    context.forget_checkpoints(20)
    context.save(tmp_path / "s")
    restored = Pool(STRIDED, 32, pages=64).restore(tmp_path / "s")
    assert restored.checkpoints == [20, 30]
    for at in (None, 20, 30):
        check(restored, at)


def test_a_snapshot_without_its_state_is_refused(tmp_path):
    context = feed(Pool(HYBRID, 16, pages=8).context(), [1, 2, 3])
    manifest = context.save(tmp_path / "s")
    (name, version, size) = manifest.side[0]
    for side, message in (
        ((), "the snapshot lacks the recurrent state after its last token"),
        (((name, version, size + 4),), "bytes and not"),
        (((name.replace("/0001", "/0000"), version, size),), "is of no recurrent group"),
        ((("recurrent/0001/0000000002", 1, size),), "lacks the recurrent state"),
    ):
        with pytest.raises(SnapshotError, match=message):
            lengths("s", replace(manifest, side=side))


def test_every_damage_to_a_state_is_refused(tmp_path):
    context = feed(Pool(HYBRID, 16, pages=8).context(), [1, 2, 3])
    context.save(tmp_path / "s")
    whole = (tmp_path / "s").read_bytes()
    state = context.pack_state(1, 3)
    at = whole.index(state)
    pool = Pool(HYBRID, 16, pages=8)
    for i in range(at, at + len(state)):
        (tmp_path / "s").write_bytes(whole[:i] + bytes([whole[i] ^ 4]) + whole[i + 1 :])
        with pytest.raises(SnapshotError, match="side state 'recurrent/0001/0000000003'"):
            pool.restore(tmp_path / "s")
    assert pool.used_bytes == 0
    pool.audit()


def cache_on(where, **options):
    return DiskCache(where, budget_bytes=1 << 20, min_free_bytes=0, **options)


@pytest.mark.parametrize("ram_bytes", [0, 1 << 20])
def test_a_disk_cache_gives_back_a_prefix_that_ends_at_a_state(tmp_path, ram_bytes):
    pool = Pool(HYBRID, 16, pages=64)
    with cache_on(tmp_path, ram_bytes=ram_bytes) as cache:
        assert cache.save(feed(pool.context(), range(100)))
        cache.flush()
        assert len(cache.load(pool, range(100))) == 0
        assert cache.used_bytes == 0, "without a state where a chunk ends nothing of it could be used"
        assert cache.save(feed(pool.context(), range(260), at=[64, 192], checkpoints=True))
        cache.flush()
        for wanted, n in ((range(300), 192), (range(192), 192), (range(191), 64), (range(63), 0)):
            with cache.load(pool, wanted) as loaded:
                assert (len(loaded), loaded.checkpoints) == (n, [at for at in (64, 192) if at <= n])
                for at in loaded.checkpoints:
                    check(loaded, at)
                assert loaded.read(0)[0][:, 0, 0].tolist() == list(range(n))
                check(feed(loaded, range(n, 300)))
        assert not {"damaged", "failed_reads", "failed_writes"} & cache.counters().keys()


def test_states_and_windows_of_one_chunk_that_several_contexts_had_come_together(tmp_path):
    layout = Layout([Group.sliding(200, [Layer(0, 1, 2, 2)]), Group.recurrent([Layer(1, 1, 2, 4)])])
    pool = Pool(layout, 16, pages=64)
    with cache_on(tmp_path) as cache:
        cache.save(feed(pool.context(), range(192), at=[], checkpoints=True))  # the window, no state at 128
        cache.save(feed(pool.context(), range(300), at=[128], checkpoints=True))  # a state, no window there
        cache.flush()
        with cache.load(pool, range(300)) as loaded:
            assert loaded.checkpoints == [128, 192]
            check(loaded, 128)
            check(loaded)
        with cache.load(pool, range(191)) as loaded:
            assert len(loaded) == 128
            check(loaded)


def test_what_the_disk_has_goes_on_from_a_checkpoint_of_the_context_there_is(tmp_path):
    pool = Pool(HYBRID, 16, pages=64)
    with cache_on(tmp_path) as cache:
        cache.save(feed(pool.context(), range(256)))
        cache.flush()
        known = feed(pool.context(), range(130), at=[64], checkpoints=True)
        pages = pool.live_pages
        with cache.load(pool, range(256), onto=known) as loaded:
            assert (len(loaded), loaded.checkpoints) == (256, [64, 256])
            assert loaded.page_numbers(0)[:4] == known.page_numbers(0)[:4]
            assert [now - then for now, then in zip(pool.live_pages, pages, strict=True)] == [12, 1]
            check(loaded)


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_tree_has_a_match_ends_at_a_state_of_these_very_tokens(seed):
    rng = np.random.default_rng(seed)
    pool = Pool(HYBRID, 16, pages=400)
    tree = PrefixTree(pool, int(rng.integers(1, 60)) * sum(pool.page_bytes))
    seen, stored, contexts = [[1]], set(), [pool.context()]
    for _ in range(50):
        base = seen[rng.integers(len(seen))]
        tokens = base[: rng.integers(len(base) + 1)] + rng.integers(1, 3, rng.integers(1, 25)).tolist()
        seen.append(tokens)
        found = tree.match(tokens)
        assert found.tokens == tokens[: len(found)]
        assert (*found.tokens,) in stored or len(found) == 0
        check(found) if len(found) else None
        for at in found.checkpoints:
            check(found, at)
        if len(found) < len(tokens):
            feed(found, tokens[len(found) :])
        if rng.random() < 0.5:
            found.checkpoint()
        tree.insert(found)
        stored |= {tuple(tokens[:at]) for at in (*found.checkpoints, len(tokens))}
        contexts.append(found)
        if len(contexts) > 4:
            contexts.pop(int(rng.integers(4))).close()
        pool.audit()
    for context in contexts:
        context.close()
    tree.clear()
    pool.audit()
    assert pool.used_bytes == 0


def test_a_prefix_ends_at_the_state_of_whichever_sibling_has_one():
    """Prompts part inside a page: one has a state there, and another agrees as long with what is asked for."""
    pool = Pool(HYBRID, 16, pages=64)
    tree = PrefixTree(pool, pool.budget_bytes)
    system = list(range(41))
    tree.insert(feed(pool.context(), [*system, 70, 71]))
    tree.insert(feed(pool.context(), [*system, 60, 61], at=[41], checkpoints=True))
    for prompt in ([*system, 80, 81], [*system, 70, 99], [*system, 50], system):
        found = tree.match(prompt)
        assert (len(found), found.checkpoints) == (41, [41])
        check(found)
        assert tree.known(prompt) == (42 if 70 in prompt else 41, 41)
    assert len(tree.match([*system[:40], 9])) == 0
    pool.audit()


def test_a_single_checkpoint_is_given_up():
    pool = Pool(HYBRID, 16, pages=64)
    context = feed(pool.context(), range(40), at=[10, 20, 30], checkpoints=True)
    fork = context.fork()
    context.forget_checkpoint(20)
    assert (context.checkpoints, fork.checkpoints) == ([10, 30], [10, 20, 30])
    with pytest.raises(ValueError, match="there is no checkpoint at 20 tokens"):
        context.forget_checkpoint(20)
    for at in (30, 10):
        context.forget_checkpoint(at)
    assert context.checkpoints == []
    pool.audit()
    assert len(context.page_numbers(1)) == 1
    assert len(fork.page_numbers(1)) == 4
