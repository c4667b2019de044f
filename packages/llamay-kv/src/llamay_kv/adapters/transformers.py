# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return,unused-ignore"
"""A cache for transformers whose state is contexts: forked for nothing, saved, restored, found by prefix.

    pool = Pool(layout_of(model), budget_bytes=1 << 30)
    cache = PagedCache(pool.context())
    with watch(model):
        model.generate(ids, cache=cache, max_new_tokens=20)
    branch = cache.fork()
    cache.contexts[0].save("state.kv")

It stores exactly what the model computed. What attention needs is gathered from the pages at every layer, about as much
copying as transformers' own DynamicCache does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from llamay_kv._kv import UNKNOWN_TOKEN, Lease
from llamay_kv.context import Context
from llamay_kv.extras import needed_by
from llamay_kv.layout import Layout, Precision

with needed_by(__name__, "transformers"):
    import torch
    from transformers.cache_utils import Cache, CacheLayerMixin

UNKNOWN = UNKNOWN_TOKEN
"""The token id of positions whose token the cache was not told: a prefix tree finds nothing by them."""

_EXACT: dict[torch.dtype, tuple[Precision, ...]] = {
    torch.float32: ("f32",),
    torch.bfloat16: ("f32",),
    torch.float16: ("f16", "f32"),
}


def layout_of(model: Any) -> Layout:
    """Return the layout of a decoder: all its layers in one full group, in a precision that loses nothing."""
    config = model.config.get_text_config()
    heads = config.num_attention_heads
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    precision = _EXACT[model.dtype][0]
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    return Layout.uniform(config.num_hidden_layers, kv_heads, dim, precision=precision)


class _Batch:
    """The rows of a batch, and the step that is being written."""

    def __init__(self, contexts: Sequence[Context]) -> None:
        if not contexts:
            raise ValueError("a cache needs at least one context")
        if len({len(context) for context in contexts}) > 1:
            raise ValueError("the contexts of a batch must have the same length")
        self.contexts = list(contexts)
        self.layout = contexts[0].pool.layout
        self.indices = {layer.index for group in self.layout.groups for layer in group.layers}
        self.told: list[list[int]] | None = None
        self.leases: list[Lease] = []
        self.written: set[int] = set()
        self.n_new = 0

    def begin(self, rows: int, n: int) -> None:
        if rows != len(self.contexts):
            if len(self.contexts) > 1:
                raise ValueError(f"the cache has {len(self.contexts)} rows and the model's batch has {rows}")
            self.contexts += self.contexts[0].fork(rows - 1)
        try:
            for context in self.contexts:
                self.leases.append(context.reserve(n))
        except BaseException:
            self.end()
            raise
        self.n_new = n

    def write(self, index: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        n = keys.shape[-2]
        if self.leases and (index in self.written or n != self.n_new):
            self.end()  # the step before was broken off: nothing of it counts
        if not self.leases:
            self.begin(keys.shape[0], n)
        for row, lease in enumerate(self.leases):
            lease.write(index, _rows(keys[row]), _rows(values[row]))
        self.written.add(index)
        if self.written == self.indices:
            told = self.told
            for row, lease in enumerate(self.leases):
                ids = told[row] if told and len(told[row]) == n else [UNKNOWN] * n
                lease.commit(ids)
            self.end()

    def end(self) -> None:
        for lease in self.leases:
            lease.release()
        self.leases, self.told, self.n_new = [], None, 0
        self.written = set()


def _rows(states: torch.Tensor) -> np.ndarray:
    """Return (heads, n, dim) as an array of (n, heads, dim) of a type that loses nothing."""
    wide = states.float() if states.dtype == torch.bfloat16 else states
    return np.ascontiguousarray(wide.detach().transpose(0, 1).cpu().numpy())


class PagedLayer(CacheLayerMixin):
    """One layer of a `PagedCache`."""

    is_sliding = False
    is_croppable = True

    def __init__(self, batch: _Batch, index: int) -> None:
        super().__init__()
        self._batch, self._index = batch, index
        group = next(g for g in batch.layout.groups if any(layer.index == index for layer in g.layers))
        if group.kind != "full":
            raise ValueError("a PagedCache needs groups that keep every position")
        self._precision = group.precision

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Check once that the pages can hold the model's keys and values."""
        allowed = _EXACT.get(key_states.dtype, ())
        if self._precision not in allowed:
            raise ValueError(
                f"pages of {self._precision} cannot hold {key_states.dtype} exactly; use {' or '.join(allowed)}"
            )
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the new positions and return all."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        before = self.get_seq_length()
        self._batch.write(self._index, key_states, value_states)
        if before == 0:
            return key_states, value_states
        past = [context.read(self._index, 0, before) for context in self._batch.contexts]
        return tuple(  # type: ignore[return-value]
            torch.cat([self._stack([row[i] for row in past]), new], dim=-2)
            for i, new in enumerate((key_states, value_states))
        )

    def _stack(self, rows: list[np.ndarray]) -> torch.Tensor:
        tensors = [torch.from_numpy(row).transpose(0, 1) for row in rows]
        return torch.stack(tensors).to(device=self.device, dtype=self.dtype)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of the keys after the next step, and where they begin."""
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        """Return how many positions count: the positions of whole steps."""
        return len(self._batch.contexts[0])

    def get_max_length(self) -> int:
        """Return -1: there is no bound but the pool's."""
        return -1


class PagedCache(Cache):
    """Pass it as `cache` to `generate` or to a forward call (before transformers 5.24 as `past_key_values`).

    Args:
        contexts: one, or one for each row of the batch; they may hold a prefix already. One context becomes as many
            forks as the batch has rows. The cache uses them in place: `cache.contexts` is where they are.

    A step that fails half way, or of which not every layer was computed, does not count: the contexts stay as they
    were before it.

    """

    def __init__(self, contexts: Context | Sequence[Context]) -> None:
        rows = [contexts] if isinstance(contexts, Context) else list(contexts)
        self._batch = _Batch(rows)
        super().__init__(layers=[PagedLayer(self._batch, index) for index in sorted(self._batch.indices)])

    @property
    def contexts(self) -> list[Context]:
        """The rows."""
        return self._batch.contexts

    def fork(self) -> PagedCache:
        """Return a cache with the same state that shares every page until one of the two writes."""
        return PagedCache([context.fork() for context in self.contexts])

    def tell(self, ids: torch.Tensor | Sequence[Sequence[int]]) -> None:
        """Say which tokens the next step computes, one list for each row. `watch` does it for you."""
        rows = ids.tolist() if isinstance(ids, torch.Tensor) else [list(row) for row in ids]
        self._batch.told = rows

    def crop(self, tokens_to_remove: int) -> None:
        """Remove so many tokens (as a negative number) from the end of every row."""
        if tokens_to_remove > 0:
            raise ValueError("crop takes the negative of the number of tokens to remove")
        self._batch.end()
        for context in self.contexts:
            context.truncate(max(0, len(context) + tokens_to_remove))

    def reset(self) -> None:
        """Forget all tokens."""
        self._batch.end()
        for context in self.contexts:
            context.truncate(0)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Make the rows these of the present ones; a row that is taken twice is forked."""
        self._batch.end()
        rows = [self.contexts[i].fork() for i in indices.tolist()]
        for context in self.contexts:
            context.close()
        self._batch.contexts = rows

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Follow the beams of a beam search: forks, no copies."""
        self.batch_select_indices(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row so many times: forks, no copies."""
        self.batch_select_indices(torch.arange(len(self.contexts)).repeat_interleave(repeats))

    def close(self) -> None:
        """Give all pages up."""
        self._batch.end()
        for context in self.contexts:
            context.close()


@contextmanager
def watch(model: torch.nn.Module) -> Iterator[None]:
    """Tell a `PagedCache` the tokens of every forward call of the model, so that prefixes can be found later."""

    def tell(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs.get("input_ids")
        cache = kwargs.get("past_key_values", kwargs.get("cache"))
        if isinstance(cache, PagedCache) and ids is not None:
            cache.tell(ids)

    handle = model.register_forward_pre_hook(tell, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
