"""vLLM's tier interface over our store, through vLLM's own factory and base class, on the CPU."""

import sys
import time
from types import SimpleNamespace as Of

import numpy as np
import pytest
from kv_hosts import host

pytest.importorskip("torch", reason="vLLM's base classes need torch")
base = host("vllm", "vllm.v1.kv_offload.base")
tiering = host("vllm", "vllm.v1.kv_offload.tiering.base")
factory = host("vllm", "vllm.v1.kv_offload.tiering.factory")

BLOCKS, SIZE = 16, 512


def spec(**changes):
    model = {"name": "m", "dtype": "float16", "max_model_len": 0} | changes
    parallel = Of(
        is_parallelism_agnostic=True, rank=0, world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1
    )
    return Of(
        config=Of(
            model=Of(**model),
            cache=Of(tokens_per_hash=16, blocks_per_chunk=1),
            parallel=parallel,
            groups=(Of(tokens_per_block=16, layer_names=("a", "b"), group_id=0),),
            canonical_layout=False,
            kv_cache_layout=None,
            replicated_layout=False,
        )
    )


@pytest.fixture
def memory():
    return np.random.default_rng(0).integers(0, 256, (BLOCKS, SIZE), dtype=np.uint8)


def open_tier(tmp_path, memory, of=None, **options):
    config = {
        "type": "LlamayTier",
        "module_path": "llamay_kv.adapters.vllm",
        "directory": str(tmp_path / "blocks"),
        "budget_bytes": 1 << 20,
        "min_free_bytes": 0,
        **options,
    }
    return factory.SecondaryTierFactory.create_secondary_tier(config, memoryview(memory), of or spec())


KEYS = [base.make_offload_key(bytes([i]) * 32, 0) for i in range(BLOCKS)]
REQUEST = base.ReqContext("r")


def job(number, keys, chunks, *, load):
    return tiering.TransferJob(number, keys, np.array(chunks), load, REQUEST)


def finish(tier):
    tier.drain_jobs()
    return {result.job_id: result for result in tier.get_finished_jobs()}


def test_blocks_come_back_into_other_places_in_another_process(tmp_path, memory):
    tier = open_tier(tmp_path, memory)
    assert tier.lookup(KEYS[0], REQUEST) is base.LookupResult.MISS
    tier.submit_store(job(1, KEYS[:4], range(4), load=False))
    result = finish(tier)[1]
    assert (result.success, result.transfer_bytes) == (True, 4 * SIZE)
    assert not tier.has_pending_work()
    tier.shutdown()
    was = memory.copy()
    memory[:] = 0
    tier = open_tier(tmp_path, memory)
    assert tier.lookup(KEYS[3], REQUEST) is base.LookupResult.HIT
    tier.submit_load(job(2, KEYS[:4], [9, 8, 7, 6], load=True))
    assert finish(tier)[2].success
    np.testing.assert_array_equal(memory[[9, 8, 7, 6]], was[:4])
    assert not memory[:6].any()
    tier.touch(KEYS[:2], REQUEST)
    tier.on_new_request(REQUEST)
    tier.shutdown()


def test_blocks_of_another_model_or_other_weights_are_not_found(tmp_path, memory):
    tier = open_tier(tmp_path, memory, weights="one")
    tier.submit_store(job(1, KEYS[:1], [0], load=False))
    assert finish(tier)[1].success
    tier.shutdown()
    for of, weights in ((spec(), "two"), (spec(name="n"), "one"), (spec(dtype="bfloat16"), "one")):
        other = open_tier(tmp_path, memory, of, weights=weights)
        assert other.lookup(KEYS[0], REQUEST) is base.LookupResult.MISS
        other.shutdown()


def test_a_load_of_which_a_block_is_missing_says_which_are_there(tmp_path, memory):
    tier = open_tier(tmp_path, memory)
    tier.submit_store(job(1, KEYS[:2], [0, 1], load=False))
    finish(tier)
    tier.submit_load(job(2, KEYS[:3], [4, 5, 6], load=True))
    result = finish(tier)[2]
    assert (result.success, tuple(result.successful_keys)) == (False, tuple(KEYS[:2]))
    tier.submit_load(job(3, KEYS[5:6], [4], load=True))
    assert finish(tier)[3].successful_keys is None
    tier.shutdown()


def test_every_single_byte_corruption_and_every_truncation_is_a_miss(tmp_path, memory):
    small = memory[:, :16].copy()
    tier = open_tier(tmp_path, small)
    tier.submit_store(job(1, KEYS[:1], [0], load=False))
    assert finish(tier)[1].success
    tier.shutdown()
    (path,) = (tmp_path / "blocks").glob("*.kvc")
    good, was = path.read_bytes(), small.copy()
    rng = np.random.default_rng(0)
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= int(rng.integers(1, 256))
        for broken in (bad, good[:i]):
            path.write_bytes(broken)
            tier = open_tier(tmp_path, small)
            tier.submit_load(job(2, KEYS[:1], [3], load=True))
            assert not finish(tier)[2].success
            assert tier.lookup(KEYS[0], REQUEST) is base.LookupResult.MISS
            np.testing.assert_array_equal(small, was)
            tier.shutdown()


def test_a_tier_that_is_behind_refuses_and_holds_nothing_up(tmp_path, memory, monkeypatch):
    tier = open_tier(tmp_path, memory, pending_stores=2)
    put = tier._store.put
    monkeypatch.setattr(tier._store, "put", lambda blocks: (time.sleep(0.05), put(blocks))[1])
    started = time.perf_counter()
    for i in range(6):
        tier.submit_store(job(i, KEYS[i : i + 1], [i], load=False))
    assert time.perf_counter() - started < 0.04
    results = finish(tier)
    assert sorted(results) == list(range(6))
    assert [results[i].success for i in range(6)].count(True) == 2
    tier.shutdown()


def test_a_disk_that_fails_is_a_job_that_failed(tmp_path, memory, monkeypatch):
    tier = open_tier(tmp_path, memory)

    def fail(blocks):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tier._store, "put", fail)
    tier.submit_store(job(1, KEYS[:1], [0], load=False))
    assert not finish(tier)[1].success
    tier.shutdown()


def test_the_budget_holds_and_old_blocks_go(tmp_path, memory):
    tier = open_tier(tmp_path, memory, budget_bytes=4 * (SIZE + 44))
    for i in range(8):
        tier.submit_store(job(i, KEYS[i : i + 1], [i], load=False))
        assert finish(tier)[i].success
    hits = [tier.lookup(key, REQUEST) is base.LookupResult.HIT for key in KEYS[:8]]
    assert hits == [False] * 4 + [True] * 4
    tier.shutdown()


def test_importing_the_package_imports_no_engine():
    code = "import sys, llamay_kv; assert not {'vllm', 'torch', 'sglang'} & set(sys.modules)"
    import subprocess

    subprocess.run([sys.executable, "-c", code], check=True)
