"""Paged, forkable, persistent K/V state: contexts as values."""

from importlib import import_module
from typing import TYPE_CHECKING

from llamay_kv._kv import (
    UNKNOWN_TOKEN,
    ClosedError,
    ContextBusyError,
    Lease,
    OutOfPagesError,
    PagesLostError,
    Rows,
)
from llamay_kv.context import Context, Pool
from llamay_kv.errors import (
    ConvertedWarning,
    IdentityMismatchError,
    LegacyWarning,
    NotAllowedError,
    SnapshotError,
)
from llamay_kv.identity import Identity
from llamay_kv.layout import Group, Layer, Layout
from llamay_kv.prefix_tree import Miss, Pin, PrefixTree
from llamay_kv.snapshots.format import Manifest
from llamay_kv.storage.crypto import Key
from llamay_kv.storage.spill import Spill
from llamay_kv.storage.vfs import File, Listed, LocalVfs, Vfs

if TYPE_CHECKING:
    from llamay_kv.snapshots.maintenance import Difference, diff, sweep
    from llamay_kv.snapshots.reader import inspect, stored_tokens, verify
    from llamay_kv.snapshots.writer import rekey
    from llamay_kv.storage.object_vfs import ObjectVfs
    from llamay_kv.tiers.block_store import BlockStore
    from llamay_kv.tiers.cache_folder import CacheFolder, FolderMiss, Survey
    from llamay_kv.tiers.disk_cache import DiskCache

INTERFACE: dict[str, tuple[int, int]] = {"allocator": (1, 1), "kv_view": (1, 2)}
"""The versions of the interfaces that this package offers, as (major, minor)."""

# Modules that deal with files load numpy, which takes several times as long as all the rest: on first use only.
_LATE = {
    "BlockStore": "tiers.block_store",
    "CacheFolder": "tiers.cache_folder",
    "Difference": "snapshots.maintenance",
    "DiskCache": "tiers.disk_cache",
    "FolderMiss": "tiers.cache_folder",
    "ObjectVfs": "storage.object_vfs",
    "Survey": "tiers.cache_folder",
    "diff": "snapshots.maintenance",
    "inspect": "snapshots.reader",
    "rekey": "snapshots.writer",
    "stored_tokens": "snapshots.reader",
    "sweep": "snapshots.maintenance",
    "verify": "snapshots.reader",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module 'llamay_kv' has no attribute {name!r}")
    value = getattr(import_module(f"llamay_kv.{_LATE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])


__all__ = [
    "INTERFACE",
    "UNKNOWN_TOKEN",
    "BlockStore",
    "CacheFolder",
    "ClosedError",
    "Context",
    "ContextBusyError",
    "ConvertedWarning",
    "Difference",
    "DiskCache",
    "File",
    "FolderMiss",
    "Group",
    "Identity",
    "IdentityMismatchError",
    "Key",
    "Layer",
    "Layout",
    "Lease",
    "LegacyWarning",
    "Listed",
    "LocalVfs",
    "Manifest",
    "Miss",
    "NotAllowedError",
    "ObjectVfs",
    "OutOfPagesError",
    "PagesLostError",
    "Pin",
    "Pool",
    "PrefixTree",
    "Rows",
    "SnapshotError",
    "Spill",
    "Survey",
    "Vfs",
    "diff",
    "inspect",
    "rekey",
    "stored_tokens",
    "sweep",
    "verify",
]
