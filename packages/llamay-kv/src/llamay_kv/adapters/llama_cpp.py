# mypy: disable-error-code="import-not-found,import-untyped,misc,no-any-return,unused-ignore"
"""Caches for llama-cpp-python: drop-in for its own, exact in bytes, verified, and right for every kind of model.

    llama = Llama("model.gguf")
    llama.set_cache(LlamaTrieCache.for_model(llama, capacity_bytes=2 << 30))
    llama.set_cache(LlamaDiskCache.for_model(llama, "states", capacity_bytes=20 << 30))

The differences from the caches of the package itself:

* The longest prefix is found in a radix tree, in time that depends on its length and not on how many states there are.
* `cache_size` counts every byte that is kept, the scores and token ids of a state too, and is exact when a state
  replaces another.
* A state is filed under the tokens that it holds (`input_ids[:n_tokens]`), and what lies behind them in its `input_ids`
  is wiped: llama-cpp-python compares all of them, and would take stale tokens for a match.
* A model that cannot take back tokens (recurrent, hybrid, or with a sliding window) gets only states that are, whole, a
  prefix of the prompt and shorter than it. `for_model` asks the model; the tokens are compared by their SHA-256 again.
* The disk cache keeps a state that it has given out, and refuses one of whose bytes any is not what was written.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any, Self

import numpy as np

from llamay_kv.adapters._token_trie import TokenTrie
from llamay_kv.extras import needed_by
from llamay_kv.identity import Identity
from llamay_kv.storage.crypto import Key
from llamay_kv.tiers.chunk import DamagedError, Link
from llamay_kv.tiers.chunk_files import ChunkFiles

with needed_by(__name__, "llama-cpp"):
    from llama_cpp import llama_model_is_hybrid, llama_model_is_recurrent, llama_model_n_swa
    from llama_cpp.llama import Llama, LlamaState
    from llama_cpp.llama_cache import BaseLlamaCache

    from llamay_kv.adapters import _llama_states as states

__all__ = [
    "LlamaCache",
    "LlamaDiskCache",
    "LlamaRAMCache",
    "LlamaTrieCache",
    "identity_of",
    "needs_whole_prefix",
]

_DEPENDS_ON = (
    *(
        "type_k",
        "type_v",
        "swa_full",
        "offload_kqv",
        "rope_scaling_type",
        "rope_freq_base",
        "rope_freq_scale",
    ),
    *("yarn_ext_factor", "yarn_attn_factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_orig_ctx"),
)
"""The context's parameters on which K/V or its layout depends."""
_NOBODY = Identity()


def needs_whole_prefix(llama: Llama) -> bool:
    """Whether the model's state cannot be cut back to fewer tokens, so that only whole prefixes are of use."""
    model = llama._model.model
    if llama_model_is_recurrent(model) or llama_model_is_hybrid(model):
        return True
    return llama_model_n_swa(model) > 0 and not llama.context_params.swa_full


def identity_of(llama: Llama, *, weights: str | bytes | None = None) -> Identity:
    """Return the identity on which states of this model depend.

    Args:
        llama: the model.
        weights: the SHA-256 of its file, if it is known; otherwise the file is read once.

    """
    if weights is None:
        with open(llama.model_path, "rb") as file:  # noqa: PTH123
            weights = hashlib.file_digest(file, "sha256").digest()
    context = llama.context_params
    fields = {name: _plain(getattr(context, name)) for name in _DEPENDS_ON if hasattr(context, name)}
    adapter = getattr(llama, "lora_path", None)
    scale = float(getattr(llama, "lora_scale", 1.0)) if adapter else None
    digest = None
    if adapter:
        with open(adapter, "rb") as file:  # noqa: PTH123
            digest = hashlib.file_digest(file, "sha256").digest()
    return Identity(fields, weights=weights, n_ctx=llama.n_ctx(), adapter=digest, adapter_scale=scale)


def _plain(value: Any) -> bool | int | float:
    return value if isinstance(value, (bool, int, float)) else int(value)


class _PrefixCache(BaseLlamaCache):
    """The common base of the caches: which entry serves for which tokens. Safe from several threads."""

    def __init__(self, capacity_bytes: int, *, whole_prefix: bool, keep_scores: bool) -> None:
        super().__init__(capacity_bytes)
        self.whole_prefix = whole_prefix
        self.keep_scores = keep_scores
        self._trie: TokenTrie[Any] = TokenTrie()
        self._lock = threading.RLock()

    def _find(self, key: Sequence[int]) -> tuple[int, Any] | None:
        ids = states.ids(key)
        if not self.whole_prefix:
            return self._trie.longest_common(ids)
        # One token must be left to compute, for the logits after the last one are not part of a state.
        return self._trie.longest_whole(ids[: max(0, len(ids) - 1)])

    def _find_longest_prefix_key(self, key: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the tokens of the state that serves best."""
        with self._lock:
            found = self._find(key)
            return None if found is None else tuple(found[1].tokens.tolist())

    def __contains__(self, key: Sequence[int]) -> bool:
        """Whether there is a state that begins like these tokens."""
        with self._lock:
            return self._find(key) is not None

    def _check(self, key: Sequence[int], entry: Any) -> None:
        n = len(entry.tokens)
        if self.whole_prefix and states.digest(states.ids(key)[:n]) != entry.digest:
            raise KeyError("Key not found")


@dataclass(eq=False)
class _InMemory:
    tokens: np.ndarray
    digest: bytes
    state: LlamaState

    @property
    def size(self) -> int:
        scores = self.state.scores
        kept = 0 if scores.strides and not any(scores.strides) else scores.nbytes
        return self.tokens.nbytes + self.state.input_ids.nbytes + kept + len(self.state.llama_state)


class LlamaTrieCache(_PrefixCache):
    """States in memory.

    Args:
        capacity_bytes: the most bytes that they may take; the least recently used go first.
        whole_prefix: give out only states that are a prefix of the prompt; see `needs_whole_prefix`.
        keep_scores: keep the scores of a state. They take n_tokens times the vocabulary times 4 bytes, often more than
            all the rest, and only a model with logits_all=True ever looks at them again.

    """

    def __init__(
        self, capacity_bytes: int = 2 << 30, *, whole_prefix: bool = False, keep_scores: bool = True
    ) -> None:
        super().__init__(capacity_bytes, whole_prefix=whole_prefix, keep_scores=keep_scores)
        self._entries: OrderedDict[bytes, _InMemory] = OrderedDict()
        self._size = 0

    @classmethod
    def for_model(cls, llama: Llama, capacity_bytes: int = 2 << 30) -> Self:
        """Return a cache that is right for the model."""
        return cls(
            capacity_bytes, whole_prefix=needs_whole_prefix(llama), keep_scores=bool(llama._logits_all)
        )

    @property
    def cache_size(self) -> int:
        """Bytes of all states, exactly."""
        return self._size

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        """Return the state that serves best for these tokens. KeyError if there is none."""
        with self._lock:
            found = self._find(key)
            if found is None:
                raise KeyError("Key not found")
            entry: _InMemory = found[1]
            self._check(key, entry)
            self._entries.move_to_end(entry.digest)
            return entry.state

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        """Keep a state under the tokens that it holds, in place of one with the same."""
        tokens = states.held(value)
        entry = _InMemory(
            tokens, states.digest(tokens), states.without_stale_ids(value, scores=self.keep_scores)
        )
        with self._lock:
            self._remove(self._entries.get(entry.digest))
            if len(tokens) == 0 or entry.size > self.capacity_bytes:
                return
            self._trie.insert(tokens, entry)
            self._entries[entry.digest] = entry
            self._size += entry.size
            while self._size > self.capacity_bytes:
                self._remove(next(iter(self._entries.values())))

    def _remove(self, entry: _InMemory | None) -> None:
        if entry is not None:
            del self._entries[entry.digest]
            self._trie.remove(entry.tokens)
            self._size -= entry.size


class LlamaRAMCache(LlamaTrieCache):
    """The same under the name that it replaces."""


LlamaCache = LlamaRAMCache


@dataclass(eq=False)
class _OnDisk:
    tokens: np.ndarray
    digest: bytes
    about: Link
    state: Link


_ABOUT, _STATE = 1, 2
_HEAD = Struct("<I32s32sq")  # version, identity, link of the state, n_tokens


class LlamaDiskCache(_PrefixCache):
    """States in a directory, sealed, under a budget, there again in the next process.

    Args:
        cache_dir: created if need be; several processes may use it.
        capacity_bytes: the most bytes that its files may take; the least recently used go first.
        whole_prefix: give out only states that are a prefix of the prompt; see `needs_whole_prefix`.
        keep_scores: keep the scores of a state, see `LlamaTrieCache`.
        identity: the identity on which states depend, see `identity_of`. States of another identity are not seen.
        key: encrypts the files; without one the directory has a secret of its own.
        min_free_bytes: nothing is written that would leave less room on the file system.
        durable: whether a state that was stored survives a loss of power. If not, it may be torn then, and is refused.

    """

    def __init__(
        self,
        cache_dir: str | os.PathLike[str] = ".cache/llama_cache",
        capacity_bytes: int = 2 << 30,
        *,
        whole_prefix: bool = False,
        keep_scores: bool = True,
        identity: Identity = _NOBODY,
        key: Key | None = None,
        min_free_bytes: int = 1 << 30,
        durable: bool = True,
    ) -> None:
        super().__init__(capacity_bytes, whole_prefix=whole_prefix, keep_scores=keep_scores)
        self._identity = identity
        self._files = ChunkFiles(
            cache_dir,
            budget_bytes=capacity_bytes,
            key=key,
            min_free_bytes=min_free_bytes,
            durable=durable,
        )
        self._seen: set[str] = set()
        self._listed = 0.0

    def _find(self, key: Sequence[int]) -> tuple[int, Any] | None:
        self._files.relist()
        if self._listed != self._files.listed:  # at the first use, and when other processes may have written
            self._listed, names = self._files.listed, set(self._files.names())
            for name in names - self._seen:
                self._catalogue(name)
            self._seen = names
        while (found := super()._find(key)) is not None:
            if self._files.size(found[1].state) is not None:
                return found
            self._forget(found[1])  # evicted
        return None

    @classmethod
    def for_model(
        cls,
        llama: Llama,
        cache_dir: str | os.PathLike[str] = ".cache/llama_cache",
        capacity_bytes: int = 2 << 30,
        *,
        weights: str | bytes | None = None,
        key: Key | None = None,
    ) -> Self:
        """Return a cache that is right for the model, and whose states serve for no other weights."""
        return cls(
            cache_dir,
            capacity_bytes,
            whole_prefix=needs_whole_prefix(llama),
            keep_scores=bool(llama._logits_all),
            identity=identity_of(llama, weights=weights),
            key=key,
        )

    def _catalogue(self, name: str) -> None:
        """Learn of a state that an earlier process has stored."""
        try:
            about = Link.named(name)
            if self._files.parts(about) != _ABOUT:
                return
            payload = self._files.read(about, keep=True)[1]  # it may be under the key of another owner
            version, identity, state, n = _HEAD.unpack(payload[: _HEAD.size])
        except (DamagedError, ValueError):
            return
        tokens = np.frombuffer(payload[_HEAD.size :], "<i4").astype(np.int32)
        if version == 1 and identity == self._identity.digest and len(tokens) == n:
            self._trie.insert(tokens, _OnDisk(tokens, states.digest(tokens), about, Link(state)))

    @property
    def cache_size(self) -> int:
        """Bytes of the files in the directory, exactly."""
        return self._files.used_bytes

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        """Return the state that serves best for these tokens, verified. KeyError if there is none."""
        with self._lock:
            while (found := self._find(key)) is not None:
                entry: _OnDisk = found[1]
                self._check(key, entry)
                try:
                    state = states.decode(self._files.read(entry.state)[1], entry.tokens)
                except (DamagedError, ValueError):
                    self._forget(entry)
                    continue
                self._files.touch(entry.state)
                self._files.touch(entry.about)
                return state
            raise KeyError("Key not found")

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        """Store a state under the tokens that it holds, in place of one with the same. OSError if that fails."""
        tokens = states.held(value)
        if len(tokens) == 0:
            return
        about, state = (Link(os.urandom(32)) for _ in range(2))
        head = _HEAD.pack(1, self._identity.digest, state.digest, len(tokens))
        entry = _OnDisk(tokens, states.digest(tokens), about, state)
        payload = states.encode(states.without_stale_ids(value, scores=self.keep_scores))
        with self._lock:
            self._find(tokens.tolist())  # to know of one with the same tokens
            chunks = [(state, _STATE, payload), (about, _ABOUT, head + tokens.astype("<i4").tobytes())]
            written = self._files.write(chunks)
            if written == {state, about}:
                self._forget(self._trie.insert(tokens, entry), but=entry)
                return
            for link in written:
                self._files.drop(link)

    def _forget(self, entry: _OnDisk | None, *, but: _OnDisk | None = None) -> None:
        if entry is None:
            return
        if but is None:
            self._trie.remove(entry.tokens)
        self._files.drop(entry.about)
        self._files.drop(entry.state)
