"""SGLang's HiCache interface over our store, through SGLang's own factory and base class, on the CPU."""

import numpy as np
import pytest
from kv_hosts import host

torch = pytest.importorskip("torch", reason="SGLang's base classes need torch")
BARE = ("sglang", "sglang.srt", "sglang.srt.mem_cache")
hicache = host("sglang", "sglang.srt.mem_cache.hicache_storage", *BARE)
factory = host("sglang", "sglang.srt.mem_cache.storage.backend_factory", *BARE)

PAGE = 4  # tokens
ROW = 8  # elements of a token


class HostPool:
    """As much of a host memory pool as a backend asks for."""

    page_size = PAGE

    def __init__(self, seed):
        self.memory = torch.from_numpy(
            np.random.default_rng(seed).standard_normal((64, ROW), np.float32).astype(np.float16)
        )

    def get_data_page(self, index, flat=True):
        return self.memory[index : index + PAGE].flatten()

    def get_dummy_flat_data_page(self):
        return torch.zeros(PAGE * ROW, dtype=torch.float16)

    def set_from_flat_data_page(self, index, page):
        self.memory[index : index + PAGE] = page.view(PAGE, ROW)


def storage(tmp_path, *, pools=("kv",), **changes):
    extra = {
        "backend_name": "llamay",
        "module_path": "llamay_kv.adapters.sglang",
        "class_name": "LlamayStorage",
        "directory": str(tmp_path / "pages"),
        "budget_bytes": 1 << 20,
        "min_free_bytes": 0,
    } | changes.pop("extra", {})
    config = {
        "tp_rank": 0,
        "tp_size": 1,
        "pp_rank": 0,
        "pp_size": 1,
        "attn_cp_rank": 0,
        "attn_cp_size": 1,
        "is_mla_model": False,
        "enable_storage_metrics": False,
        "is_page_first_layout": True,
        "model_name": "m",
        "extra_config": extra,
    } | changes
    backend = factory.StorageBackendFactory.create_backend(
        "dynamic", hicache.HiCacheStorageConfig(**config), None
    )
    for i, pool in enumerate(pools):
        backend.register_mem_host_pool_v2(HostPool(i), hicache.PoolName(pool))
    return backend


def transfer(keys, first=0, name="kv", **options):
    indices = torch.arange(first, first + PAGE * len(keys))
    return hicache.PoolTransfer(name=hicache.PoolName(name), host_indices=indices, keys=keys, **options)


KEYS = [f"{i:064x}" for i in range(8)]


def test_pages_come_back_in_another_process(tmp_path):
    backend = storage(tmp_path)
    assert backend.batch_set_v2([transfer(KEYS[:3])]) == {"kv": [True] * 3}
    was = backend.registered_pools["kv"].memory.clone()
    backend = storage(tmp_path)
    pool = backend.registered_pools["kv"]
    pool.memory[:] = 0
    assert backend.batch_exists_v2(KEYS[:5]).kv_hit_pages == 3
    assert backend.batch_exists(KEYS[:5]) == 3
    assert backend.batch_get_v2([transfer(KEYS[:4], first=20)]) == {"kv": [True, True, True, False]}
    assert torch.equal(pool.memory[20:32], was[:12])
    assert not pool.memory[32:36].any()


def test_single_pages_as_tensors(tmp_path):
    backend = storage(tmp_path)
    page = torch.arange(10, dtype=torch.bfloat16)
    assert not backend.exists("k")
    assert backend.get("k", torch.zeros_like(page)) is None
    assert backend.set("k", page)
    assert backend.exists("k")
    assert torch.equal(backend.get("k", torch.zeros_like(page)), page)
    assert backend.get("k", torch.zeros(3)) is None
    assert backend.batch_set(["a", "b"], [page, page + 1])
    found = backend.batch_get(["a", "c", "b"], [torch.zeros_like(page) for _ in range(3)])
    assert torch.equal(found[0], page)
    assert found[1] is None
    assert torch.equal(found[2], page + 1)


def test_a_pool_of_recurrent_states_needs_its_last_pages(tmp_path):
    backend = storage(tmp_path, pools=("kv", "mamba"))
    backend.batch_set_v2([transfer(KEYS[:4]), transfer(KEYS[1:2], name="mamba")])
    trailing = hicache.PoolTransfer(
        name=hicache.PoolName.MAMBA, keys=[KEYS[0]], hit_policy=hicache.PoolHitPolicy.TRAILING_PAGES
    )
    found = backend.batch_exists_v2(KEYS[:4], [trailing])
    assert (found.kv_hit_pages, found.restorable_prefix_pages) == (2, [2])
    assert found.extra_pool_hit_pages["kv"] == 4
    every = hicache.PoolTransfer(name=hicache.PoolName.MAMBA, keys=KEYS[:4])
    assert backend.batch_exists_v2(KEYS[:4], [every]).kv_hit_pages == 0


def test_the_answers_are_those_of_the_file_backend(tmp_path, monkeypatch):
    monkeypatch.setenv("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", str(tmp_path / "theirs"))
    ours = storage(tmp_path, pools=("kv", "swa"))
    config = hicache.HiCacheStorageConfig(0, 1, 0, 1, 0, 1, False, False, True, "m")
    try:
        theirs = hicache.HiCacheFile(config)
    except ImportError as error:
        pytest.skip(f"the file backend needs more of SGLang: {error}")
    theirs.registered_pools = ours.registered_pools
    rng = np.random.default_rng(0)
    for backend in (ours, theirs):
        backend.batch_set_v2([transfer(KEYS[:5]), transfer([KEYS[i] for i in (0, 2, 3)], name="swa")])
    for _ in range(40):
        keys = [KEYS[i] for i in rng.permutation(8)[: rng.integers(1, 8)]]
        if rng.integers(2):
            keys = KEYS[: rng.integers(1, 8)]
        policy = (hicache.PoolHitPolicy.ALL_PAGES, hicache.PoolHitPolicy.TRAILING_PAGES)[rng.integers(2)]
        pool = hicache.PoolTransfer(
            name=hicache.PoolName.SWA, keys=KEYS[: rng.integers(1, 3)], hit_policy=policy
        )
        assert ours.batch_exists_v2(keys, [pool]) == theirs.batch_exists_v2(keys, [pool])


def test_ranks_models_and_weights_are_apart_and_what_is_alike_is_stored_once(tmp_path):
    storage(tmp_path, extra={"weights": "one"}).batch_set_v2([transfer(KEYS[:1])])
    for changes in (
        {"extra": {"weights": "two"}},
        {"model_name": "n"},
        {"tp_rank": 1, "tp_size": 2},
        {"is_page_first_layout": False},
    ):
        assert not storage(tmp_path, **{"extra": {"weights": "one"}, **changes}).exists(KEYS[0])
    latent = {"is_mla_model": True, "tp_size": 2}
    writer, reader = (storage(tmp_path, tp_rank=rank, **latent) for rank in (0, 1))
    assert writer.batch_set_v2([transfer(KEYS[3:4])]) == {"kv": [True]}
    before = len(list((tmp_path / "pages").glob("*.kvc")))
    assert reader.batch_set_v2([transfer(KEYS[4:5])]) == {"kv": [True]}
    assert len(list((tmp_path / "pages").glob("*.kvc"))) == before
    assert storage(tmp_path, tp_rank=1, **latent).exists(KEYS[3])


def test_every_single_byte_corruption_and_every_truncation_is_a_miss(tmp_path):
    storage(tmp_path).batch_set_v2([transfer(KEYS[:1])])
    (path,) = (tmp_path / "pages").glob("*.kvc")
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for i in range(len(good)):
        bad = bytearray(good)
        bad[i] ^= int(rng.integers(1, 256))
        for broken in (bad, good[:i]):
            path.write_bytes(broken)
            backend = storage(tmp_path)
            was = backend.registered_pools["kv"].memory.clone()
            assert backend.batch_get_v2([transfer(KEYS[:1], first=8)]) == {"kv": [False]}
            assert torch.equal(backend.registered_pools["kv"].memory, was)
            assert not backend.exists(KEYS[0])


def test_what_is_wrong_with_the_configuration_or_a_call_is_said(tmp_path):
    from llamay_kv.adapters.sglang import LlamayStorage

    config = hicache.HiCacheStorageConfig(
        0, 1, 0, 1, 0, 1, False, False, True, "m", extra_config={"directory": "d"}
    )
    with pytest.raises(ValueError, match="needs 'budget_bytes'"):
        LlamayStorage(config)
    backend = storage(tmp_path)
    short = transfer(KEYS[:2])
    short.host_indices = short.host_indices[:3]
    assert backend.batch_set_v2([short]) == {"kv": [False, False]}
    assert backend.batch_get_v2([short]) == {"kv": [False, False]}
