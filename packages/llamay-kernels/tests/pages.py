"""A lease provider in ctypes and numpy: the view is plain C, so its owner needs no C++ and no llamay_kv."""

import ctypes as c
from dataclasses import dataclass, field

import numpy as np

CAPSULE = b"llamay.kv_view.v1"
F32, F16 = 0, 1
FULL, WINDOW = 0, 1


class Layer(c.Structure):
    _fields_ = [
        ("k_offset", c.c_uint64),
        ("v_offset", c.c_uint64),
        ("layer", c.c_uint32),
        ("kv_heads", c.c_uint32),
        ("k_dim", c.c_uint32),
        ("v_dim", c.c_uint32),
    ]


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


@dataclass
class Context:
    """Pages for up to `capacity` positions, in a scattered order, poisoned so that an unwritten value shows.

    `reserve` rows before a run, `commit` them after it.
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

    def __post_init__(self):
        rng = np.random.default_rng(self.seed)
        self.element = np.dtype(np.float32 if self.dtype == F32 else np.float16)
        pages = -(-self.capacity // self.page_tokens)
        blocks = -(-pages // self.block_pages)
        self._keep = []
        self._groups = (Group * len(self.groups))()
        for g, spec in zip(self._groups, self.groups, strict=True):
            offset, layers = 0, (Layer * len(spec.layers))()
            for layer, s in zip(layers, spec.layers, strict=True):
                k, v = (s.kv_heads * d * self.page_tokens * self.element.itemsize for d in (s.k_dim, s.v_dim))
                layer.layer, layer.kv_heads, layer.k_dim, layer.v_dim = s.layer, s.kv_heads, s.k_dim, s.v_dim
                layer.k_offset, layer.v_offset = offset, offset + -(-k // 64) * 64
                offset = layer.v_offset + -(-v // 64) * 64
            memory = np.full((pages + 2) * offset + 64, 0xFF, np.uint8)  # NaN in every precision
            arena = memory[-memory.ctypes.data % 64 :][: (pages + 2) * offset]
            table = np.full(blocks * self.block_pages, -1, np.int32)
            table[:pages] = rng.permutation(pages + 2)[:pages]
            pointers = (c.POINTER(c.c_int32) * blocks)(
                *(table[b * self.block_pages :].ctypes.data_as(c.POINTER(c.c_int32)) for b in range(blocks))
            )
            self._keep += [memory, pointers, layers]
            self.arenas.append(arena)
            self.tables.append(table)
            g.arena, g.page_bytes, g.blocks, g.layers = arena.ctypes.data, offset, pointers, layers
            g.layer_stride, g.n_layers = c.sizeof(Layer), len(spec.layers)
            g.block_pages, g.page_tokens = self.block_pages, self.page_tokens
            g.kind, g.window, g.dtype = spec.kind, spec.window, self.dtype
        self._view = View(self.size, c.sizeof(Group), len(self.groups), self._groups, 0, 0)

    def reserve(self, n: int) -> "Context":
        assert self.n_tokens + n <= self.capacity
        self.n_reserved = n
        return self

    def commit(self, n: int) -> None:
        self.n_tokens += n
        self.n_reserved = 0

    def __llamay_kv_view__(self, major: int) -> object:
        if major != self.major:
            raise BufferError(f"this context speaks kv_view {self.major}, not {major}")
        self._view.size, self._view.n_tokens, self._view.n_reserved = (
            self.size,
            self.n_tokens,
            self.n_reserved,
        )
        return _new(c.addressof(self._view), self.name, None)

    def stored(self, layer: int) -> tuple[np.ndarray, np.ndarray]:
        """Keys and values as they lie in the pages: (positions, kv_heads, dim), float32."""
        for g, spec, arena, table in zip(self._groups, self.groups, self.arenas, self.tables, strict=True):
            for at in range(g.n_layers):
                if g.layers[at].layer != layer:
                    continue
                s = spec.layers[at]
                n, p = self.n_tokens + self.n_reserved, self.page_tokens
                keys, values = [], []
                for number in table[: -(-n // p)]:
                    page = arena[number * g.page_bytes :][: g.page_bytes]
                    k = page[g.layers[at].k_offset :].view(self.element)[: s.kv_heads * s.k_dim * p]
                    v = page[g.layers[at].v_offset :].view(self.element)[: s.kv_heads * s.v_dim * p]
                    keys.append(k.reshape(s.kv_heads, s.k_dim, p).transpose(2, 0, 1))
                    values.append(v.reshape(s.kv_heads, p, s.v_dim).transpose(1, 0, 2))
                return tuple(np.concatenate(x)[:n].astype(np.float32) for x in (keys, values))
        raise KeyError(layer)
