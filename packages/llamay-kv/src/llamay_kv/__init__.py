"""Paged, forkable, persistent K/V state: contexts as values."""

from llamay_kv._context import Context, Pool
from llamay_kv._crypto import Key
from llamay_kv._disk_cache import DiskCache
from llamay_kv._errors import IdentityMismatch, LegacyWarning, NotAllowed, SnapshotError
from llamay_kv._format import Manifest
from llamay_kv._identity import Identity
from llamay_kv._kv import Closed, ContextBusy, Lease, OutOfPages
from llamay_kv._layout import Group, Layer, Layout
from llamay_kv._maintenance import Difference, diff, sweep
from llamay_kv._object_vfs import ObjectVfs
from llamay_kv._prefix_tree import Miss, Pin, PrefixTree
from llamay_kv._snapshot import inspect, rekey, verify
from llamay_kv._vfs import File, LocalVfs, Vfs

INTERFACE: dict[str, tuple[int, int]] = {"kv_view": (1, 0)}
"""The versions of the interfaces that this package offers, as (major, minor)."""

__all__ = [
    "INTERFACE",
    "Closed",
    "Context",
    "ContextBusy",
    "Difference",
    "DiskCache",
    "File",
    "Group",
    "Identity",
    "IdentityMismatch",
    "Key",
    "Layer",
    "Layout",
    "Lease",
    "LegacyWarning",
    "LocalVfs",
    "Manifest",
    "Miss",
    "NotAllowed",
    "ObjectVfs",
    "OutOfPages",
    "Pin",
    "Pool",
    "PrefixTree",
    "SnapshotError",
    "Vfs",
    "diff",
    "inspect",
    "rekey",
    "sweep",
    "verify",
]
