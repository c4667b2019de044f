"""`load`: from a GGUF file to a model that answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

import llamay_kv
from llamay_models import gguf, tokenizer
from llamay_models.architectures import find
from llamay_models.arguments import whole
from llamay_models.backend import CPU, Backend, Plan, Threads, Weight
from llamay_models.embedding import take_rank_head
from llamay_models.engine.scheduling.prefill_budget import Stall
from llamay_models.errors import EncoderOnlyError, ModelError
from llamay_models.kv_cache.layout import PRECISIONS, Precision, cache_layout
from llamay_models.kv_cache.pool import kv_pool
from llamay_models.loading.background import BackgroundCall
from llamay_models.loading.draft_check import check_draft
from llamay_models.machine import usable_memory, usable_processors
from llamay_models.model import Model, Parts
from llamay_models.plan import Program, Trace, Weights, check, fuse, inputs, outline
from llamay_models.progress import Progress
from llamay_models.tensors import file_tensors, give_back_heap, give_up_metadata, pack

if TYPE_CHECKING:
    from llamay_models.adapters import Adapter, AdapterLike

# Metadata larger than this are vocabulary: they stay in the file, where the tokenizer reads them.
_SMALL = 256
_DISK = 16 << 30


def load(
    path: str | PathLike[str],
    *,
    backend: Backend = CPU,
    threads: int | None = None,
    kv: Precision = "f16",
    page_tokens: int = 64,
    ctx_size: int | None = None,
    kv_budget: int | None = None,
    prefix_cache: int | None = None,
    spill: llamay_kv.Spill | None = None,
    disk_cache: str | PathLike[str] | llamay_kv.DiskCache | None = None,
    max_rows: int = 512,
    max_sequences: int = 64,
    max_queue: int = 1024,
    max_stall: str = "2.5x",
    draft: Model | str | PathLike[str] | None = None,
    speculation: bool = True,
    dequantized: bool = False,
    packed_cache: str | PathLike[str] | None = None,
    adapters: Iterable[AdapterLike] = (),
    sha256: str | None = None,
    progress: Progress | None = None,
) -> Model:
    """Load a model, of a split one any part.

    Args:
        path: a GGUF file.
        backend: the device that computes; see `llamay_models.backend`.
        threads: the number of threads that compute; None takes as many cores as this process may use, by its affinity
            and its container's quota.
        kv: precision of K/V: "f16", "f32", or smaller, "vq8" (values int8, keys f16: three quarters of f16) and
            "q8" (both int8: a little over half of it).
        page_tokens: positions in a page of K/V, a power of two from 16 to 1024. Results do not depend on
            it.
        ctx_size: the most tokens that a context may have; None takes the number that the model was trained for.
        kv_budget: the most bytes of K/V of all contexts together; None takes a quarter of this machine's memory,
            or one full context where that is more. Memory is allocated when it is needed.
        prefix_cache: the most bytes of kept prefixes of prompts and texts, which are not computed again; part of
            `kv_budget`, and given up whenever contexts need pages. None takes all of it, 0 keeps nothing in
            memory.
        spill: the store to which K/V of contexts that are not at work goes, encrypted, when `kv_budget` is used up,
            and from which it comes back when it is used. None ends requests with OutOfMemoryError instead.
        disk_cache: a folder in which prefixes outlive the process, of at most 16 GiB for all models together,
            or a `llamay_kv.DiskCache` with limits and a key of your own, which several models may share.
        max_rows: the most tokens that one step computes.
        max_sequences: the most contexts in prefill or decoding at a time; more wait.
        max_queue: the most requests that wait; more are refused with QueueFullError.
        max_stall: how long a step with prompt rows may take while texts decode: "2.5x", times as long as one without,
            or "50ms". A higher bound speeds prefill up, a lower one the running texts.
        draft: a smaller model of the same vocabulary, which drafts tokens: a path, loaded and closed
            with this model, or a loaded one, which may draft for several and must be closed after them.
        speculation: whether tokens are drafted and confirmed several at a time, where that is
            faster. The generated text does not depend on it.
        dequantized: compute with the weights dequantized to F32, for verification. Slow and large.
        packed_cache: a folder in which weights are kept as the kernels read them, at most 16 GiB for all
            models together, so that the next load reads them back, checked, instead of packing them. Each
            model takes as much disk there as its own file.
        adapters: LoRA adapters, each a GGUF file or a pair of file and scale, added up in their order; see
            `Model.adapted`.
        sha256: of the file, where it is known already, such as from a content-addressed store; None
            computes it when it is needed.
        progress: called as progress("loading", bytes done, bytes in all), in this thread; raising from it
            abandons the load.

    Raises ModelError (GGUFError, ArchitectureError, MetadataError, TensorError) for a file, an adapter's too,
    that cannot be used, before anything is computed, and for a draft of another vocabulary; OSError where it
    cannot be read; ValueError for an argument out of range.

    """
    threads = usable_processors() if threads is None else threads
    counts = {"threads": threads, "page_tokens": page_tokens, "max_rows": max_rows, "max_queue": max_queue}
    sizes = {"ctx_size": ctx_size, "kv_budget": kv_budget, "prefix_cache": prefix_cache}
    _check_arguments(counts | {"max_sequences": max_sequences} | sizes, backend, kv, packed_cache)
    stall = Stall.parse(max_stall)

    file = gguf.open(path)
    architecture, config = find(file.metadata)
    tensors = file_tensors(file)
    rank_head = take_rank_head(tensors, config.width)
    check(architecture.build, config, tensors, str(file.path))
    if draft is not None and config.output != "logits":
        raise EncoderOnlyError(_name(file))
    trace = Trace()
    architecture.build(trace, config, Weights(tensors))
    base = adapted = trace.program()
    opened: tuple[Adapter, ...] = ()
    if adapters:
        from llamay_models.adapters import adapted_program, open_adapters, packed_updates

        opened = open_adapters(adapters)
        adapted = adapted_program(base, opened, architecture.name)
    program = fuse(adapted)

    ctx_size = config.context_length if ctx_size is None else int(ctx_size)
    learned = inputs(program).positions
    if learned and ctx_size > learned:
        raise ValueError(
            f"ctx_size must be at most {learned}, the positions that {file.path.name} has, not {ctx_size}"
        )
    layout = cache_layout(program, kv)
    budget = _budget(layout, ctx_size, page_tokens) if kv_budget is None else kv_budget
    pool = kv_pool(layout, page_tokens, budget, backend, spill)

    workers = backend.threads(threads)
    with BackgroundCall(lambda: _tokenizer(file), "llamay tokenizer") as background:
        if packed_cache is None or dequantized:
            weights = pack(base.tensors, workers, backend=backend, dequantized=dequantized, progress=progress)
        else:
            weights = _kept(packed_cache, file, base, workers, backend, sha256, progress)
        if opened:
            weights += packed_updates(
                adapted, len(weights), opened, workers, backend, dequantized=dequantized
            )
    words = background.result()
    file.check_unchanged()  # weights of which half are another file's would be those of neither
    plan = _prepared(program, weights, max_rows, backend, file)
    draft_model = None if draft is None else _load_draft(draft, backend, threads, words, config.vocab)
    return Model(
        Parts(
            path=file.path,
            name=_name(file),
            architecture=architecture.name,
            config=config,
            metadata=_small(file.metadata),
            base=outline(base),
            program=_packed(program, weights),
            backend=backend,
            weights=weights,
            plan=plan,
            threads=workers,
            tokenizer=words,
            pool=pool,
            precision=kv,
            dequantized=dequantized,
            ctx_size=ctx_size,
            max_sequences=int(min(max_sequences, max_rows)),
            sha256=file.sha256 if sha256 is None else lambda: sha256,
            prefix_cache=pool.budget_bytes
            if prefix_cache is None
            else min(pool.budget_bytes, int(prefix_cache)),
            disk_cache=_disk(disk_cache) if layout.groups else None,
            max_queue=int(max_queue),
            speculation=speculation or draft is not None,
            stall=stall,
            draft=draft_model,
            owns_draft=draft_model is not draft,
            owns_disk=not isinstance(disk_cache, llamay_kv.DiskCache),
            rank_head=rank_head,
            adapters=opened,
        )
    )


_BOUNDS: dict[str, tuple[int, int | None]] = {
    "threads": (1, 1024),
    "page_tokens": (16, 1024),
    "max_rows": (1, 8192),
    "max_sequences": (1, None),
    "max_queue": (0, None),
    "ctx_size": (1, None),
    "kv_budget": (0, None),
    "prefix_cache": (0, None),
}
"""The least and the most of the whole numbers among the arguments of `load`."""


def _check_arguments(
    counts: Mapping[str, int | None],
    backend: Backend,
    kv: str,
    packed_cache: str | PathLike[str] | None,
) -> None:
    """Raise ValueError for an argument of `load` that no file could make valid. None among `counts` is a default."""
    for name, value in counts.items():
        if value is not None:
            whole(name, value, *_BOUNDS[name], error=ValueError)
    if kv not in PRECISIONS:
        raise ValueError(f"kv must be one of {', '.join(PRECISIONS)}, not {kv!r}")
    if not isinstance(backend, Backend):
        raise ValueError(
            f"backend must be a llamay_models.backend.Backend, such as CPU of that module, not {backend!r}; "
            "leave it out to compute on the CPU"
        )
    if packed_cache is not None and backend.packed is None:
        raise ValueError(
            f"packed_cache is given, but the backend {backend.name} keeps no weights in files; load without it"
        )


def _kept(
    folder: str | PathLike[str],
    file: gguf.GGUFFile,
    program: Program,
    workers: Threads,
    backend: Backend,
    sha256: str | None,
    progress: Progress | None,
) -> list[Weight]:
    """Return the packed weights from the cache, or pack them and keep them there."""
    from llamay_models.loading.packed_cache import (
        PackedCache,
        identity_of,
        shapes,
    )  # slow to import, and seldom needed

    assert backend.packed is not None
    cache = PackedCache(folder, backend.packed)
    identity = identity_of(file, sha256, backend.packed)
    weights = cache.read(identity, shapes(program.tensors), workers, progress)
    if weights is None:
        weights = pack(program.tensors, workers, backend=backend, progress=progress)
        cache.write(identity, weights, workers)
    return weights


def _prepared(
    program: Program, weights: list[Weight], max_rows: int, backend: Backend, file: gguf.GGUFFile
) -> Plan:
    """Return the backend's plan. Raises ModelError for hyper-parameters that it cannot compute with."""
    try:
        return backend.plan(program.records, program.widths, weights, max_rows=max_rows)
    except ValueError as error:
        raise ModelError(f"{file.path}: what its metadata describe cannot be computed: {error}") from error


def _load_draft(
    draft: Model | str | PathLike[str],
    backend: Backend,
    threads: int,
    words: tokenizer.Tokenizer | None,
    vocab: int,
) -> Model:
    """Return the draft model, loaded if it is a path. Raises ModelError if it cannot draft for this one."""
    if isinstance(draft, Model):
        check_draft(words, draft, vocab)
        return draft
    loaded = load(draft, backend=backend, threads=threads, prefix_cache=0, speculation=False)
    try:
        check_draft(words, loaded, vocab)
    except ModelError:
        loaded.close()
        raise
    return loaded


def _disk(cache: str | PathLike[str] | llamay_kv.DiskCache | None) -> llamay_kv.DiskCache | None:
    if cache is None or isinstance(cache, llamay_kv.DiskCache):
        return cache
    return llamay_kv.DiskCache(cache, budget_bytes=_DISK)


def _packed(program: Program, weights: list[Weight]) -> Program:
    """Return the program over the packed weights, so that nothing holds on to the file."""
    return Program(program.records, program.widths, tuple(weights), program.names)


def _tokenizer(file: gguf.GGUFFile) -> tokenizer.Tokenizer | None:
    made = tokenizer.from_gguf(file) if "tokenizer.ggml.model" in file.metadata else None
    give_up_metadata(file)
    give_back_heap()
    return made


def _name(file: gguf.GGUFFile) -> str:
    name = file.metadata.get("general.name")
    return name if isinstance(name, str) and name else file.path.stem


def _small(metadata: gguf.Metadata) -> dict[str, Any]:
    small: dict[str, Any] = {}
    for key in metadata:
        # The scores and kinds of a vocabulary are not even looked at: their pages were given up. Strings stay there.
        kind = metadata.type_of(key)
        if kind.startswith("array") and kind != "array of string" and metadata.raw(key).nbytes > 8 * _SMALL:
            continue
        value = metadata[key]
        if isinstance(value, bool | int | float | str):
            small[key] = value
        elif len(value) <= _SMALL:
            small[key] = value.tolist() if isinstance(value, np.ndarray) else list(value)
    return small


def _budget(layout: llamay_kv.Layout, ctx_size: int, page_tokens: int) -> int:
    full = layout.position_bytes * (-(-ctx_size // page_tokens) + 2) * page_tokens
    return max(full, usable_memory() // 4)


__all__ = ["load"]
