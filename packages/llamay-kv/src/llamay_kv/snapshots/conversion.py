"""K/V in another precision than it was computed in, chunk by chunk, by the same conversions that pages use."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np

from llamay_kv import arguments
from llamay_kv._kv import Context, Lease, Pool
from llamay_kv.layout import PRECISIONS, Group, Layout, Precision
from llamay_kv.snapshots.format import CHUNK, Frame

_SOURCES = ("f32", "f16")
_KINDS = ("full", "window", "latent")


def narrowed(layout: Layout, precision: Precision) -> Layout:
    """Return the layout whose groups store no more than the precision. ValueError if that cannot be done."""
    arguments.one_of("precision", precision, PRECISIONS)
    groups = []
    for g, group in enumerate(layout.groups):
        if group.kind not in _KINDS or PRECISIONS[group.precision] >= PRECISIONS[precision]:
            groups.append(group)
        elif group.precision not in _SOURCES:
            raise ValueError(f"group {g} holds {group.precision}, which is not saved as {precision}")
        else:  # latent vectors are keys, which vq8 leaves as f16
            keys_only = group.kind == "latent" and precision == "vq8"
            groups.append(replace(group, precision="f16" if keys_only else precision))
    return Layout(groups)


def converts(stored: Group, held: Group) -> bool:
    """Whether the two differ in precision and in nothing else."""
    return stored != held and replace(stored, precision=held.precision) == held


class ChunkConverter:
    """A pool for one chunk of one group, to write in one precision and read in another."""

    def __init__(self, group: Group) -> None:
        make = Group.latent if group.kind == "latent" else Group.full
        self._group = make(group.layers, group.precision)
        self._pool = Pool(Layout([self._group]).native(), CHUNK, None, 1)
        self._ids = np.zeros(CHUNK, np.int32)

    def pack(self, context: Context, frame: Frame, out: np.ndarray) -> None:
        """Fill `out` with the frame's positions of the context, in the precision of this group."""
        n = frame.end - frame.begin
        with closing(Context(self._pool)) as chunk:
            with chunk.reserve(n) as lease:
                for layer in self._group.layers:
                    lease.write(layer.index, *context.read(layer.index, frame.begin, frame.end))
                lease.commit(self._ids[:n])
            chunk.pack_into(0, 0, n, out)

    def unpack(self, data: np.ndarray, frame: Frame, lease: Lease) -> None:
        """Write a frame that is stored in the precision of this group to where the lease has another."""
        n = frame.end - frame.begin
        with closing(Context(self._pool)) as chunk:
            with chunk.reserve(n) as writing:
                writing.unpack_from(0, 0, n, data)
                writing.commit(self._ids[:n])
            for layer in self._group.layers:
                lease.write(layer.index, *chunk.read(layer.index), offset=frame.begin - lease.begin)
