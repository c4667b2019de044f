"""LMCache's L2 interface over our store, through LMCache's own plugin factory and base class, on the CPU."""

import os
import select
from types import SimpleNamespace as Of

import numpy as np
import pytest
from kv_hosts import host

pytest.importorskip("torch", reason="LMCache needs torch")
native = host("lmcache", "lmcache.lmcache_native")
api = host("lmcache", "lmcache.v1.distributed.api")
plugin = host("lmcache", "lmcache.v1.distributed.l2_adapters.plugin_l2_adapter")

KEYS = [api.ObjectKey(bytes([i]) * 8, "model", 0) for i in range(6)]


def adapter(tmp_path, **params):
    given = {"directory": str(tmp_path / "objects"), "budget_bytes": 1 << 20, "min_free_bytes": 0} | params
    config = plugin.PluginL2AdapterConfig("llamay_kv.adapters.lmcache", "LlamayL2Adapter", given)
    return plugin._create_plugin_adapter(config)


def objects(n, size=100, seed=0):
    rng = np.random.default_rng(seed)
    return [Of(byte_array=memoryview(bytearray(rng.bytes(size)))) for _ in range(n)]


def wait(fd):
    assert select.select([fd], [], [], 10)[0]
    os.read(fd, 8)


def store(l2, keys, values):
    task = l2.submit_store_task(keys, values)
    wait(l2.get_store_event_fd())
    return l2.pop_completed_store_tasks()[task]


def found(l2, keys):
    task = l2.submit_lookup_and_lock_task(keys, {})
    wait(l2.get_lookup_and_lock_event_fd())
    bitmap = l2.query_lookup_and_lock_result(task)
    assert l2.query_lookup_and_lock_result(task) is None
    return [bitmap.test(i) for i in range(len(keys))]


def load(l2, keys, values):
    task = l2.submit_load_task(keys, values)
    wait(l2.get_load_event_fd())
    bitmap = l2.query_load_result(task)
    return [bitmap.test(i) for i in range(len(keys))]


def test_objects_come_back_in_another_process(tmp_path):
    l2 = adapter(tmp_path)
    fds = {l2.get_store_event_fd(), l2.get_lookup_and_lock_event_fd(), l2.get_load_event_fd()}
    assert len(fds) == 3
    values = objects(3)
    result = store(l2, KEYS[:3], values)
    assert (result.is_successful(), result.bytes_transferred()) == (True, 300)
    l2.close()
    l2 = adapter(tmp_path)
    assert found(l2, KEYS[:4]) == [True, True, True, False]
    into = objects(4, seed=1)
    untouched = bytes(into[3].byte_array)
    assert load(l2, KEYS[:4], into) == [True, True, True, False]
    assert [bytes(o.byte_array) for o in into] == [*(bytes(o.byte_array) for o in values), untouched]
    l2.submit_unlock(KEYS[:3])
    l2.delete(KEYS[:1])
    assert found(l2, KEYS[:2]) == [False, True]
    assert l2.get_usage().total_bytes_used > 0
    l2.close()


def test_what_is_locked_is_not_evicted(tmp_path):
    l2 = adapter(tmp_path, budget_bytes=3 * 144)
    store(l2, KEYS[:3], objects(3))
    assert found(l2, KEYS[:1]) == [True]
    store(l2, KEYS[3:5], objects(2))
    assert found(l2, KEYS[:5]) == [True, False, False, True, True]
    l2.close()


def test_models_salts_ranks_and_weights_are_apart(tmp_path):
    l2 = adapter(tmp_path, weights="one")
    store(l2, KEYS[:1], objects(1))
    others = [
        api.ObjectKey(bytes(8), "other", 0),
        api.ObjectKey(bytes(8), "model", 1),
        api.ObjectKey(bytes(8), "model", 0, 1),
        api.ObjectKey(bytes(8), "model", 0, 0, "alice"),
    ]
    assert found(l2, [*KEYS[:1], *others]) == [True, *[False] * 4]
    l2.close()
    l2 = adapter(tmp_path, weights="two")
    assert found(l2, KEYS[:1]) == [False]
    l2.close()


def test_every_single_byte_corruption_and_every_truncation_is_a_miss(tmp_path):
    l2 = adapter(tmp_path)
    store(l2, KEYS[:1], objects(1, size=16))
    l2.close()
    (path,) = (tmp_path / "objects").glob("*.kvc")
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= int(rng.integers(1, 256))
        for broken in (bad, good[:i]):
            path.write_bytes(broken)
            l2 = adapter(tmp_path)
            into = objects(1, size=16, seed=1)
            was = bytes(into[0].byte_array)
            assert load(l2, KEYS[:1], into) == [False]
            assert bytes(into[0].byte_array) == was
            l2.close()
