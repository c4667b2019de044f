# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return,unused-ignore"
"""A secondary tier for vLLM's tiered K/V offloading: blocks on disk, verified whenever they come back.

vLLM loads it by its module path, without being patched:

    --kv-transfer-config '{"kv_connector": "OffloadingConnector", "kv_role": "kv_both",
      "kv_connector_extra_config": {"spec_name": "TieringOffloadingSpec", "cpu_bytes_to_use": 8000000000,
        "secondary_tiers": [{"type": "LlamayTier", "module_path": "llamay_kv.adapters.vllm",
          "directory": "/var/cache/kv", "budget_bytes": 100000000000, "weights": "sha256 of the checkpoint"}]}}'

vLLM's key of a block is a hash of its tokens; what else K/V depends on (weights, model, data type, layout,
parallelism) is the identity of the store, so that blocks of another model or configuration are not found.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, ClassVar

from llamay_kv.extras import needed_by
from llamay_kv.identity import Identity, Value
from llamay_kv.storage.crypto import Key
from llamay_kv.tiers.block_store import BlockStore

with needed_by(__name__, "vllm"):
    from vllm.v1.kv_offload.base import LookupResult, Medium, OffloadKey, ReqContext, RequestOffloadingContext
    from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

__all__ = ["LlamayTier", "identity_of"]


def identity_of(spec: Any, block_bytes: int, weights: str | None = None) -> Identity:
    """Return the identity on which blocks of this configuration depend, beside their tokens.

    Args:
        spec: the offloading spec.
        block_bytes: bytes of a block.
        weights: the SHA-256 of the checkpoint. Without it the model's name stands for it, which other weights may
            have too.

    """
    config = spec.config
    parallel = config.parallel
    agnostic = parallel.is_parallelism_agnostic or config.replicated_layout
    fields: dict[str, Value] = {
        "model": config.model.name,
        "weights": weights,
        "dtype": str(config.model.dtype),
        "tokens_per_hash": config.cache.tokens_per_hash,
        "blocks_per_chunk": config.cache.blocks_per_chunk,
        "block_bytes": block_bytes,
        "canonical": config.canonical_layout,
        "kv_cache_layout": config.kv_cache_layout,
        "groups": repr([(group.tokens_per_block, tuple(group.layer_names)) for group in config.groups]),
    }
    if not agnostic:
        for name in ("tp_size", "pp_size", "pcp_size", "dcp_size", "rank", "world_size"):
            fields[name] = getattr(parallel, name)
    return Identity(fields, engine="vllm")


class LlamayTier(SecondaryTierManager):
    """Blocks in a `BlockStore`. All work on files is done by threads of its own; the scheduler only asks an index.

    Args:
        offloading_spec: vLLM's configuration.
        primary_kv_view: the memory of vLLM's CPU tier, one row a block.
        tier_type: the name in the configuration.
        backpressure_detector: of vLLM, or None.
        directory: where the blocks are; several engines may share it.
        budget_bytes: the most bytes that they may take.
        weights: the SHA-256 of the checkpoint, see `identity_of`.
        key_file: a file of 32 bytes or more that encrypts the blocks.
        min_free_bytes: nothing is written that would leave less room on the file system.
        threads: how many read and write.
        durable: whether a stored block survives a loss of power. If not, it may be torn then, and is refused.
        pending_stores: how many store jobs may wait; more are refused, so that a slow disk holds nothing up.

    """

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: Any,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: Any = None,
        *,
        directory: str,
        budget_bytes: int,
        weights: str | None = None,
        key_file: str | None = None,
        min_free_bytes: int = 1 << 30,
        threads: int = 4,
        durable: bool = True,
        pending_stores: int = 64,
    ) -> None:
        super().__init__(
            offloading_spec=offloading_spec,
            primary_kv_view=primary_kv_view,
            tier_type=tier_type,
            backpressure_detector=backpressure_detector,
        )
        self._store = BlockStore(
            directory,
            budget_bytes=budget_bytes,
            identity=identity_of(offloading_spec, self.block_size_bytes, weights),
            key=_key(key_file),
            min_free_bytes=min_free_bytes,
            durable=durable,
        )
        self._bytes = primary_kv_view.cast("B")
        # Two pools, so that a load, for which a request waits, never queues behind stores.
        self._loads = ThreadPoolExecutor(max(1, threads // 2), "llamay-kv load")
        self._stores = ThreadPoolExecutor(max(1, threads - threads // 2), "llamay-kv store")
        self._pending_stores = pending_stores
        self._lock = threading.Lock()
        self._running: set[Future[None]] = set()
        self._storing = 0
        self._done: deque[JobResult] = deque()

    def lookup(self, key: OffloadKey, req_context: ReqContext) -> LookupResult:
        """Say whether the block is in the index."""
        return LookupResult.HIT if bytes(key) in self._store else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        """Have blocks written together by a thread."""
        with self._lock:
            behind = self._storing >= self._pending_stores
            self._storing += not behind
        if behind:
            self._done.append(JobResult(job_metadata.job_id, success=False))
            return
        self._submit(self._stores, job_metadata, self._store_blocks)

    def submit_load(self, job_metadata: TransferJob) -> None:
        """Have blocks read and verified by a thread."""
        self._submit(self._loads, job_metadata, self._load_blocks)

    def _submit(
        self, pool: ThreadPoolExecutor, job: TransferJob, work: Callable[[TransferJob], set[bytes]]
    ) -> None:
        def run() -> None:
            started = time.perf_counter()
            try:
                done = work(job)
            except Exception:
                done = set()
            finally:
                if work == self._store_blocks:
                    with self._lock:
                        self._storing -= 1
            good = [key for key in job.keys if bytes(key) in done]
            whole = len(good) == len(job.keys)
            self._done.append(
                JobResult(
                    job.job_id,
                    success=whole,
                    successful_keys=None if whole or not good or not job.is_promotion else tuple(good),
                    transfer_time=time.perf_counter() - started,
                    transfer_bytes=len(good) * self.block_size_bytes,
                )
            )

        future = pool.submit(run)
        with self._lock:
            self._running.add(future)
        future.add_done_callback(self._forget)

    def _forget(self, future: Future[None]) -> None:
        with self._lock:
            self._running.discard(future)

    def _blocks(self, job: TransferJob) -> Iterator[tuple[bytes, memoryview]]:
        size = self.block_size_bytes
        for key, chunk in zip(job.keys, job.chunk_ids, strict=True):
            yield bytes(key), self._bytes[int(chunk) * size : (int(chunk) + 1) * size]

    def _store_blocks(self, job: TransferJob) -> set[bytes]:
        return self._store.put(self._blocks(job))

    def _load_blocks(self, job: TransferJob) -> set[bytes]:
        return {key for key, target in self._blocks(job) if self._store.get_into(key, target)}

    def get_finished_jobs(self) -> Iterable[JobResult]:
        """Return the jobs that have finished since the last call."""
        finished = []
        while self._done:
            finished.append(self._done.popleft())
        return finished

    def has_pending_work(self) -> bool:
        """Whether anything is under way, so that the engine steps on and takes the results."""
        with self._lock:
            return bool(self._running or self._done)

    def touch(self, keys: Collection[OffloadKey], req_context: ReqContext) -> None:
        """Say that blocks were of use now."""
        known: Sequence[bytes] = [bytes(key) for key in keys]
        self._stores.submit(self._store.touch, known)

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        """Nothing depends on the request: blocks are offloaded one by one."""
        return RequestOffloadingContext()

    def drain_jobs(self) -> None:
        """Return when no thread touches the primary memory any more."""
        while True:
            with self._lock:
                running = list(self._running)
            if not running:
                return
            for future in running:
                future.result()

    def shutdown(self) -> None:
        """Finish all begun operations, and stop the threads."""
        self._loads.shutdown()
        self._stores.shutdown()
        self._store.close()


def _key(path: str | None) -> Key | None:
    if path is None:
        return None
    with open(path, "rb") as file:  # noqa: PTH123
        return Key("vllm", file.read())
