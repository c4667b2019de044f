"""A lease provider in ctypes and numpy: the view is plain C, so its owner needs no C++ and no llamay_kv."""

import ctypes as c
from copy import copy
from dataclasses import dataclass, field

import numpy as np

CAPSULE = b"llamay.kv_view.v1"
F32, F16, VQ8, Q8 = 0, 1, 2, 3
FULL, WINDOW, LATENT, STATE = 0, 1, 2, 3


class Layer(c.Structure):
    _fields_ = [
        ("k_offset", c.c_uint64),
        ("v_offset", c.c_uint64),
        ("layer", c.c_uint32),
        ("kv_heads", c.c_uint32),
        ("k_dim", c.c_uint32),
        ("v_dim", c.c_uint32),
    ]


class ScaledLayer(c.Structure):
    _fields_ = [("layer", Layer), ("k_scale_offset", c.c_uint64), ("v_scale_offset", c.c_uint64)]


class Group(c.Structure):
    _fields_ = [
        ("arena", c.c_void_p),
        ("page_bytes", c.c_uint64),
        ("blocks", c.POINTER(c.POINTER(c.c_int32))),
        ("layers", c.POINTER(Layer)),
        ("layer_stride", c.c_uint32),
        ("n_layers", c.c_uint32),
        ("block_pages", c.c_uint32),
        ("page_tokens", c.c_uint32),
        ("kind", c.c_uint32),
        ("window", c.c_uint32),
        ("dtype", c.c_uint32),
        ("state_at", c.POINTER(c.c_uint32)),
        ("n_states", c.c_uint64),
    ]


class View(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("group_stride", c.c_uint32),
        ("n_groups", c.c_uint32),
        ("groups", c.POINTER(Group)),
        ("n_tokens", c.c_uint32),
        ("n_reserved", c.c_uint32),
    ]


_new = c.pythonapi.PyCapsule_New
_new.restype = c.py_object
_new.argtypes = [c.c_void_p, c.c_char_p, c.c_void_p]


class _Place:
    """Hands out stretches of a page."""

    end = 0

    def take(self, size: int) -> int:
        at = self.end
        self.end += -(-size // 64) * 64
        return at


@dataclass(frozen=True)
class LayerSpec:
    layer: int
    kv_heads: int
    k_dim: int
    v_dim: int


@dataclass(frozen=True)
class GroupSpec:
    layers: tuple[LayerSpec, ...]
    kind: int = FULL
    window: int = 0


def scaled(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors over the last axis as int8 and a scale each, as kv_view.h defines them."""
    with np.errstate(invalid="ignore", divide="ignore"):
        largest = np.abs(x).max(axis=-1, keepdims=True)
        scale = np.where(np.isfinite(largest), largest / np.float32(127), np.float32(np.nan))
        q = np.where(scale > 0, np.clip(np.rint(x / scale), -127, 127), 0)
    return q.astype(np.int8), scale.astype(np.float32)


def rounded(x: np.ndarray, dtype: int, value: bool) -> np.ndarray:
    """A key, or value, as it reads back after it was stored in a precision."""
    if dtype == Q8 or (dtype == VQ8 and value):
        q, scale = scaled(x)
        return q.astype(np.float32) * scale
    with np.errstate(over="ignore"):
        return x.astype(np.float32 if dtype == F32 else np.float16).astype(np.float32)


@dataclass
class Context:
    """Pages for up to `capacity` positions, in a scattered order, poisoned so that an unwritten value shows.

    `reserve` rows before a run, `commit` them after it. `spare` more pages are for forks. A group of states has a
    page for each state that is kept, and `state_pages` of them.
    """

    groups: tuple[GroupSpec, ...]
    capacity: int = 512
    page_tokens: int = 64
    dtype: int = F32
    block_pages: int = 4
    seed: int = 0
    n_tokens: int = 0
    n_reserved: int = 0
    arenas: list[np.ndarray] = field(default_factory=list)
    tables: list[np.ndarray] = field(default_factory=list)
    major: int = 1
    name: bytes = CAPSULE
    size: int = c.sizeof(View)
    spare: int = 2
    state_pages: int = 16

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.k_element, self.v_element = (
            np.dtype(np.float32 if self.dtype == F32 else np.int8 if self.dtype in int8 else np.float16)
            for int8 in ((Q8,), (VQ8, Q8))
        )
        pages = -(-self.capacity // self.page_tokens)
        blocks = -(-pages // self.block_pages)
        self._keep, self._free = [], []
        self.states: dict[int, list[int]] = {}  # of each number of tokens, its page in each group of states
        self._groups = (Group * len(self.groups))()
        for g, spec in zip(self._groups, self.groups, strict=True):
            place = _Place()
            layers = (ScaledLayer * len(spec.layers))()
            for scaled_layer, s in zip(layers, spec.layers, strict=True):
                layer, vectors = (
                    scaled_layer.layer,
                    s.kv_heads * (1 if spec.kind == STATE else self.page_tokens),
                )
                layer.layer, layer.kv_heads, layer.k_dim, layer.v_dim = s.layer, s.kv_heads, s.k_dim, s.v_dim
                if spec.kind == STATE:
                    layer.k_offset, layer.v_offset = (
                        place.take(4 * vectors * s.k_dim),
                        place.take(4 * vectors * s.v_dim),
                    )
                    continue
                layer.k_offset = place.take(vectors * s.k_dim * self.k_element.itemsize)
                if self.dtype == Q8:
                    scaled_layer.k_scale_offset = place.take(4 * vectors)
                layer.v_offset = place.take(vectors * s.v_dim * self.v_element.itemsize)
                if self.dtype in (VQ8, Q8):
                    scaled_layer.v_scale_offset = place.take(4 * vectors)
            offset, total = place.end, self.state_pages if spec.kind == STATE else pages + self.spare
            memory = np.full(total * offset + 64, 0xFF, np.uint8)  # NaN in every float
            arena = memory[-memory.ctypes.data % 64 :][: total * offset]
            listed = 0 if spec.kind == STATE else pages
            table = np.full(blocks * self.block_pages, -1, np.int32)
            numbers = rng.permutation(total)
            table[:listed] = numbers[:listed]
            self._free.append(numbers[listed:].tolist())
            self._keep += [memory, layers]
            self.arenas.append(arena)
            self.tables.append(table)
            g.arena, g.page_bytes = arena.ctypes.data, offset
            g.layers = c.cast(layers, c.POINTER(Layer))
            g.layer_stride, g.n_layers = c.sizeof(ScaledLayer), len(spec.layers)
            g.block_pages, g.page_tokens = self.block_pages, self.page_tokens
            g.kind, g.window, g.dtype = spec.kind, spec.window, self.dtype
            if spec.kind == STATE:
                g.page_tokens, g.dtype = 1, F32
        self._list_pages()

    def _list_pages(self):
        for g, table in zip(self._groups, self.tables, strict=True):
            if g.kind == STATE:
                continue
            starts = range(0, len(table), self.block_pages)
            pointers = (c.POINTER(c.c_int32) * len(starts))(
                *(table[at:].ctypes.data_as(c.POINTER(c.c_int32)) for at in starts)
            )
            self._keep.append(pointers)
            g.blocks = pointers
        self._view = View(self.size, c.sizeof(Group), len(self.groups), self._groups, 0, 0)
        self._list_states()

    def _list_states(self):
        at = sorted(self.states)
        state_at = (c.c_uint32 * len(at))(*at)
        for number, g in enumerate(g for g in self._groups if g.kind == STATE):
            block = (c.c_int32 * len(at))(*(self.states[n][number] for n in at))
            pointers = (c.POINTER(c.c_int32) * 1)(c.cast(block, c.POINTER(c.c_int32)))
            self._keep += [state_at, block, pointers]
            g.blocks, g.block_pages = pointers, 1 << max(len(at) - 1, 0).bit_length()
            g.state_at, g.n_states = c.cast(state_at, c.POINTER(c.c_uint32)), len(at)

    def _state_pages(self):
        """A new page of each group of states, poisoned."""
        numbers = []
        for g, arena, free in zip(self._groups, self.arenas, self._free, strict=True):
            if g.kind == STATE:
                numbers.append(free.pop())
                arena[numbers[-1] * g.page_bytes :][: g.page_bytes] = 0xFF
        return numbers

    def _drop_state(self, at):
        numbers = iter(self.states.pop(at))
        for g, free in zip(self._groups, self._free, strict=True):
            if g.kind == STATE:
                free.append(next(numbers))

    def fork(self, keep: int | None = None) -> "Context":
        """The first `keep` positions in the same pages, save the page that is written next, which is copied."""
        child = copy(self)
        child.n_tokens, child.n_reserved = self.n_tokens if keep is None else keep, 0
        child._groups = type(self._groups)(*self._groups)
        child._keep, child.tables = list(self._keep), [t.copy() for t in self.tables]
        child.states = {}
        if child.n_tokens in self.states:
            child.states[child.n_tokens] = child._state_pages()
            kept = zip(self.states[child.n_tokens], child.states[child.n_tokens], strict=True)
            states = [(g, a) for g, a in zip(self._groups, self.arenas, strict=True) if g.kind == STATE]
            for (g, arena), (old, new) in zip(states, kept, strict=True):
                pages = arena.reshape(-1, g.page_bytes)
                pages[new] = pages[old]
        full = child.n_tokens // self.page_tokens
        for table, free, arena, g in zip(child.tables, self._free, self.arenas, self._groups, strict=True):
            if g.kind == STATE:
                continue
            for i in range(full, -(-self.capacity // self.page_tokens)):
                number = free.pop()
                pages = arena.reshape(-1, g.page_bytes)
                pages[number] = pages[table[i]]
                table[i] = number
        child._list_pages()
        return child

    def reserve(self, n: int, states: list[int] | None = None) -> "Context":
        """states: after how many tokens of the whole context states are to be written; by default the last."""
        assert self.n_tokens + n <= self.capacity
        self.n_reserved = n
        if any(g.kind == STATE for g in self._groups):
            for at in [a for a in self.states if a > self.n_tokens]:
                self._drop_state(at)
            for at in [self.n_tokens + n] if states is None else states:
                self.states[at] = self._state_pages()
            self._list_states()
        return self

    def commit(self, n: int) -> None:
        self.n_tokens += n
        self.n_reserved = 0
        if any(g.kind == STATE for g in self._groups):
            assert self.n_tokens in self.states
            for at in [a for a in self.states if a != self.n_tokens]:
                self._drop_state(at)
            self._list_states()

    def __llamay_kv_view__(self, major: int) -> object:
        if major != self.major:
            raise BufferError(f"this context speaks kv_view {self.major}, not {major}")
        self._view.size, self._view.n_tokens, self._view.n_reserved = (
            self.size,
            self.n_tokens,
            self.n_reserved,
        )
        return _new(c.addressof(self._view), self.name, None)

    def state(self, layer: int, at: int) -> tuple[np.ndarray, np.ndarray]:
        """The inputs that a convolution carries over and the recurrent state after a number of tokens, float32."""
        numbers = iter(self.states[at])
        for g, spec, arena in zip(self._groups, self.groups, self.arenas, strict=True):
            if g.kind != STATE:
                continue
            page = arena[next(numbers) * g.page_bytes :][: g.page_bytes]
            places = c.cast(g.layers, c.POINTER(ScaledLayer))
            for place, s in zip(places[: g.n_layers], spec.layers, strict=True):
                if s.layer == layer:
                    parts = (place.layer.k_offset, s.k_dim), (place.layer.v_offset, s.v_dim)
                    return tuple(page[o:][: 4 * s.kv_heads * d].view(np.float32).copy() for o, d in parts)
        raise KeyError(layer)

    def stored(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values as they lie in the pages: (positions, kv_heads, dim), float32."""
        for g, spec, arena, table in zip(self._groups, self.groups, self.arenas, self.tables, strict=True):
            places = c.cast(g.layers, c.POINTER(ScaledLayer))
            for at in range(g.n_layers):
                if places[at].layer.layer != layer:
                    continue
                s = spec.layers[at]
                n, p = self.n_tokens + self.n_reserved, self.page_tokens
                place = places[at]
                keys, values = [], []
                for number in table[: -(-n // p)]:
                    page = arena[number * g.page_bytes :][: g.page_bytes]

                    def part(offset, element, count, page=page):
                        return page[offset:][: count * np.dtype(element).itemsize].view(element)

                    k = part(place.layer.k_offset, self.k_element, s.kv_heads * s.k_dim * p)
                    v = part(place.layer.v_offset, self.v_element, s.kv_heads * s.v_dim * p)
                    k, v = k.astype(np.float32), v.astype(np.float32)
                    k, v = k.reshape(s.kv_heads, s.k_dim, p), v.reshape(s.kv_heads, p, s.v_dim)
                    if self.dtype == Q8:
                        k *= part(place.k_scale_offset, np.float32, s.kv_heads * p).reshape(-1, 1, p)
                    if self.dtype in (VQ8, Q8):
                        v *= part(place.v_scale_offset, np.float32, s.kv_heads * p).reshape(-1, p, 1)
                    keys.append(k.transpose(2, 0, 1))
                    values.append(v.transpose(1, 0, 2))
                return tuple(np.concatenate(x)[:n] for x in (keys, values))
        raise KeyError(layer)
