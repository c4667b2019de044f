"""Pages that are not in use make room, and come back exactly; a page that cannot come back is lost alone."""

import gc
import os
import threading

import numpy as np
import pytest

from llamay_kv import Group, Key, Layer, Layout, OutOfPagesError, PagesLostError, Pool, PrefixTree, Spill
from llamay_kv.storage.spill import LocalScratchFile

LAYOUT = Layout([Group.full([Layer(0, 1, 8, 8)], "f32"), Group.sliding(20, [Layer(1, 1, 4, 4)], "f32")])
PAGE = sum(Pool(LAYOUT, 16, pages=1).page_bytes)


class Files:
    """Scratch files that can be looked into and made to fail."""

    def __init__(self):
        self.all, self.fail, self.free = [], set(), 1 << 40

    def __call__(self, folder):
        files = self

        class Scratch(LocalScratchFile):
            def __init__(self):
                super().__init__(folder)
                files.all.append(self)
                self.grown = 0

            def grow(self, size):
                self._try("grow")
                self.grown = size
                super().grow(size)

            def write(self, data, offset):
                self._try("write")
                super().write(data, offset)

            def read_into(self, buffer, offset):
                self._try("read")
                return super().read_into(buffer, offset)

            def free_bytes(self):
                return files.free - self.grown

            def _try(self, call):
                if call in files.fail:
                    raise OSError(f"{call} failed")

            def bytes(self):
                size = os.fstat(self._fd).st_size
                return os.pread(self._fd, size, 0)

            def flip(self, at):
                (byte,) = os.pread(self._fd, 1, at)
                os.pwrite(self._fd, bytes([byte ^ 1]), at)

        return Scratch()


@pytest.fixture
def files():
    return Files()


def make(tmp_path, files, pages=4, spill_pages=64, layout=LAYOUT, **more):
    spill = Spill(tmp_path, spill_pages * (PAGE + 64), 0, scratch=files, **more)
    return Pool(layout, 16, pages=pages, spill=spill)


def fill(context, tokens):
    tokens = list(tokens)
    values = np.array(tokens, "f4")[:, None, None] + np.arange(8, dtype="f4")
    with context.reserve(len(tokens)) as lease:
        lease.write(0, values, -values)
        lease.write(1, values[:, :, :4], -values[:, :, :4])
        lease.commit(tokens)
    return context


def check(context, tokens):
    tokens = list(tokens)
    assert context.tokens == tokens
    values = np.array(tokens, "f4")[:, None, None] + np.arange(8, dtype="f4")
    first = context.first_positions()
    for layer, width in ((0, 8), (1, 4)):
        k, v = context.read(layer, first[layer])
        np.testing.assert_array_equal(k, values[first[layer] :, :, :width])
        np.testing.assert_array_equal(v, -values[first[layer] :, :, :width])


def test_many_contexts_live_where_memory_has_room_for_two(tmp_path, files):
    pool = make(tmp_path, files)
    contexts = {n: fill(pool.context(), range(n, n + 30)) for n in range(0, 2000, 100)}
    pool.audit()
    assert pool.used_bytes <= pool.budget_bytes
    assert pool.spill_counters()["spilled_pages"] > 60
    for n, context in [*contexts.items(), *reversed(contexts.items())]:
        check(context, range(n, n + 30))
        fill(context, [7])
        check(context, [*range(n, n + 30), 7])
        context.truncate(30)
    pool.audit()
    counters = pool.spill_counters()
    assert counters["read_pages"] > 60
    assert counters["file_bytes"] <= counters["budget_bytes"]
    assert counters["failed_reads"] == counters["failed_writes"] == 0
    for context in contexts.values():
        context.close()
    pool.audit()
    assert pool.used_bytes == 0
    assert pool.spill_counters()["spilled_bytes"] == 0


def test_forks_share_what_is_in_the_file(tmp_path, files):
    pool = make(tmp_path, files, pages=8)
    parent = fill(pool.context(), range(30))
    forks = parent.fork(6)
    assert pool.spill_out(1 << 40) == 2 * PAGE
    assert pool.used_bytes == 0
    assert parent.fork().tokens == list(range(30)), "a fork brings nothing back"
    assert pool.used_bytes == 0
    fill(forks[0], [5])
    check(forks[0], [*range(30), 5])
    check(forks[1], range(30))
    check(parent, range(30))
    pool.audit()
    assert pool.spill_counters()["read_pages"] == 4, "each page came back once"


def test_the_longest_unused_goes_first_and_what_is_at_work_stays(tmp_path, files):
    pool = make(tmp_path, files, pages=128)  # spilling is in pieces of a 64th of the budget
    a, b, c = (fill(pool.context(), range(n, n + 30)) for n in (0, 100, 200))
    check(a, range(30))
    pool.spill_out(2 * PAGE)
    assert pool.used_bytes == 4 * PAGE
    reads = pool.spill_counters()["read_pages"]
    check(a, range(30))
    check(c, range(200, 230))
    assert pool.spill_counters()["read_pages"] == reads, "b went, not a or c"
    check(b, range(100, 130))
    with a.reserve(1), b.reserve(1):
        k, v = c.page(0, 0)
        pool.spill_out(1 << 40)
        assert pool.used_bytes == 6 * PAGE
        np.testing.assert_array_equal(k[:, 0, 0], np.arange(200, 216))
    del k, v
    pool.spill_out(1 << 40)
    assert pool.used_bytes == 0
    pool.audit()


def test_a_context_larger_than_what_is_left_says_so_and_stays(tmp_path, files):
    pool = make(tmp_path, files, pages=4)
    small, large = fill(pool.context(), range(16)), fill(pool.context(), range(100, 148))
    pool.spill_out(1 << 40)
    with small.reserve(16):
        with pytest.raises(OutOfPagesError, match="bytes of the context are in the spill file and"):
            large.read(0)
        with pytest.raises(OutOfPagesError):
            large.reserve(1)
    check(large, range(100, 148))
    with pytest.raises(OutOfPagesError):
        large.reserve(33)
    check(large, range(100, 148))
    check(small, range(16))
    pool.audit()


def test_the_tree_s_pages_go_too_and_are_found_again(tmp_path, files):
    pool = make(tmp_path, files, pages=4)
    tree = PrefixTree(pool, 40 * PAGE)
    for n in range(0, 1000, 100):
        with fill(pool.context(), range(n, n + 30)) as context:
            tree.insert(context)
    assert tree.counters()["evicted_pages"] == 0
    assert tree.used_bytes > 4 * pool.budget_bytes
    pool.audit()
    for n in range(0, 1000, 100):
        with tree.match(range(n, n + 30)) as context:
            check(context, range(n, n + 30))
    pool.audit()


def test_a_tree_gives_up_pages_where_the_file_is_full(tmp_path, files):
    pool = make(tmp_path, files, pages=4, spill_pages=3)
    tree = PrefixTree(pool, 40 * PAGE)
    for n in range(0, 1000, 100):
        with fill(pool.context(), range(n, n + 30)) as context:
            tree.insert(context)
    assert tree.counters()["evicted_pages"] > 0
    assert pool.spill_counters()["no_room"] > 0
    pool.audit()
    with tree.match(range(900, 930)) as context:
        check(context, context.tokens)


def test_what_is_in_the_file_is_not_given_up_for_memory(tmp_path, files):
    pool = make(tmp_path, files, pages=16)
    tree = PrefixTree(pool, 40 * PAGE)
    with fill(pool.context(), range(60)) as context:
        tree.insert(context)
    pool.spill_out(1 << 40)
    with fill(pool.context(), range(100, 130)) as context:
        tree.insert(context)
    assert tree.reclaim(1 << 40) == 2 * PAGE
    assert pool.used_bytes == 0
    assert tree.explain_miss(range(60)).equal == 60
    assert tree.explain_miss(range(100, 130)).equal == 0
    pool.audit()


def test_recurrent_states_and_checkpoints_come_back(tmp_path, files):
    layout = Layout([Group.recurrent([Layer(0, 1, 4, 60)]), Group.full([Layer(1, 1, 4, 4)], "f32")])
    pool = Pool(layout, 16, pages=40, spill=Spill(tmp_path, 1 << 20, 0, scratch=files))
    context = pool.context()
    for n in range(1, 6):
        states = {0: (np.full((1, 4), n, "f4"), np.full((1, 60), n, "f4"))}
        context.extend(
            range(10), {1: (np.full((10, 1, 4), n, "f4"), np.full((10, 1, 4), n, "f4"))}, states=states
        )
        context.checkpoint()
    pool.spill_out(1 << 40)
    assert pool.used_bytes == 0
    pool.audit()
    for n in range(5, 0, -1):
        context.truncate(10 * n)
        assert (context.state(0)[1] == n).all()
        pool.audit()
        pool.spill_out(1 << 40)


@pytest.mark.parametrize("damage", ["read", "flip", "rolled back"])
def test_a_failed_read_back_drops_exactly_that_context(tmp_path, files, damage):
    pool = make(tmp_path, files, pages=16)
    tree = PrefixTree(pool, 40 * PAGE)
    context, other = fill(pool.context(), range(30)), fill(pool.context(), range(100, 130))
    tree.insert(context)
    fork = context.fork()
    if damage == "rolled back":
        pool.spill_out(1 << 40)
        old = [file.bytes() for file in files.all]
        check(context, range(30))
        check(other, range(100, 130))
    pool.spill_out(1 << 40)
    if damage == "rolled back":
        for file, content in zip(files.all, old, strict=True):
            file.write(content, 0)
    elif damage == "flip":
        for file in files.all:
            for at in range(0, len(file.bytes()), len(file.bytes()) // 4):
                file.flip(at)
    else:
        files.fail.add("read")
    with pytest.raises(
        PagesLostError, match=r"could not be read back: .*; the context needs it and was closed"
    ):
        context.read(0)
    assert context.closed
    pool.audit()
    files.fail.clear()
    if damage == "read":
        check(other, range(100, 130))
    with pytest.raises(PagesLostError, match="could not be read back"):
        fork.reserve(1)
    assert fork.closed
    pool.audit()
    found = tree.match(range(30))
    assert len(found) < 30, "the tree does not offer what is lost"
    if damage == "read":
        check(found, range(len(found)))
    found.close()
    for _ in range(5):  # a lost page is noticed when it is asked for again
        with fill(pool.context(), range(30)) as again:
            tree.insert(again)
        with tree.match(range(30)) as found:
            try:
                check(found, range(30))
                break
            except PagesLostError:
                assert damage != "read"
    assert len(tree.match(range(30))) == 30
    pool.audit()


@pytest.mark.parametrize("call", ["write", "grow"])
def test_what_cannot_be_written_stays_in_memory(tmp_path, files, call):
    pool = make(tmp_path, files, pages=4)
    context = fill(pool.context(), range(60))
    files.fail.add(call)
    with pytest.raises(OutOfPagesError):
        pool.context().reserve(16)
    assert pool.spill_counters()["failed_writes"] > 0
    check(context, range(60))
    files.fail.clear()
    fill(pool.context(), range(16))
    check(context, range(60))
    pool.audit()


def test_the_file_system_keeps_its_floor(tmp_path, files):
    spill = Spill(tmp_path, 1 << 20, 1000, scratch=files)
    pool = Pool(LAYOUT, 16, pages=4, spill=spill)
    context = fill(pool.context(), range(60))
    files.free = 1000 + PAGE
    assert pool.spill_out(1 << 40) <= PAGE
    assert pool.spill_counters()["no_room"] > 0
    assert sum(file.grown for file in files.all) <= PAGE
    check(context, range(60))


def test_nothing_in_the_file_can_be_read_and_nothing_is_left(tmp_path, files):
    needle = np.full((16, 1, 8), 1234.5, "f4")
    for key in (None, Key.generate("k")):
        pool = make(tmp_path, files, key=key)
        context = pool.context()
        context.extend(range(16), {0: (needle, needle), 1: (needle[:, :, :4], needle[:, :, :4])})
        pool.spill_out(1 << 40)
        file = files.all[-2].bytes()
        assert len(file) > PAGE / 2
        assert needle.tobytes()[:32] not in file
        assert (context.read(0)[0] == 1234.5).all()
        assert list(tmp_path.iterdir()) == [], "the file has no name"
        fd = files.all[-1]._fd
        del pool, context, file
        gc.collect()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_threads_that_use_and_spill_at_once(tmp_path, files):
    pool = make(tmp_path, files, pages=24)
    tree = PrefixTree(pool, 200 * PAGE)
    errors = []

    def work(t):
        rng = np.random.default_rng(t)
        try:
            mine = {}
            for i in range(60):
                n = int(rng.integers(0, 8)) * 100
                context = tree.match(range(n, n + 40))
                fill(context, range(n + len(context), n + 40))
                tree.insert(context)
                mine[(t, i)] = (context, n)
                if len(mine) > 6:
                    old, at = mine.pop(min(mine))
                    check(old, range(at, at + 40))
                    old.close()
                if i % 10 == 0:
                    pool.spill_out(8 * PAGE)
            for context, n in mine.values():
                check(context, range(n, n + 40))
                context.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(t,)) for t in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a deadlock"
    assert [e for e in errors if not isinstance(e, OutOfPagesError)] == []
    pool.audit()
    assert pool.spill_counters()["read_pages"] > 0


def test_wrong_arguments_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="the folder for spilled pages does not exist"):
        Pool(LAYOUT, 16, pages=1, spill=Spill(tmp_path / "none", 1000))
    with pytest.raises(ValueError, match="a spill needs room"):
        Spill(tmp_path, 0)
    with pytest.raises(ValueError, match="the allocator cannot give memory back"):
        Pool(LAYOUT, 16, pages=1, spill=Spill(tmp_path, 1000), allocator=bytearray)
    pool = Pool(LAYOUT, 16, pages=1)
    assert (pool.spill_out(1), pool.spill_counters()) == (0, {})


def test_a_parent_whose_fork_went_on_can_still_be_spilled(tmp_path, files):
    pool = make(tmp_path, files)
    parents = [fill(pool.context(), range(n, n + 20)) for n in range(0, 600, 100)]
    for parent in parents:
        with parent.fork() as fork:
            fill(fork, [1, 2, 3])  # copies the table that the two shared
    assert pool.spill_out(1 << 40) > 0
    assert pool.used_bytes == 0
    for n, parent in zip(range(0, 600, 100), parents, strict=True):
        check(parent, range(n, n + 20))
    pool.audit()
