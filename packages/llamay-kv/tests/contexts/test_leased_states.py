"""Recurrent states within a lease: every step of a draft can be committed; states that are not kept cost nothing."""

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from kv_recurrent import HYBRID, STRIDED, check, feed, states_of

from llamay_kv import DiskCache, Group, Layer, Layout, Pool, PrefixTree, Spill

STATEFUL = [layer.index for group in HYBRID.groups if group.kind == "state" for layer in group.layers]


def step(lease, tokens, at):
    """Do what a kernel does for one row: read the state at `at` reserved tokens, write the next one."""
    for layer in STATEFUL:
        read = lease.read_state(layer, after=at)
        lease.write_state(
            layer, *(np.float32(0.5) * part + np.float32(tokens[at]) for part in read), after=at + 1
        )
    k = np.full((1, 1, 4), tokens[at], "f4")
    lease.write(0, k, k, offset=at)


def listed(lease) -> Iterator[tuple[int, int, list[int]]]:
    """The groups with states in a lease's view: its tokens, its reserved positions, and the lengths it lists."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    capsule = lease.__llamay_kv_view__()
    view = get_pointer(capsule, b"llamay.kv_view.v1")
    stride, n_groups = (ctypes.c_uint32.from_address(view + at).value for at in (8, 12))
    n_tokens, n_reserved = (ctypes.c_uint32.from_address(view + at).value for at in (24, 28))
    for g in range(n_groups):
        group = ctypes.c_uint64.from_address(view + 16).value + g * stride
        if ctypes.c_uint32.from_address(group + 48).value == 3:
            n = ctypes.c_uint64.from_address(group + 72).value
            at = (ctypes.c_uint32 * n).from_address(ctypes.c_uint64.from_address(group + 64).value)
            yield n_tokens, n_reserved, list(at)


@pytest.mark.parametrize("before", [0, 1, 15, 16])
@pytest.mark.parametrize("kept", range(6))
def test_steps_follow_one_another_in_a_lease_and_any_of_them_is_committed(before, kept):
    pool = Pool(HYBRID, 16, pages=40)
    context = feed(pool.context(), range(before)) if before else pool.context()
    live = pool.live_pages
    tokens = [7, 3, 9, 1, 4]
    with context.reserve(5, states=range(1, 6)) as lease:
        assert lease.states == [1, 2, 3, 4, 5]
        assert list(listed(lease)) == [
            (before, 5, [*([before] if before else []), *range(before + 1, before + 6)])
        ]
        for at in range(5):
            step(lease, tokens, at)
        lease.commit(tokens[:kept])
    assert context.tokens == [*range(before), *tokens[:kept]]
    assert context.checkpoints == []
    if before + kept:
        check(context)
    assert pool.live_pages == (-(-(before + kept) // 16), int(before + kept > 0))
    feed(context, [8])
    check(context)
    assert live[1] <= 1
    pool.audit()


def test_a_step_of_fewer_rows_than_are_reserved_ends_where_it_ends():
    context = feed(Pool(HYBRID, 16, pages=40).context(), [5])
    with context.reserve(30, states=[1, 2]) as lease:
        assert lease.states == [1, 2, 30]
        for at in range(2):
            step(lease, [6, 7], at)
        with pytest.raises(
            ValueError, match="the recurrent state after 30 of the reserved tokens was not written"
        ):
            lease.commit(range(30))
        lease.commit([6, 7])
    check(context)
    assert context.read(0)[0][:, 0, 0].tolist() == [5, 6, 7]


def test_a_lease_reads_what_it_has_written_and_nothing_else():
    context = feed(Pool(HYBRID, 16, pages=40).context(), [5, 6])
    with context.reserve(4, states=[2]) as lease:
        for layer, pair in states_of(HYBRID, [5, 6]).items():
            for got, want in zip(lease.read_state(layer), pair, strict=True):
                np.testing.assert_array_equal(got, want)
        for after, message in (
            (2, "the state after 2 of the reserved tokens was not written"),
            (3, "there is no room for the state after 3 of the reserved tokens; list it in `states`"),
            (5, "after: 5 is not from 1 to the 4 reserved tokens"),
        ):
            with pytest.raises(ValueError, match=message):
                lease.read_state(1, after=after)
        with pytest.raises(ValueError, match="there is no room for the state after 1 "):
            lease.write_state(1, np.zeros((2, 3), "f4"), np.zeros((2, 5), "f4"), after=1)
        with pytest.raises(ValueError, match="layer 0 is not recurrent"):
            lease.read_state(0)
        with pytest.raises(ValueError, match="layer 1 is recurrent"):
            lease.read(1)
        k = np.arange(16, dtype="f4").reshape(4, 1, 4)
        lease.write(0, k, -k)
        np.testing.assert_array_equal(lease.read(0)[0][2:], k)
        np.testing.assert_array_equal(lease.read(0, 3, 5)[1], -k[1:3])
        np.testing.assert_array_equal(lease.read(0, 0, 2)[0], context.read(0)[0])
        with pytest.raises(ValueError, match=r"positions \[0, 7\) are not within \[0, 6\)"):
            lease.read(0, 0, 7)
        state = lease.read_state(1)[1]
        state[:] = 99
        check(context)
    for read in (lambda: lease.read(0), lambda: lease.read_state(1), lambda: lease.states):
        with pytest.raises(ValueError, match="the lease has ended"):
            read()


def test_the_state_before_the_first_token_is_zeros():
    with Pool(HYBRID, 16, pages=4).context().reserve(1) as lease:
        k, v = lease.read_state(1)
        assert (k.shape, v.shape, k.dtype) == ((2, 3), (2, 5), np.float32)
        assert not k.any()
        assert not v.any()
        assert [part.shape for part in lease.read_state(2)] == [(1, 0), (1, 7)]


def test_a_lease_without_recurrent_groups_lists_no_states():
    with Pool(Layout.uniform(1, 1, 2), 16, pages=4).context().reserve(3) as lease:
        assert lease.states == []
        with pytest.raises(ValueError, match="layer 0 is not recurrent"):
            lease.read_state(0)


def test_nearest_is_where_truncate_can_go():
    pool = Pool(HYBRID, 16, pages=40)
    context = feed(pool.context(), range(30), at=[5, 20], checkpoints=True)
    for n, nearest in ((0, 0), (4, 0), (5, 5), (19, 5), (20, 20), (29, 20), (30, 30), (1000, 30)):
        assert context.nearest(n) == nearest
        with context.fork() as fork:
            fork.truncate(nearest)
            assert len(fork) == nearest
    plain = Pool(Layout.uniform(1, 1, 2), 16, pages=40).context()
    with plain.reserve(50) as lease:
        assert plain.nearest(10) == 0, "what is reserved does not count"
        lease.commit(range(50))
    assert [plain.nearest(n) for n in (0, 7, 50, 51)] == [0, 7, 50, 50]
    window = Pool(Layout([Group.sliding(20, [Layer(0, 1, 2, 2)])]), 16, pages=40).context()
    with window.reserve(100) as lease:
        lease.commit(range(100))
    assert [window.nearest(n) for n in (0, 50, 98, 99, 100)] == [0, 0, 0, 99, 100]


def test_a_checkpoint_that_a_window_has_left_behind_is_not_near():
    layout = Layout([Group.recurrent([Layer(0, 1, 2, 4)]), Group.sliding(20, [Layer(1, 1, 2, 2)], "f32")])
    context = Pool(layout, 16, pages=64).context()
    for n in (10, 40, 90):
        feed(context, range(len(context), n), checkpoints=True)
        context.checkpoint()
    feed(context, range(90, 95))
    assert [context.nearest(n) for n in (94, 90, 89, 40)] == [90, 90, 0, 0]
    with pytest.raises(ValueError, match="lies behind the window of group 1"):
        context.truncate(40)


def budget(layout, states):
    sizes = zip(Pool(layout, 16, pages=1).page_bytes, layout.groups, strict=True)
    return states * sum(size for size, group in sizes if group.kind == "state")


def test_checkpoints_keep_their_budget_and_are_denser_towards_the_end():
    pool = Pool(STRIDED, 16, pages=400, checkpoint_bytes=budget(STRIDED, 6))
    context = pool.context()
    for n in range(35, 2035, 35):
        feed(context, range(len(context), n))
        assert len(context.checkpoints) <= 6
    points = context.checkpoints
    assert points[-1] == 2030
    assert points[0] < 1500
    gaps = np.diff(points)
    assert (gaps[:-1] >= gaps[1:]).all()
    for at in points:
        check(context, at)
    assert pool.live_pages[0] == 6, "the state at the end is one of them"
    fork = context.fork()
    fork.truncate(points[2])
    assert (fork.checkpoints, context.checkpoints) == (points[:3], points)
    check(fork)
    pool.audit()


def test_a_match_and_a_restore_keep_the_budget_too(tmp_path):
    pool = Pool(STRIDED, 16, pages=400)
    context = feed(pool.context(), range(200))
    context.save(tmp_path / "s")
    assert len(context.checkpoints) == 20
    small = Pool(STRIDED, 16, pages=400, checkpoint_bytes=budget(STRIDED, 3))
    restored = small.restore(tmp_path / "s")
    assert (len(restored.checkpoints), restored.checkpoints[-1], len(restored)) == (3, 200, 200)
    tree = PrefixTree(small, small.budget_bytes)
    for n in (30, 90, 150, 200):
        tree.insert(feed(small.context(), range(n)))
    found = tree.match(range(200))
    assert (len(found), len(found.checkpoints)) == (200, 3)
    check(found)
    small.audit()


def test_a_budget_that_holds_nothing_is_refused():
    with pytest.raises(
        ValueError, match="checkpoint_bytes of 10 do not hold one state of all recurrent groups"
    ):
        Pool(HYBRID, 16, pages=4, checkpoint_bytes=10)
    with pytest.raises(ValueError, match="checkpoint_bytes is for layouts with recurrent groups"):
        Pool(Layout.uniform(1, 1, 1), 16, pages=4, checkpoint_bytes=1000)


TURNS = [[*range(70)], [3, 1, 4, 1, 5], [*range(200, 300)], [9, 9]]


def converse(pool, tree, cache=None):
    """Turns as an engine takes them: a prompt after a known prefix, drafts that are kept in part, a checkpoint."""
    history, found = [], []
    for turn in TURNS:
        prompt = history + turn
        context = tree.match(prompt[:-1])
        if cache is not None:
            context = cache.load(pool, prompt[:-1], onto=context)
        found.append(len(context))
        rest = prompt[len(context) :]
        last = len(prompt) // 64 * 64 - len(context)  # where a chunk ends the disk keeps a state
        feed(context, rest, at=[last] if 0 < last <= len(rest) else [], checkpoints=True)
        answer = [len(prompt) % 11, 2, 7]
        with context.reserve(5, states=range(1, 6)) as lease:
            for at in range(5):
                step(lease, [*answer, 0, 0], at)
            lease.commit(answer)
        context.checkpoint()
        check(context)
        assert context.read(0)[0][:, 0, 0].tolist() == context.tokens
        tree.insert(context)
        if cache is not None:
            cache.save(context)
        history = context.tokens
        context.close()
    return history, found


@pytest.mark.parametrize("spilling", [False, True])
def test_pages_and_states_of_a_hybrid_are_found_together_turn_by_turn(tmp_path, spilling):
    one = sum(Pool(HYBRID, 16, pages=1).page_bytes)
    where = {"spill": Spill(tmp_path, 1 << 24, 0)} if spilling else {}
    pool = Pool(HYBRID, 16, pages=24 if spilling else 200, **where)
    tree = PrefixTree(pool, 200 * one)
    history, found = converse(pool, tree)
    assert found == [0, 73, 81, 184], "each turn goes on from the end of the one before"
    if spilling:
        pool.spill_out(1 << 40)
        assert pool.used_bytes == 0
    again, found = converse(pool, tree)
    assert again == history
    assert found == [64, 73, 128, 184]
    branch = tree.match([*history[:81], 1, 2, 3])
    assert len(branch) == 81
    check(branch)
    pool.audit()


def test_the_disk_finds_a_turn_at_the_last_chunk_that_ends_at_a_state(tmp_path):
    pool = Pool(HYBRID, 16, pages=200)
    with DiskCache(tmp_path, budget_bytes=1 << 24, min_free_bytes=0) as cache:
        history, _ = converse(pool, PrefixTree(pool, pool.budget_bytes), cache)
    with DiskCache(tmp_path, budget_bytes=1 << 24, min_free_bytes=0) as cache:
        again, found = converse(pool, PrefixTree(pool, pool.budget_bytes), cache)
        assert again == history
        assert found == [64, 73, 128, 184]
        with cache.load(pool, history) as loaded:
            assert (len(loaded), loaded.checkpoints) == (128, [64, 128])
            check(loaded)
            check(loaded, 64)
    pool.audit()
