"""Computed chunks outlive the process, are stored once, and are either right or absent."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_crash import CrashVfs, PowerLoss
from kv_filled import FULL, check, fill

from llamay_kv import DiskCache, Group, Identity, Key, Layer, Layout, LocalVfs, Pool, SnapshotError

MIXED = Layout([Group.full([Layer(0, 1, 2, 2)], "f32"), Group.sliding(70, [Layer(1, 1, 2, 2)], "f32")])
KEY = Key("k", b"k" * 32)
US = Identity(weights=b"us")
CHUNK_FILE = 64 * 4 * 4 + 44


def cache_on(where, budget=1 << 30, **options):
    return DiskCache(where, budget_bytes=budget, **{"key": KEY, "min_free_bytes": 0, **options})


def put(cache, context, **options):
    assert cache.save(context, **options)
    cache.flush()


def test_a_prefix_outlives_the_process(tmp_path):
    tokens = list(range(200))
    with cache_on(tmp_path) as cache:
        put(cache, fill(Pool(FULL, 64, pages=9).context(), tokens), identity=US)
    for page in (16, 64, 256):
        with cache_on(tmp_path) as cache:
            pool = Pool(FULL, page, pages=32)
            check(cache.load(pool, tokens, identity=US), tokens[:192])
            check(cache.load(pool, [*range(100), 7], identity=US), tokens[:64])
            assert len(cache.load(pool, [7, *range(100)], identity=US)) == 0
            assert len(cache.load(pool, tokens, identity=Identity(weights=b"them"))) == 0
            assert len(cache.load(pool, tokens, identity=US, tenant="alice")) == 0


@settings(max_examples=40, deadline=None)
@given(
    data=st.data(),
    layout=st.sampled_from([FULL, MIXED]),
    pages=st.tuples(*[st.sampled_from([16, 64, 256])] * 2),
)
def test_any_history_of_saves_gives_the_longest_usable_prefix(data, layout, pages):
    vfs = CrashVfs()
    writer, reader = (Pool(layout, page, pages=300) for page in pages)
    seen, ends = [], set()
    for _ in range(data.draw(st.integers(1, 4))):
        base = data.draw(st.sampled_from(seen)) if seen else []
        runs = st.lists(st.integers(1, 2), min_size=1, max_size=3)
        tokens = base[: data.draw(st.integers(0, len(base)))] + data.draw(runs) * data.draw(
            st.integers(1, 90)
        )
        context = fill(writer.context(), tokens, data.draw(st.sampled_from([64, 1000])))
        with cache_on("d", vfs=vfs) as cache:
            put(cache, context)
        seen.append(tokens)
        first = max(context.first_positions())
        ends |= {
            tuple(tokens[:n])
            for n in range(64, len(tokens) + 1, 64)
            if layout is FULL or max(0, n - 69) // 64 * 64 >= first  # chunks are stored whole
        }
    with cache_on("d", vfs=vfs) as cache:
        for tokens in seen:
            wanted = [*tokens, 9]
            expected = max((len(e) for e in ends if tuple(wanted[: len(e)]) == e), default=0)
            context = cache.load(reader, wanted)
            assert len(context) >= expected
            check(context, wanted[: len(context)])
            known = fill(reader.context(), tokens[: data.draw(st.integers(0, len(tokens)))])
            more = cache.load(reader, wanted, onto=known)
            assert len(more) >= max(len(known), expected)
            check(more, wanted[: len(more)])
            fill(more, [5, 6])
    reader.audit()


def test_a_common_history_is_stored_once(tmp_path):
    pool = Pool(FULL, 64, pages=600)
    parent = fill(pool.context(), np.arange(32_000))
    with cache_on(tmp_path) as cache:
        put(cache, parent)
        one = cache.used_bytes
        for i in range(12):
            fork = parent.fork()
            fill(fork, [i] * 100)
            put(cache, fork)
        assert cache.used_bytes <= 1.05 * one
        assert cache.used_bytes == sum(f.stat().st_size for f in tmp_path.glob("*.kvc"))


def test_the_budget_holds_over_all_identities_and_the_longest_unused_go_first(tmp_path):
    pool = Pool(FULL, 64, pages=40)
    contexts = {i: fill(pool.context(), range(i, i + 128)) for i in range(6)}
    with cache_on(tmp_path, budget=8 * CHUNK_FILE) as cache:
        for i in range(4):
            put(cache, contexts[i], identity=Identity(weights=str(i)))
        assert cache.used_bytes == 8 * CHUNK_FILE
        assert len(cache.load(pool, range(128), identity=Identity(weights="0"))) == 128
        for i in (4, 5):
            put(cache, contexts[i], identity=Identity(weights=str(i)))
        assert cache.used_bytes == 8 * CHUNK_FILE
        lengths = [
            len(cache.load(pool, range(i, i + 128), identity=Identity(weights=str(i)))) for i in range(6)
        ]
        assert lengths == [128, 0, 0, 128, 128, 128]


def test_a_free_space_floor_is_kept():
    vfs = CrashVfs(capacity=10 * CHUNK_FILE)
    pool = Pool(FULL, 64, pages=40)
    with cache_on("d", min_free_bytes=6 * CHUNK_FILE, vfs=vfs) as cache:
        put(cache, fill(pool.context(), range(640)))
        assert vfs.free_bytes("d") >= 6 * CHUNK_FILE
        assert {"evicted_chunks", "no_room"} & set(cache.counters())


@pytest.mark.parametrize("ram_bytes", [0, 1 << 20])
def test_a_chunk_that_lies_behind_the_window_is_not_taken_for_one_that_is_there(tmp_path, ram_bytes):
    pool = Pool(Layout([Group.sliding(20, [Layer(0, 1, 2, 2)], "f32")]), 16, pages=40)
    with cache_on(tmp_path, ram_bytes=ram_bytes) as cache:
        put(cache, fill(pool.context(), range(150)))
        assert len(cache.load(pool, range(150))) == 0
        assert "damaged" not in cache.counters()


def test_the_memory_tier_forgets_a_chunk_that_was_written_again_with_more(tmp_path):
    one = Layout([Group.full([Layer(0, 1, 1, 1)], "f32"), Group.sliding(20, [Layer(1, 1, 4, 4)], "f32")])
    pool = Pool(one, 64, pages=40)
    with cache_on(
        tmp_path, ram_bytes=1024
    ) as cache:  # the chunks behind the window fit, all chunks together do not
        put(cache, fill(pool.context(), range(150)))
        assert cache._files.in_memory(next(cache._links(one, np.arange(64), Identity(), "")))
        put(cache, fill(pool.context(), range(64)))
        check(cache.load(pool, range(64)), range(64))
    with cache_on(tmp_path) as cache:
        put(cache, fill(pool.context(), range(150)))
        assert not cache._files._ram, "nothing is kept where nothing may be"


def test_a_damaged_chunk_is_computed_again_and_never_used(tmp_path):
    pool = Pool(FULL, 64, pages=40)
    tokens = list(range(128))
    rng = np.random.default_rng(0)
    with cache_on(tmp_path) as cache:
        put(cache, fill(pool.context(), tokens))
    good = {f: f.read_bytes() for f in tmp_path.glob("*.kvc")}
    assert len(good) == 2
    for path, data in good.items():
        for i in [*range(60), *rng.integers(0, len(data), 40).tolist(), len(data) - 1]:
            bad = bytearray(data)
            bad[i] ^= int(rng.integers(1, 256))
            for broken in (bad, data[:i]):
                path.write_bytes(broken)
                with cache_on(tmp_path) as cache:
                    with cache.load(pool, tokens) as context:
                        assert len(context) in (0, 64)
                        check(context, tokens[: len(context)])
                    assert cache.counters()["damaged"] == 1
                assert not path.exists()
        path.write_bytes(data)


def test_chunks_cannot_change_names_and_another_key_reads_nothing(tmp_path):
    pool = Pool(FULL, 64, pages=40)
    with cache_on(tmp_path) as cache:
        put(cache, fill(pool.context(), range(128)))
    a, b = tmp_path.glob("*.kvc")
    a_data, b_data = a.read_bytes(), b.read_bytes()
    a.write_bytes(b_data)
    b.write_bytes(a_data)
    with cache_on(tmp_path) as cache:
        assert len(cache.load(pool, range(128))) == 0
    with cache_on(tmp_path, key=Key("k", b"x" * 32)) as cache:
        assert len(cache.load(pool, range(128))) == 0


def test_without_a_key_the_directory_has_a_secret_of_its_own(tmp_path):
    pool = Pool(FULL, 64, pages=40)
    for _ in range(2):
        with cache_on(tmp_path / "d", key=None) as cache:
            put(cache, fill(pool.context(), range(64)))
            assert len(cache.load(pool, range(64))) == 64
    assert (tmp_path / "d/secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "d/secret").write_bytes(b"short")
    with pytest.raises(SnapshotError, match="should have 32 bytes"):
        cache_on(tmp_path / "d", key=None)


def test_whatever_fails_nothing_is_raised_and_nothing_is_wrong():
    pool = Pool(FULL, 32, pages=80)
    tokens = list(range(200))
    context = fill(pool.context(), tokens)
    used = pool.used_bytes
    for n in range(1, 200):
        vfs = CrashVfs()
        with cache_on("d", vfs=vfs) as cache:
            vfs.fail_at = vfs.steps + n
            put(cache, context)
            for _ in range(2):
                with cache.load(pool, tokens) as loaded:
                    length = len(loaded)
                    check(loaded, tokens[:length])
            if not vfs.failed:
                assert length == 192
                break
        assert pool.used_bytes == used
    else:
        pytest.fail("it never came to its end")
    assert n > 30


def test_after_a_loss_of_power_the_cache_opens_and_is_right():
    pool = Pool(FULL, 64, pages=80)
    tokens = list(range(200))
    context = fill(pool.context(), tokens)
    lengths = set()
    for n in range(1, 60):
        vfs = CrashVfs(crash_at=n)
        acknowledged = False
        with contextlib.suppress(PowerLoss):
            cache = cache_on("d", vfs=vfs)
            put_quietly(cache, context)
            acknowledged = not vfs.dead
            cache.close()
        for seed in range(12):
            survivor = vfs.after_crash(seed)
            with cache_on("d", vfs=survivor) as cache, cache.load(pool, tokens) as loaded:
                check(loaded, tokens[: len(loaded)])
                assert len(loaded) == 192 or not acknowledged
                lengths.add(len(loaded))
    assert lengths == {0, 64, 128, 192}


def put_quietly(cache, context):
    """The writer's thread dies with the machine."""
    hook, threading.excepthook = threading.excepthook, lambda args: None
    try:
        cache.save(context)
        while not cache._files.vfs.dead and cache._queue.unfinished_tasks:
            cache._writer.join(0.005)
    finally:
        threading.excepthook = hook


def test_unfinished_files_of_the_dead_are_removed(tmp_path):
    old, new = tmp_path / ".a.kvc.1-2.partial", tmp_path / ".b.kvc.1-2.partial"
    for path in (old, new):
        path.write_bytes(b"x")
    os.utime(old, (1, 1))
    cache_on(tmp_path).close()
    assert not old.exists()
    assert new.exists()


def test_two_caches_on_one_directory_do_not_disturb_each_other(tmp_path):
    pool = Pool(FULL, 64, pages=600)
    caches = [cache_on(tmp_path, budget=6 * CHUNK_FILE) for _ in range(2)]
    errors = []

    def work(cache, seed):
        rng = np.random.default_rng(seed)
        try:
            for _ in range(40):
                start = int(rng.integers(0, 5))
                tokens = list(range(start, start + 192))
                with cache.load(pool, tokens) as context:
                    check(context, tokens[: len(context)])
                    fill(context, tokens[len(context) :])
                    cache.save(context)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(cache, i)) for i, cache in enumerate(caches * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for cache in caches:
        cache.close()
    assert not errors
    assert not [c for cache in caches for c in cache.counters() if c in ("damaged", "failed_writes")]
    pool.audit()


def test_a_writer_that_is_behind_skips():
    vfs = CrashVfs()
    gate = threading.Event()
    create = vfs.create
    vfs.create = lambda path: (gate.wait(20), create(path))[1]
    pool = Pool(FULL, 64, pages=40)
    context = fill(pool.context(), range(64))
    cache = cache_on("d", vfs=vfs, queue_contexts=1)
    taken = [cache.save(context) for _ in range(4)]
    assert taken.count(False) >= 2
    assert cache.counters()["skipped"] == taken.count(False)
    gate.set()
    cache.close()
    assert not cache.save(context)
    context.close()
    assert pool.used_bytes == 0


def test_a_hit_that_is_slower_than_computing_is_left(tmp_path):
    pool = Pool(FULL, 64, pages=40)
    with cache_on(tmp_path) as cache:
        put(cache, fill(pool.context(), range(128)))
        assert len(cache.load(pool, range(128))) == 128
        assert len(cache.load(pool, range(128), seconds_per_token=1e-12)) == 0
        assert cache.counters()["declined"] == 1
        assert len(cache.load(pool, range(128), seconds_per_token=1.0)) == 128


def test_the_memory_tier_answers_without_the_disk_and_keeps_its_bound(tmp_path):
    pool = Pool(FULL, 64, pages=40)
    with cache_on(tmp_path, ram_bytes=3 * 1024) as cache:
        put(cache, fill(pool.context(), range(320)))
        for path in tmp_path.glob("*.kvc"):
            path.unlink()
        assert cache._files._ram_bytes == 3 * 1024 == sum(len(p) for _, p in cache._files._ram.values())
        assert len(cache.load(pool, range(320))) == 0, "the beginning was the longest unused"
    with cache_on(tmp_path, ram_bytes=1 << 20) as cache:
        put(cache, fill(pool.context(), range(320)))
        for path in tmp_path.glob("*.kvc"):
            path.unlink()
        check(cache.load(pool, range(320)), range(320))


def test_a_pool_without_room_is_a_miss(tmp_path):
    with cache_on(tmp_path) as cache:
        put(cache, fill(Pool(FULL, 64, pages=40).context(), range(320)))
        pool = Pool(FULL, 64, pages=2)
        assert len(cache.load(pool, range(320))) == 0
        assert cache.counters()["no_pages"] == 1
        assert pool.used_bytes == 0


VICTIM = """
import sys
import numpy as np
from llamay_kv import DiskCache, Key, Pool
from kv_filled import FULL, fill
pool = Pool(FULL, 64, pages=64)
with DiskCache(sys.argv[1], budget_bytes=1 << 30, min_free_bytes=0, key=Key("k", b"k" * 32)) as cache:
    print("open", flush=True)
    for i in range(1000):
        with fill(pool.context(), range(i * 1000, i * 1000 + 200)) as context:
            cache.save(context)
        cache.flush()
        print(i, flush=True)
"""


def test_a_process_that_is_killed_loses_nothing_that_was_acknowledged(tmp_path):
    rng = np.random.default_rng(0)
    directory = tmp_path / "cache"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    for _ in range(3):
        command = [sys.executable, "-c", VICTIM, str(directory)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as victim:
            lines = [victim.stdout.readline().strip() for _ in range(int(rng.integers(2, 6)))]
            time.sleep(float(rng.uniform(0, 0.02)))
            victim.kill()
            lines += victim.stdout.read().split()
        acknowledged = [int(line) for line in lines if line.isdigit()]
        assert acknowledged
        pool = Pool(FULL, 64, pages=64)
        with cache_on(directory) as cache:
            for i in range(max(acknowledged) + 2):
                tokens = range(i * 1000, i * 1000 + 200)
                with cache.load(pool, tokens) as context:
                    assert len(context) == 192 or i not in acknowledged
                    check(context, tokens[: len(context)])
            assert "damaged" not in cache.counters()
        for left in directory.glob("*.partial"):
            os.utime(left, (1, 1))
        cache_on(directory).close()
        assert not list(directory.glob(".*"))


class Raising(LocalVfs):
    """Raises what it is given from one of its operations."""

    def __init__(self, name, error):
        self.name, self.error = name, error
        operation = getattr(self, name)
        setattr(self, name, lambda *args: self._call(operation, *args))

    def _call(self, operation, *args):
        if self.error is not None:
            raise self.error("on purpose")
        return operation(*args)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError])
@pytest.mark.parametrize("name", ["create", "replace", "sync_directory"])
def test_the_writer_outlives_whatever_a_file_system_raises(tmp_path, name, error):
    vfs = Raising(name, None)
    cache = cache_on(tmp_path, vfs=vfs)
    pool = Pool(FULL, 64, pages=9)
    vfs.error = error
    with fill(pool.context(), range(64)) as context:
        for _ in range(2):
            assert within(cache.flush, cache.save(context))
        assert cache.counters()["failed_writes"] == 2
        vfs.error = None
        assert within(cache.flush, cache.save(context))
    check(cache.load(pool, range(65)), range(64))
    assert not list(tmp_path.glob("*.partial"))
    assert within(cache.close)
    assert not cache.save(pool.context())
    assert within(cache.flush)
    assert within(cache.close)


def within(function, saved=True, seconds=20):
    """Whether a function returns in time."""
    assert saved
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    thread.join(seconds)
    return not thread.is_alive()


def test_saves_and_closes_of_several_threads_leave_nothing_behind(tmp_path):
    pool = Pool(FULL, 64, pages=9)
    with fill(pool.context(), range(64)) as context:
        for i in range(20):
            cache = cache_on(tmp_path / str(i), queue_contexts=1, durable=False)
            going = threading.Event()

            def save(cache=cache, going=going):
                going.wait()
                for _ in range(20):
                    cache.save(context)

            def close(cache=cache, going=going):
                going.wait()
                cache.close()

            threads = [threading.Thread(target=f, daemon=True) for f in (save, save, close, close, close)]
            for thread in threads:
                thread.start()
            going.set()
            for thread in threads:
                thread.join(20)
                assert not thread.is_alive()
            assert within(cache.flush)
    assert pool.live_pages == (0,)
