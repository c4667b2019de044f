"""Recurrent states in a snapshot: side states with names of their own.

`recurrent/GGGG/NNNNNNNNNN` is the state of group G after N tokens, as decimal numbers with leading zeros. Its version
is 1 if it is a checkpoint, 0 if it is the present state only. Its data are the elements of all layers in order, for
each the inputs of the convolution and then the state, as the group stores them.
"""

from __future__ import annotations

from collections.abc import Mapping

from llamay_kv import arguments
from llamay_kv._kv import Context
from llamay_kv.errors import SnapshotError
from llamay_kv.layout import Layout
from llamay_kv.snapshots.format import Manifest

PREFIX = "recurrent/"


class PackedState:
    """A recurrent state of a context, copied when it is written."""

    def __init__(self, context: Context, group: int, at: int, size: int) -> None:
        self._context, self._group, self._at, self._size = context, group, at, size

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return self._context.pack_state(self._group, self._at)


def checked_side(side: Mapping[str, tuple[int, bytes]]) -> dict[str, tuple[int, bytes]]:
    """Return opaque states by name, as (version, data)."""
    states = {}
    for name, state in arguments.mapping("side", side).items():
        at = f"side[{arguments.text('side: a name', name)!r}]"
        version, data = arguments.pair(at, state)
        states[name] = arguments.whole(f"{at}[0]", version), bytes(arguments.data(f"{at}[1]", data))
    return states


def with_states(
    context: Context, layout: Layout, side: Mapping[str, tuple[int, bytes]]
) -> dict[str, tuple[int, bytes | PackedState]]:
    """Return the side states and the states of the recurrent groups, in the order of a manifest."""
    states: dict[str, tuple[int, bytes | PackedState]] = dict(side)
    groups = [g for g, group in enumerate(layout.groups) if group.kind == "state"]
    if groups and any(name.startswith(PREFIX) for name in side):
        raise ValueError(f"names of side states that begin with {PREFIX!r} are taken")
    kept = context.checkpoints
    for at in sorted({*kept, len(context)} - {0}):
        for g in groups:
            size = layout.groups[g].state_bytes
            states[f"{PREFIX}{g:04}/{at:010}"] = (int(at in kept), PackedState(context, g, at, size))
    return dict(sorted(states.items()))


def place(name: str) -> tuple[int, int] | None:
    """Return the group and the length of a recurrent state by its name; None for another side state."""
    parts = name.removeprefix(PREFIX).split("/")
    if (
        not name.startswith(PREFIX)
        or len(parts) != 2
        or not all(p.isdecimal() and p.isascii() for p in parts)
    ):
        return None
    return int(parts[0]), int(parts[1])


def lengths(path: str, manifest: Manifest) -> tuple[list[int], bool]:
    """Return the lengths with a recurrent state, and whether the last one is a checkpoint.

    SnapshotError if a state is missing or has another size than the layout says.
    """
    groups = manifest.layout.groups
    recurrent = [g for g, group in enumerate(groups) if group.kind == "state"]
    if not recurrent:
        return [], False

    def refuse(reason: str) -> SnapshotError:
        return SnapshotError(path, "manifest", reason)

    found: dict[int, set[int]] = {g: set() for g in recurrent}
    last = False
    for name, version, size in manifest.side:
        if (where := place(name)) is None:
            continue
        g, at = where
        if g not in found or not 0 < at <= manifest.n_tokens or name != f"{PREFIX}{g:04}/{at:010}":
            raise refuse(f"the side state {name!r} is of no recurrent group")
        if size != groups[g].state_bytes:
            raise refuse(f"the side state {name!r} has {size} bytes and not {groups[g].state_bytes}")
        found[g].add(at)
        last |= at == manifest.n_tokens and version == 1
    if any(at != found[recurrent[0]] for at in found.values()):
        raise refuse("the recurrent groups have states of different lengths")
    if manifest.n_tokens and manifest.n_tokens not in found[recurrent[0]]:
        raise refuse("the snapshot lacks the recurrent state after its last token")
    return sorted(found[recurrent[0]]), last
