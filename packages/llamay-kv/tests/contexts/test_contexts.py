"""The promises of a context, one at a time."""

import ctypes
import gc
import mmap
import resource
import subprocess
import sys
import threading
import timeit
from pathlib import Path

import numpy as np
import pytest
from kv_filled import FULL, check, fill

import llamay_kv
from llamay_kv import (
    ClosedError,
    Context,
    ContextBusyError,
    Group,
    Layer,
    Layout,
    OutOfPagesError,
    Pool,
    PrefixTree,
    Spill,
    _kv,
)


@pytest.fixture
def pool():
    return Pool(Layout.uniform(2, 2, 4, 3, "f32"), 16, pages=64)


def append(context, n, value=1.0):
    layout = context.pool.layout
    with context.reserve(n) as lease:
        for group in layout.groups:
            for layer in group.layers:
                k = np.full((n, layer.kv_heads, layer.k_dim), value, "f4")
                v = np.full((n, layer.kv_heads, layer.v_dim), -value, "f4")
                lease.write(layer.index, k, v)
        lease.commit(range(n))


def test_a_full_pool_says_so_and_changes_nothing(pool):
    context = pool.context()
    append(context, 16 * 63 + 1)
    with pytest.raises(
        OutOfPagesError, match=r"out of pages: \d+ bytes wanted, 0 of the budget of \d+ bytes"
    ):
        context.reserve(16)
    assert (len(context), context.leased, pool.used_bytes) == (16 * 63 + 1, False, pool.budget_bytes)
    assert issubclass(OutOfPagesError, MemoryError)
    append(context, 15)


def test_a_fork_takes_no_page_and_a_write_takes_one(pool):
    parent = pool.context()
    append(parent, 20)
    forks = parent.fork(8)
    assert pool.live_pages == (2,)
    append(forks[0], 1, 5.0)
    assert pool.live_pages == (3,)
    assert pool.holders(0, parent.page_numbers(0)[0]) == 2
    assert [len(f) for f in forks] == [21] + [20] * 7


def test_overwriting_a_fork_leaves_the_parent(pool):
    parent = pool.context()
    append(parent, 20)
    fork = parent.fork()
    fork.overwrite(0, 3, np.full((2, 2, 4), 9, "f4"), np.full((2, 2, 3), 9, "f4"))
    assert (parent.read(0)[0] == 1).all()
    assert (fork.read(0, 3, 5)[0] == 9).all()


def test_float32_is_rounded_to_nearest_even_in_f16():
    pool = Pool(Layout.uniform(1, 1, 8, precision="f16"), 16, pages=1)
    context, rng = pool.context(), np.random.default_rng(3)
    k, v = (
        rng.standard_normal((16, 1, 8)).astype("f4") * 10.0 ** rng.integers(-9, 6, (16, 1, 8)) for _ in "kv"
    )
    with np.errstate(over="ignore"), context.reserve(16) as lease:
        lease.write(0, k.astype("f4"), v.astype("f4"))
        lease.commit(range(16))
        for got, sent in zip(context.read(0, raw=True), (k, v), strict=True):
            np.testing.assert_array_equal(got.view("u2"), sent.astype("f4").astype("f2").view("u2"))


def test_a_page_is_seen_without_a_copy_and_cannot_be_written(pool):
    context = pool.context()
    append(context, 20)
    k, v = context.page(1, 1)
    assert k.shape == (4, 2, 4)
    assert k.strides == (4, 4 * 4 * 16, 4 * 16), "K is dimension-major"
    assert not k.flags.writeable
    assert not v.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        k[0] = 0
    np.testing.assert_array_equal(np.from_dlpack(k), k)
    context.close()
    assert pool.live_pages == (2,)
    assert (k == 1).all()
    del k, v
    assert pool.used_bytes == 0


def test_what_a_lease_did_not_commit_is_given_back(pool):
    context = pool.context()
    with context.reserve(40) as lease:
        assert (lease.begin, len(lease), pool.live_pages) == (0, 40, (3,))
        lease.commit([7])
        assert not lease.open
    assert (context.tokens, pool.live_pages) == ([7], (1,))
    with pytest.raises(RuntimeError, match="in the middle"), context.reserve(40):
        raise RuntimeError("in the middle")
    assert (context.tokens, pool.live_pages, context.leased) == ([7], (1,), False)


def test_a_forgotten_lease_ends_with_its_object(pool):
    context = pool.context()
    lease = context.reserve(5)
    del lease
    gc.collect()
    append(context, 1)


def test_one_lease_at_a_time(pool):
    context = pool.context()
    with context.reserve(3) as lease:
        for change in (
            lambda: context.reserve(1),
            lambda: context.truncate(0),
            lambda: setattr(context, "side", {}),
        ):
            with pytest.raises(ContextBusyError, match="has an open lease; commit or release it first"):
                change()
        with pytest.raises(ValueError, match="cannot commit 4 tokens: 3 are reserved"):
            lease.commit([1, 2, 3, 4])
        lease.commit([1])
        with pytest.raises(ClosedError, match="the lease has ended"):
            lease.commit([1])
    assert context.tokens == [1]


def test_another_thread_is_refused_while_a_lease_is_open(pool):
    context = pool.context()
    errors, names = [], []

    def use():
        for operation in (context.fork, context.close, lambda: context.read(0), lambda: context.reserve(1)):
            try:
                operation()
            except ContextBusyError as error:
                errors.append(str(error))
        names.append(repr(context))

    with context.reserve(3):
        assert repr(context) == "<Context of 0 tokens, leased>"
        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
    assert len(errors) == 4
    assert names == ["<Context of 0 tokens, leased>"]
    assert all("leased to another thread" in e for e in errors)


def test_a_closed_context_says_so(pool):
    with pool.context() as context:
        append(context, 3)
        lease = context.reserve(1)
    assert (context.closed, len(context), pool.used_bytes) == (True, 0, 0)
    context.close()
    for use in (context.fork, lambda: context.tokens, lambda: context.reserve(1), lambda: context.read(0)):
        with pytest.raises(ClosedError, match="the context is closed"):
            use()
    with pytest.raises(ClosedError, match="the context of this lease is closed"):
        lease.commit([])
    assert repr(context) == "<Context closed>"


def page(context):
    return np.ones((1, 2, 4), "f4"), np.ones((1, 2, 3), "f4")


def test_side_state_belongs_to_one_length(pool):
    context = pool.context()
    append(context, 4)
    context.side = {"logits": (1, b"\0" * 8), "sampler": (2, b"seed")}
    fork = context.fork()
    assert fork.side == context.side == {"logits": (1, b"\0" * 8), "sampler": (2, b"seed")}
    fork.truncate(3)
    append(context, 1)
    assert (fork.side, context.side) == ({}, {})
    again = pool.context()
    append(again, 4)
    for change in (lambda c: c.truncate(2), lambda c: c.truncate(0), lambda c: c.overwrite(0, 1, *page(c))):
        changed = again.fork()
        changed.side = {"sampler": (2, b"seed")}
        change(changed)
        assert changed.side == {}
    again.side = {"sampler": (2, b"seed")}
    again.truncate(4)
    assert again.side == {"sampler": (2, b"seed")}, "it is of this very length still"


def test_pages_behind_a_window_go_and_forks_keep_theirs():
    layout = Layout([Group.sliding(20, [Layer(0, 1, 4, 4)]), Group.full([Layer(1, 1, 4, 4)])])
    pool = Pool(layout, 16, pages=64)
    context = pool.context()
    append(context, 32)
    fork = context.fork()
    append(context, 100, 2.0)
    assert context.page_numbers(0)[:7] == [-1] * 7
    assert min(context.page_numbers(0)[7:] + context.page_numbers(1)) >= 0
    assert (fork.read(0)[0] == 1).all()
    with pytest.raises(ValueError, match="positions before 112 were dropped: they lie behind the window"):
        context.read(0, 111)
    context.read(0, 112)
    with pytest.raises(ValueError, match="cannot truncate to 120 tokens: position 101 was dropped"):
        context.truncate(120)
    context.truncate(131)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Pool(Layout.uniform(1, 1, 1), 24, pages=1),
            "page_tokens must be a power of two from 16",
        ),
        (
            lambda: Pool(Layout.uniform(1, 0, 1), 16, pages=1),
            "layer 0: kv_heads, k_dim and v_dim must be",
        ),
        (
            lambda: Pool(Layout.uniform(1, 1, 64), 64, budget_bytes=1000),
            "a budget of 1000 bytes is too small",
        ),
        (lambda: Pool(Layout.uniform(1, 1, 1), 16, pages=0), "pages is out of range"),
        (lambda: Group.full([]), "at least one layer"),
        (lambda: Group.sliding(0, [Layer(0, 1, 1, 1)]), "needs a window of at least 1"),
        (lambda: Layout([Group.full([Layer(0, 1, 1, 1), Layer(0, 1, 1, 1)])]), "a layer is listed twice"),
        (
            lambda: Group.full([Layer(0, 1, 1, 1)], "f8"),
            "precision must be 'f32' or 'f16' or 'vq8' or 'q8', not 'f8'",
        ),
    ],
)
def test_a_wrong_layout_names_what_is_wrong(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_pool_needs_exactly_one_bound():
    for bounds in ({}, {"pages": 1, "budget_bytes": 1 << 20}):
        with pytest.raises(TypeError, match="either budget_bytes or pages"):
            Pool(Layout.uniform(1, 1, 1), **bounds)


def test_arrays_of_the_wrong_shape_are_refused(pool):
    context = pool.context()
    with context.reserve(2) as lease:
        good = np.zeros((2, 2, 4), "f4"), np.zeros((2, 2, 3), "f4")
        with pytest.raises(ValueError, match=r"k has the shape \(2, 2, 3\), but layer 0 takes \(n, 2, 4\)"):
            lease.write(0, good[1], good[1])
        with pytest.raises(TypeError, match="both be float32 or both be float16"):
            lease.write(0, good[0], good[1].astype("f2"))
        with pytest.raises(ValueError, match=r"positions \[1, 3\) are not within \[0, 2\)"):
            lease.write(0, *good, offset=1)
        with pytest.raises(IndexError, match="the layout has no layer 7"):
            lease.write(7, *good)


get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def test_the_capsule_is_the_struct_of_the_header(pool):
    context = pool.context()
    append(context, 20)
    with context.reserve(4) as lease:
        address = get_pointer(lease.__llamay_kv_view__(major=1), b"llamay.kv_view.v1")
        assert address
        capsule = lease.__llamay_kv_view__()
        words = (ctypes.c_uint32 * 10).from_address(get_pointer(capsule, b"llamay.kv_view.v1"))
        size, group_stride, n_groups, n_tokens, n_reserved = words[0], words[2], words[3], words[6], words[7]
        assert (size, group_stride, n_groups, n_tokens, n_reserved) == (32, 80, 1, 20, 4)
        with pytest.raises(BufferError, match=r"offers kv_view 1\.2, but major version 2 was asked for"):
            lease.__llamay_kv_view__(2)
    assert llamay_kv.INTERFACE["kv_view"] == _kv.kv_view_version()


def test_a_fork_costs_the_same_at_any_length():
    pool = Pool(Layout.uniform(1, 1, 1), 16, pages=1 << 15)
    times = {}
    for pages in (1, 1 << 15):
        context = pool.context()
        with context.reserve(16 * pages) as lease:
            lease.commit(np.zeros(16 * pages, np.int32))
        times[pages] = min(timeit.repeat(context.fork, number=2000, repeat=20)) / 2000
        context.close()
    assert times[1 << 15] < 5 * times[1]
    assert times[1 << 15] < 5e-6


def test_trim_gives_memory_back_and_keeps_what_is_held(pool):
    context = pool.context()
    append(context, 100)
    fork = context.fork()
    append(context, 300)
    context.close()
    assert pool.trim() > 0
    assert (fork.read(1)[0] == 1).all()
    append(fork, 200)
    pool.audit()


def test_public_names_are_exactly_these():
    assert set(llamay_kv.__all__) == {n for n in dir(llamay_kv) if not n.startswith("_")}
    assert all(getattr(llamay_kv, name) is not None for name in llamay_kv.__all__)
    with pytest.raises(AttributeError, match="module 'llamay_kv' has no attribute 'nothing'"):
        _ = llamay_kv.nothing
    assert Context.__module__ == "llamay_kv.context"


def test_importing_it_loads_nothing_heavy():
    heavy = "numpy", "cryptography", "obstore", "torch"
    code = f"import sys, llamay_kv; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["[]"]


def test_reads_fill_arrays_that_are_given(pool):
    context = pool.context()
    append(context, 20, 3.0)
    out = np.zeros((15, 2, 4), "f4"), np.zeros((15, 2, 3), "f4")
    k, v = context.read(1, 5, out=out)
    assert k is out[0]
    assert v is out[1]
    assert (k == 3).all()
    assert (v == -3).all()
    frozen = out[0].copy()
    frozen.flags.writeable = False
    for wrong in (
        (out[0][:4], out[1]),
        (out[0].astype("f2"), out[1]),
        (out[0].swapaxes(0, 1), out[1]),
        (frozen, out[1]),
    ):
        with pytest.raises(
            ValueError, match=r"out: k must be a writable, contiguous array of float32 with the shape"
        ):
            context.read(1, 5, out=wrong)


def test_a_retained_context_goes_with_its_last_owner(pool):
    context = pool.context()
    append(context, 3)
    with context.retain() as same:
        assert same is context
        context.close()
        assert len(context) == 3
    assert context.closed
    assert pool.used_bytes == 0
    with pytest.raises(ClosedError):
        context.retain()


def test_extend_is_reserve_write_and_commit_or_nothing(pool):
    context = pool.context()
    k, v = np.full((3, 2, 4), 2, "f4"), np.full((3, 2, 3), 3, "f4")
    context.extend([5, 6, 7], {0: (k, v), 1: (k, v)})
    assert context.tokens == [5, 6, 7]
    np.testing.assert_array_equal(context.read(1)[1], v)
    for tokens, rows, message in (
        ([1, 2, 3], {0: (k, v)}, "layer 1 is missing"),
        ([1, 2, 3], {0: (k, v), 1: (k, v), 9: (k, v)}, "layer 9 is not one of the layout"),
        ([1, 2], {0: (k[:2], v[:2]), 1: (k, v)}, "layer 1 has 3 positions for 2 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            context.extend(tokens, rows)
    assert (context.tokens, context.leased, pool.live_pages) == ([5, 6, 7], False, (1,))


def test_pages_live_in_memory_that_was_handed_in():
    blocks = []

    def allocate(n):
        blocks.append(mmap.mmap(-1, n))
        return blocks[-1]

    pool = Pool(Layout.uniform(2, 2, 4, 3, "f32"), 16, pages=8, allocator=allocate)
    context = pool.context()
    append(context, 20, 1234.5)
    assert np.float32(1234.5).tobytes() * 8 in bytes(blocks[0])
    with pytest.raises(BufferError):
        blocks[0].close()
    views = context.page(0, 0)
    del context, pool
    gc.collect()
    assert (views[0] == 1234.5).all(), "a view keeps the memory"
    del views
    gc.collect()
    blocks[0].close()


def test_an_allocator_in_c_is_a_table_of_functions(pool):
    libc = ctypes.CDLL(None)
    calls = []
    kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    end = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64)
    libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t] * 2
    libc.free.argtypes = [ctypes.c_void_p]

    def allocate(_, n):
        calls.append(n)
        return libc.aligned_alloc(64, n)

    def release(_, memory, n):
        calls.append(-n)
        libc.free(memory)

    copies = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_uint64] * 3)
    copied = []

    def copy(_, to, source, size, rows, stride):
        copied.append((size, rows, stride))
        for row in range(rows):
            ctypes.memmove(to + row * stride, source + row * stride, size)

    class Table(ctypes.Structure):
        _fields_ = [
            ("size", ctypes.c_size_t),
            ("user", ctypes.c_void_p),
            ("allocate", kind),
            ("release", end),
            ("discard", ctypes.c_void_p),
            ("copy", ctypes.c_void_p),
        ]

    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Provider:
        def __init__(self, size, name=b"llamay.allocator.v1"):
            self.copy = copies(copy)
            address = ctypes.cast(self.copy, ctypes.c_void_p)
            self.table = Table(size, None, kind(allocate), end(release), None, address)
            self.name = name

        def __llamay_allocator__(self, major):
            assert major == 1
            return make(ctypes.addressof(self.table), self.name, None)

    layout = Layout.uniform(2, 2, 4, 3, "f32")
    provider = Provider(ctypes.sizeof(Table))
    theirs = Pool(layout, 16, pages=8, allocator=provider)
    append(theirs.context(), 20)
    del theirs
    gc.collect()
    assert calls == [8 * pool.page_bytes[0], -8 * pool.page_bytes[0]]
    for size in (ctypes.sizeof(Table), 40):  # 40 bytes are allocator 1.0, which has no copy
        copied.clear()
        theirs = Pool(layout, 16, pages=8, allocator=Provider(size))
        context = theirs.context()
        append(context, 20, 3.0)
        forks = context.fork(2)
        append(forks[0], 1, 5.0)  # clones the four slots of the last page
        forks[1].overwrite(0, 2, np.ones((1, 2, 4), "f4"), np.ones((1, 2, 3), "f4"))  # clones a whole page
        partial = [(16, 8, 64), (48, 2, 192)] * 2  # K and V of both layers, four slots each
        assert copied == ([*partial, (theirs.page_bytes[0], 1, theirs.page_bytes[0])] if size > 40 else [])
        assert (context.read(0)[0] == 3).all()
        assert (forks[0].read(0)[0][:20] == 3).all()
        assert (forks[1].read(0)[0][3:] == 3).all()
        theirs.audit()
        del theirs, context, forks
    for wrong, error, message in (
        (Provider(8), BufferError, "its struct has 8 bytes or lacks a function"),
        (Provider(48, b"other"), BufferError, r"expected a capsule named llamay\.allocator\.v1"),
        (3, TypeError, "give an object with __llamay_allocator__"),
        (lambda n: bytearray(n // 2), ValueError, "bytes and gave fewer"),
    ):
        with pytest.raises(error, match=message):
            Pool(layout, 16, pages=8, allocator=wrong)


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads its own memory from /proc")
@pytest.mark.parametrize("budget", [10**14, 2**63, 2**64 - 1])
@pytest.mark.parametrize("spilled", [False, True])
def test_a_huge_budget_takes_memory_only_for_pages_in_use(tmp_path, budget, spilled):
    spill = Spill(tmp_path, 2**64 - 1, 0) if spilled else None
    before = resident_bytes()
    pool = Pool(FULL, 16, budget_bytes=budget, spill=spill)
    tree = PrefixTree(pool, budget)
    check(fill(pool.context(), range(1000)), range(1000))
    with fill(pool.context(), range(100)) as context:
        tree.insert(context)
    pool.spill_out(1)
    check(tree.match(range(100)), range(100))
    pool.audit()
    assert resident_bytes() - before < 64 << 20
    assert pool.budget_bytes == budget


def test_a_budget_beyond_the_address_space_is_refused():
    layout = Layout([Group.full([Layer(0, 64, 256, 256)], "f32")])  # pages of 128 MiB
    with pytest.raises(
        RuntimeError, match=r"cannot reserve \d+ bytes of address space for pages: .*; lower the budget"
    ):
        Pool(layout, 1024, budget_bytes=2**63)
