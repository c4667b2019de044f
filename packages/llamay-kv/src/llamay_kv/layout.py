"""Layouts: groups of layers that share a page table, and the shape and precision of their pages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from llamay_kv import arguments

Kind = Literal["full", "window", "latent", "state"]
Precision = Literal["f32", "f16", "vq8", "q8"]

# The numbers of abi/llamay/kv_view.h.
KINDS: dict[str, int] = {"full": 0, "window": 1, "latent": 2, "state": 3}
PRECISIONS: dict[str, int] = {"f32": 0, "f16": 1, "vq8": 2, "q8": 3}

_SCALE = 4
_BYTES = {"f32": (4, 0, 4, 0), "f16": (2, 0, 2, 0), "vq8": (2, 0, 1, _SCALE), "q8": (1, _SCALE, 1, _SCALE)}
"""By precision: bytes of an element of K, of its scale for each head, and the same for V."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a model: its index there, and elements per head.

    A latent layer has k_dim only. A recurrent one has in k_dim the last inputs of its short convolution, and in v_dim
    its state; one of the two may be 0.
    """

    index: int
    kv_heads: int
    k_dim: int
    v_dim: int

    def __post_init__(self) -> None:
        for name in ("index", "kv_heads", "k_dim", "v_dim"):
            object.__setattr__(self, name, arguments.whole(name, getattr(self, name)))


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share one page table. `full`, `sliding`, `latent` and `recurrent` make one."""

    kind: Kind
    layers: tuple[Layer, ...]
    window: int = 0
    precision: Precision = "f16"
    stride: int = field(default=0, compare=False)

    def planes(self) -> list[tuple[int, int]]:
        """Return the parts of a packed chunk in order, as rows and the bytes that a position takes in each.

        For each layer K, its scales if it is int8, V, and its scales. None in a recurrent group.
        """
        if self.kind == "state":
            return []
        k, k_scale, v, v_scale = _BYTES[self.precision]
        parts = []
        for layer in self.layers:
            parts += [(layer.kv_heads * layer.k_dim, k), (layer.kv_heads, k_scale)]
            if layer.v_dim:
                parts += [(layer.kv_heads, layer.v_dim * v), (layer.kv_heads, v_scale)]
        return [(rows, unit) for rows, unit in parts if unit]

    @property
    def position_bytes(self) -> int:
        """Bytes of one position of all layers."""
        return sum(rows * unit for rows, unit in self.planes())

    @property
    def state_bytes(self) -> int:
        """Bytes of one state of all layers; 0 unless the group is recurrent."""
        if self.kind != "state":
            return 0
        element = _BYTES[self.precision][0]
        return sum(element * layer.kv_heads * (layer.k_dim + layer.v_dim) for layer in self.layers)

    def __post_init__(self) -> None:
        arguments.one_of("kind", self.kind, KINDS)
        arguments.one_of("precision", self.precision, PRECISIONS)
        object.__setattr__(self, "layers", arguments.several("layers", self.layers, Layer))
        for name in ("window", "stride"):
            object.__setattr__(self, name, arguments.whole(name, getattr(self, name)))
        if (self.window > 0) != (self.kind == "window"):
            raise ValueError("a window group needs a window of at least 1, and no other group has one")
        if self.stride and self.kind != "state":
            raise ValueError("only a recurrent group has a stride")
        if self.kind == "latent" and (self.precision == "vq8" or any(layer.v_dim for layer in self.layers)):
            raise ValueError(
                "a latent group has no values apart from its keys: its v_dim is 0, and vq8 is not for it"
            )
        if self.kind == "state" and self.precision not in ("f32", "f16"):
            raise ValueError(f"recurrent states are kept in f32 or f16, not {self.precision}")
        if not self.layers:
            raise ValueError("a group needs at least one layer")

    @classmethod
    def full(cls, layers: Iterable[Layer], precision: Precision = "f16") -> Group:
        """Layers that may look back at every position."""
        return cls("full", arguments.several("layers", layers, Layer), 0, precision)

    @classmethod
    def sliding(cls, window: int, layers: Iterable[Layer], precision: Precision = "f16") -> Group:
        """Layers that look back at `window` positions, the current one included.

        Pages that lie wholly behind the window of a context are dropped when tokens are committed.
        """
        return cls("window", arguments.several("layers", layers, Layer), window, precision)

    @classmethod
    def latent(cls, layers: Iterable[Layer], precision: Precision = "f16") -> Group:
        """Layers that keep one vector for each position, of which the values are a part (MLA).

        Each layer has kv_heads 1 as a rule, k_dim elements and a v_dim of 0.
        """
        return cls("latent", arguments.several("layers", layers, Layer), 0, precision)

    @classmethod
    def recurrent(cls, layers: Iterable[Layer], precision: Precision = "f32", *, stride: int = 0) -> Group:
        """Layers that keep a state of fixed size instead of positions.

        A lease writes the state after its last token into a page of its own; the state before stays unchanged. A state
        at a multiple of `stride` tokens becomes a checkpoint that the context can be truncated to, beside the
        checkpoints that `Context.checkpoint` takes; a stride of 0 takes none.
        """
        return cls("state", arguments.several("layers", layers, Layer), 0, precision, stride)


@dataclass(frozen=True, slots=True)
class Layout:
    """The groups of a model. Two pools exchange snapshots if and only if their layouts are equal.

    `Layout([])` is that of a model that keeps nothing, an encoder: contexts count their tokens, and take no page.
    """

    groups: tuple[Group, ...]
    _places: dict[int, Layer] = field(init=False, repr=False, compare=False)

    def __init__(self, groups: Iterable[Group]) -> None:
        object.__setattr__(self, "groups", arguments.several("groups", groups, Group))
        places = {layer.index: layer for group in self.groups for layer in group.layers}
        if len(places) != sum(len(group.layers) for group in self.groups):
            raise ValueError("a layer is listed twice")
        object.__setattr__(self, "_places", places)

    @classmethod
    def uniform(
        cls, n_layers: int, kv_heads: int, k_dim: int, v_dim: int | None = None, precision: Precision = "f16"
    ) -> Layout:
        """Layers 0 to n_layers - 1, all alike, in one full group."""
        v, n = k_dim if v_dim is None else v_dim, arguments.whole("n_layers", n_layers, 1)
        return cls([Group.full((Layer(i, kv_heads, k_dim, v) for i in range(n)), precision)])

    def layer(self, index: int) -> Layer:
        """Return the layer with this index in the model. KeyError if there is none."""
        if (found := self._places.get(arguments.whole("index", index))) is None:
            raise KeyError(f"index {index}: the layout has no such layer")
        return found

    def native(self) -> list[tuple[int, int, int, int, list[tuple[int, int, int, int]]]]:
        """Return the groups as the native pool takes them."""
        return [
            (
                KINDS[group.kind],
                group.window,
                group.stride,
                PRECISIONS[group.precision],
                [(layer.index, layer.kv_heads, layer.k_dim, layer.v_dim) for layer in group.layers],
            )
            for group in self.groups
        ]

    @property
    def recurrent(self) -> bool:
        """Whether a group is recurrent, so that a context can be cut only where a state was kept."""
        return any(group.kind == "state" for group in self.groups)

    @property
    def position_bytes(self) -> int:
        """Bytes of one position of all groups."""
        return sum(group.position_bytes for group in self.groups)

    def to_json(self) -> list[dict[str, object]]:
        """Return the canonical form that snapshots store."""
        return [
            {
                "kind": group.kind,
                "layers": [[layer.index, layer.kv_heads, layer.k_dim, layer.v_dim] for layer in group.layers],
                "precision": group.precision,
                "window": group.window,
            }
            for group in self.groups
        ]

    def difference(self, other: Layout) -> str | None:
        """Say where `other` first differs, in words; None if it does not."""
        arguments.instance("other", other, Layout)
        if len(self.groups) != len(other.groups):
            return f"{len(self.groups)} groups, not {len(other.groups)}"
        for g, (mine, its) in enumerate(zip(self.groups, other.groups, strict=True)):
            for name in ("kind", "window", "precision"):
                a, b = getattr(mine, name), getattr(its, name)
                if a != b:
                    return f"group {g}: {name} {a}, not {b}"
            if len(mine.layers) != len(its.layers):
                return f"group {g}: {len(mine.layers)} layers, not {len(its.layers)}"
            for a, b in zip(mine.layers, its.layers, strict=True):
                if a != b:
                    return f"group {g}: {a}, not {b}"
        return None
