# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return,unused-ignore"
"""An L2 adapter for LMCache: objects on disk, verified whenever they come back.

LMCache loads it as a plugin, without being patched:

    {"type": "plugin", "module_path": "llamay_kv.adapters.lmcache", "class_name": "LlamayL2Adapter",
     "adapter_params": {"directory": "/var/cache/kv", "budget_bytes": 100000000000, "weights": "sha256 of it"}}
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from llamay_kv.extras import needed_by
from llamay_kv.identity import Identity
from llamay_kv.storage.crypto import Key
from llamay_kv.tiers.block_store import BlockStore

with needed_by(__name__, "lmcache"):
    from lmcache.lmcache_native import Bitmap
    from lmcache.v1.distributed.internal_api import L2StoreResult
    from lmcache.v1.distributed.l2_adapters.base import AdapterUsage, L2AdapterInterface
    from lmcache.v1.platform import create_event_notifier

__all__ = ["LlamayL2Adapter"]


class LlamayL2Adapter(L2AdapterInterface):
    """Objects in a `BlockStore`, which keeps its own budget. Threads do the work; completion is told by event fds.

    Args:
        params: `directory` and `budget_bytes`; and, if wanted, `weights` (the SHA-256 of the checkpoint; without it the
            model's name in LMCache's keys stands for it), `key_file` (32 bytes or more, encrypts the objects),
            `min_free_bytes`, `durable` and `threads`.

    """

    def __init__(self, params: dict[str, Any], **_: Any) -> None:
        super().__init__(max_capacity_bytes=0)  # LMCache's eviction has nothing to do here
        try:
            directory, budget = str(params["directory"]), int(params["budget_bytes"])
        except KeyError as error:
            raise ValueError(f"adapter_params needs {error}") from None
        key = None
        if "key_file" in params:
            with open(params["key_file"], "rb") as file:  # noqa: PTH123
                key = Key("lmcache", file.read())
        self._store = BlockStore(
            directory,
            budget_bytes=budget,
            identity=Identity(engine="lmcache", weights=params.get("weights")),
            key=key,
            min_free_bytes=int(params.get("min_free_bytes", 1 << 30)),
            durable=bool(params.get("durable", True)),
        )
        self._threads = ThreadPoolExecutor(int(params.get("threads", 4)), "llamay-kv l2")
        self._lock = threading.Lock()
        self._next = 0
        self._stored: dict[int, L2StoreResult] = {}
        self._found: dict[int, Bitmap] = {}
        self._loaded: dict[int, Bitmap] = {}
        self._store_event, self._lookup_event, self._load_event = (create_event_notifier() for _ in range(3))

    def get_store_event_fd(self) -> int:
        """Return the fd that is signalled when a store has ended."""
        return self._store_event.fileno()

    def get_lookup_and_lock_event_fd(self) -> int:
        """Return the fd that is signalled when a look-up has ended."""
        return self._lookup_event.fileno()

    def get_load_event_fd(self) -> int:
        """Return the fd that is signalled when a load has ended."""
        return self._load_event.fileno()

    def _submit(self, work: Callable[[], Any], results: dict[int, Any], event: Any, failed: Any) -> int:
        with self._lock:
            task, self._next = self._next, self._next + 1

        def run() -> None:
            try:
                result = work()
            except Exception:
                result = failed
            with self._lock:
                results[task] = result
            event.notify()

        self._threads.submit(run)
        return task

    def submit_store_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Write objects together. The task fails unless all are stored."""

        def work() -> L2StoreResult:
            blocks = {_name(key): memoryview(obj.byte_array) for key, obj in zip(keys, objects, strict=True)}
            stored = self._store.put(blocks)
            sizes = {name: block.nbytes for name, block in blocks.items()}
            done = [key for key in keys if _name(key) in stored]
            self._notify_keys_stored(done, [sizes[_name(key)] for key in done])
            return L2StoreResult(len(stored) == len(blocks), sum(sizes[name] for name in stored))

        return self._submit(work, self._stored, self._store_event, L2StoreResult(False, 0))

    def pop_completed_store_tasks(self) -> dict[int, L2StoreResult]:
        """Return the stores that have ended since the last call."""
        with self._lock:
            done = dict(self._stored)
            self._stored.clear()
            return done

    def submit_lookup_and_lock_task(self, keys: list[Any], group_layout_descs: dict[int, Any]) -> int:
        """Look objects up, and keep the stored ones from being evicted until they are unlocked."""

        def work() -> Bitmap:
            found = Bitmap(len(keys))
            for i, key in enumerate(keys):
                if self._store.pin(_name(key)):
                    found.set(i)
            return found

        return self._submit(work, self._found, self._lookup_event, Bitmap(len(keys)))

    def query_lookup_and_lock_result(self, task_id: int) -> Bitmap | None:
        """Return which objects are there, once; None before the task has ended."""
        with self._lock:
            return self._found.pop(task_id, None)

    def submit_unlock(self, keys: list[Any]) -> None:
        """Let objects be evicted again."""
        for key in keys:
            self._store.unpin(_name(key))

    def submit_load_task(self, keys: list[Any], objects: list[Any]) -> int:
        """Fill objects with verified bytes; one that is missing, damaged or of another length stays as it is."""

        def work() -> Bitmap:
            loaded = Bitmap(len(keys))
            good = []
            for i, (key, obj) in enumerate(zip(keys, objects, strict=True)):
                if self._store.get_into(_name(key), memoryview(obj.byte_array)):
                    loaded.set(i)
                    good.append(key)
            self._notify_keys_accessed(good)
            return loaded

        return self._submit(work, self._loaded, self._load_event, Bitmap(len(keys)))

    def query_load_result(self, task_id: int) -> Bitmap | None:
        """Return which objects were filled, once; None before the task has ended."""
        with self._lock:
            return self._loaded.pop(task_id, None)

    def delete(self, keys: list[Any]) -> None:
        """Remove objects."""
        self._store.remove(_name(key) for key in keys)

    def get_usage(self) -> AdapterUsage:
        """Return the bytes of all files in the directory; the budget is the store's own affair."""
        return AdapterUsage(total_bytes_used=self._store.used_bytes, total_capacity_bytes=0)

    def report_status(self) -> dict[str, Any]:
        """Return the counters so far."""
        return {"is_healthy": True, "used_bytes": self._store.used_bytes, **self._store.counters()}

    def close(self) -> None:
        """Finish all begun operations, and close the event fds."""
        self._threads.shutdown()
        self._store.close()
        for event in (self._store_event, self._lookup_event, self._load_event):
            event.close()


def _name(key: Any) -> bytes:
    """Return all fields of LMCache's key, each with its length before it."""
    fields = (key.chunk_hash, key.model_name.encode(), key.cache_salt.encode())
    parts = [len(field).to_bytes(4, "little") + field for field in fields]
    return b"".join([*parts, key.kv_rank.to_bytes(8, "little"), key.object_group_id.to_bytes(8, "little")])
