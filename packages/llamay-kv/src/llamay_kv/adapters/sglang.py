# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return,unused-ignore"
"""A storage backend for SGLang's hierarchical cache: pages on disk, verified whenever they come back.

SGLang loads it by its module path, without being patched:

    --enable-hierarchical-cache --hicache-storage-backend dynamic --hicache-storage-backend-extra-config
      '{"backend_name": "llamay", "module_path": "llamay_kv.adapters.sglang", "class_name": "LlamayStorage",
        "directory": "/var/cache/kv", "budget_bytes": 100000000000, "weights": "sha256 of the checkpoint"}'

SGLang's key of a page is a hash of its tokens; what else K/V depends on (weights, model, layout, parallelism) is the
identity of the store, so that pages of another model or configuration are not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from llamay_kv.extras import needed_by
from llamay_kv.identity import Identity, Value
from llamay_kv.storage.crypto import Key
from llamay_kv.tiers.block_store import BlockStore

with needed_by(__name__, "sglang"):
    import torch
    from sglang.srt.mem_cache.hicache_storage import (
        HiCacheStorage,
        HiCacheStorageConfig,
        HiCacheStorageExtraInfo,
        PoolHitPolicy,
        PoolName,
        PoolTransfer,
        PoolTransferResult,
    )

__all__ = ["LlamayStorage", "identity_of"]

_SHARED = (
    *("model_name", "is_mla_model", "is_page_first_layout", "should_split_heads", "tp_lcm_size", "pp_size"),
    *("pp_rank", "attn_cp_size", "attn_cp_rank", "dcp_size", "dcp_rank", "logical_page_size"),
)


def identity_of(
    config: HiCacheStorageConfig, weights: str | None = None, *, sharded: bool = True
) -> Identity:
    """Return the identity on which pages depend, beside their tokens.

    Args:
        config: SGLang's configuration.
        weights: the SHA-256 of the checkpoint. Without it the model's name stands for it, which other weights may
            have too.
        sharded: whether each rank of tensor parallelism has a part of its own. K/V of latent attention is the same on
            all of them.

    """
    fields: dict[str, Value] = {name: getattr(config, name, None) for name in _SHARED}
    if sharded:
        fields |= {"tp_size": config.tp_size, "tp_rank": config.tp_rank}
    return Identity(fields, engine="sglang", weights=weights)


class LlamayStorage(HiCacheStorage):
    """Pages in `BlockStore`s on one directory: one for sharded pages, one for pages that every rank has alike.

    Args:
        storage_config: SGLang's configuration. Its `extra_config` has `directory` and `budget_bytes`, and may have
            `weights` (see `identity_of`), `key_file` (32 bytes or more, encrypts the pages), `min_free_bytes` and
            `durable`.

    """

    def __init__(self, storage_config: HiCacheStorageConfig, *_: Any, **__: Any) -> None:
        extra = dict(storage_config.extra_config or {})
        try:
            directory, budget = str(extra["directory"]), int(extra["budget_bytes"])
        except KeyError as error:
            raise ValueError(f"the backend's extra config needs {error}") from None
        key = None
        if "key_file" in extra:
            with open(extra["key_file"], "rb") as file:  # noqa: PTH123
                key = Key("sglang", file.read())
        self._writes = storage_config.is_storage_writer

        def store(sharded: bool) -> BlockStore:
            return BlockStore(
                directory,
                budget_bytes=budget,
                identity=identity_of(storage_config, extra.get("weights"), sharded=sharded),
                key=key,
                min_free_bytes=int(extra.get("min_free_bytes", 1 << 30)),
                durable=bool(extra.get("durable", True)),
            )

        self._sharded = store(True)
        self._replicated = store(False) if storage_config.is_mla_model else self._sharded

    def _place(self, key: str, pool: str | None = None) -> tuple[BlockStore, bytes]:
        """Return where a page is. Recurrent state is sharded even where K/V is not."""
        name = str(pool) if pool is not None and pool not in (PoolName.KV, "__default__") else ""
        recurrent = name == PoolName.MAMBA.value or key.endswith(f".{PoolName.MAMBA.value}")
        store = self._sharded if recurrent else self._replicated
        return store, f"{key}.{name}".encode() if name else key.encode()

    # One page at a time, in tensors

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> torch.Tensor | None:
        """Fill the tensor with a page of exactly its bytes; None, and it stays as it is, if there is none."""
        if target_location is None:
            raise ValueError("get needs a tensor to fill")
        store, name = self._place(key)
        return target_location if store.get_into(name, _bytes_of(target_location)) else None

    def batch_get(
        self, keys: list[str], target_locations: Any = None, target_sizes: Any = None
    ) -> list[torch.Tensor | None]:
        """Fill tensors, one for each key."""
        return [self.get(key, target) for key, target in zip(keys, target_locations, strict=True)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Store a page; False if it is not stored."""
        return self.batch_set([key], [value if value is not None else target_location])

    def batch_set(
        self, keys: list[str], values: Any = None, target_locations: Any = None, target_sizes: Any = None
    ) -> bool:
        """Store pages together; False unless all are stored."""
        given = values if values is not None else target_locations
        if given is None:
            return False
        pairs = zip(keys, given, strict=True)
        return all(self._put((key, None, tensor) for key, tensor in pairs).values())

    def exists(self, key: str) -> bool:
        """Whether a page is in the index."""
        store, name = self._place(key)
        return name in store

    # Pages of several pools, in host memory

    def batch_exists_v2(
        self,
        keys: list[str],
        pool_transfers: list[PoolTransfer] | None = None,
        extra_info: HiCacheStorageExtraInfo | None = None,
    ) -> PoolTransferResult:
        """Return the longest prefix of pages for which every pool has all it needs."""
        kv = _leading(self._has(key) for key in keys)
        hits: dict[str, int] = {PoolName.KV: kv} if kv else {}
        usable = set(range(1, kv + 1))
        for transfer in pool_transfers or []:
            if not usable:
                break
            here = [self._has(key, transfer.name) for key in keys[:kv]]
            if transfer.hit_policy == PoolHitPolicy.ALL_PAGES:
                lengths = set(range(1, _leading(here) + 1))
            elif transfer.hit_policy == PoolHitPolicy.TRAILING_PAGES:
                tail = max(1, len(transfer.keys or ()))
                lengths = {n for n in range(1, kv + 1) if all(here[max(0, n - tail) : n])}
            else:
                raise ValueError(f"this backend does not know the hit policy {transfer.hit_policy}")
            if lengths:
                hits[transfer.name] = max(lengths)
            usable &= lengths
        return PoolTransferResult(max(usable, default=0), hits, sorted(usable))

    def batch_get_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        """Read pages into host memory; say of each whether it is there now."""
        return {transfer.name: list(self._read(transfer)) for transfer in transfers}

    def batch_set_v2(
        self, transfers: list[PoolTransfer], extra_info: HiCacheStorageExtraInfo | None = None
    ) -> dict[str, list[bool]]:
        """Write pages from host memory; say of each whether it is stored now."""
        results = {}
        for transfer in transfers:
            keys, places = transfer.keys or [], self._indices(transfer)
            if places is None:
                results[transfer.name] = [False] * len(keys)
                continue
            pool = self.registered_pools[transfer.name]
            pages = (
                (k, transfer.name, pool.get_data_page(i, flat=True))
                for k, i in zip(keys, places, strict=True)
            )
            stored = self._put(pages)
            results[transfer.name] = [stored.get(key, False) for key in keys]
        return results

    def _read(self, transfer: PoolTransfer) -> Iterator[bool]:
        keys, places = transfer.keys or [], self._indices(transfer)
        if places is None:
            yield from [False] * len(keys)
            return
        pool = self.registered_pools[transfer.name]
        for key, index in zip(keys, places, strict=True):
            store, name = self._place(key, transfer.name)
            page = pool.get_dummy_flat_data_page()
            found = store.get_into(name, _bytes_of(page))
            if found:
                pool.set_from_flat_data_page(index, page)
            yield found

    def _indices(self, transfer: PoolTransfer) -> list[int] | None:
        """Return where in host memory each page begins, None if they are not what the keys need."""
        size = getattr(self.registered_pools[transfer.name], "page_size", 1) or 1
        indices = transfer.host_indices
        if indices is None or indices.numel() != size * len(transfer.keys or ()):
            return None
        places: list[int] = indices[::size].tolist()
        return places

    def _has(self, key: str, pool: str | None = None) -> bool:
        store, name = self._place(key, pool)
        return name in store

    def _put(self, pages: Iterable[tuple[str, str | None, torch.Tensor]]) -> dict[str, bool]:
        """Store pages in as few groups as there are stores. A disk that fails is a page that is not stored."""
        groups: dict[int, tuple[BlockStore, dict[bytes, str], list[tuple[bytes, memoryview]]]] = {}
        stored: dict[str, bool] = {}
        for key, pool, tensor in pages:
            stored[key] = False
            store, name = self._place(key, pool)
            if store is self._replicated is not self._sharded and not self._writes:
                stored[key] = True  # another rank writes the pages that are the same for all
                continue
            _, names, blocks = groups.setdefault(id(store), (store, {}, []))
            names[name] = key
            blocks.append((name, _bytes_of(tensor.contiguous())))
        for store, names, blocks in groups.values():
            try:
                for name in store.put(blocks):
                    stored[names[name]] = True
            except OSError:
                continue
        return stored

    def clear(self) -> None:
        """Nothing is removed: other engines may use the directory. The budget makes room."""

    def get_stats(self) -> None:
        """SGLang's statistics are for backends that move data themselves."""
        return

    def counters(self) -> dict[str, int]:
        """Return the sums of both stores."""
        sums: dict[str, int] = {}
        for store in {id(s): s for s in (self._sharded, self._replicated)}.values():
            for name, n in store.counters().items():
                sums[name] = sums.get(name, 0) + n
        return sums

    def close(self) -> None:
        """Nothing waits to be written."""
        self._sharded.close()
        self._replicated.close()


def _leading(here: Iterable[bool]) -> int:
    n = 0
    for found in here:
        if not found:
            break
        n += 1
    return n


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor on the host."""
    if not tensor.is_contiguous():
        raise ValueError("a page must be contiguous in memory")
    return memoryview(tensor.detach().view(-1).view(torch.uint8).numpy())
