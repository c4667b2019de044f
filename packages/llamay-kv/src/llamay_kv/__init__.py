"""Paged, forkable, persistent K/V state: contexts as values."""

from importlib import import_module
from typing import TYPE_CHECKING

from llamay_kv._context import Context, Pool
from llamay_kv._crypto import Key
from llamay_kv._errors import ConvertedWarning, IdentityMismatch, LegacyWarning, NotAllowed, SnapshotError
from llamay_kv._format import Manifest
from llamay_kv._identity import Identity
from llamay_kv._kv import UNKNOWN_TOKEN, Closed, ContextBusy, Lease, OutOfPages, PagesLost, Rows
from llamay_kv._layout import Group, Layer, Layout
from llamay_kv._prefix_tree import Miss, Pin, PrefixTree
from llamay_kv._spill import Spill
from llamay_kv._vfs import File, LocalVfs, Vfs

if TYPE_CHECKING:
    from llamay_kv._block_store import BlockStore
    from llamay_kv._cache_folder import CacheFolder, FolderMiss, Survey
    from llamay_kv._disk_cache import DiskCache
    from llamay_kv._maintenance import Difference, diff, sweep
    from llamay_kv._object_vfs import ObjectVfs
    from llamay_kv._snapshot import inspect, rekey, stored_tokens, verify

INTERFACE: dict[str, tuple[int, int]] = {"allocator": (1, 1), "kv_view": (1, 2)}
"""The versions of the interfaces that this package offers, as (major, minor)."""

# What deals with files loads numpy, which takes several times as long as all the rest: when it is first asked for.
_LATE = {
    "BlockStore": "_block_store",
    "CacheFolder": "_cache_folder",
    "Difference": "_maintenance",
    "DiskCache": "_disk_cache",
    "FolderMiss": "_cache_folder",
    "ObjectVfs": "_object_vfs",
    "Survey": "_cache_folder",
    "diff": "_maintenance",
    "inspect": "_snapshot",
    "rekey": "_snapshot",
    "stored_tokens": "_snapshot",
    "sweep": "_maintenance",
    "verify": "_snapshot",
}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module 'llamay_kv' has no attribute {name!r}")
    value = getattr(import_module(f"llamay_kv.{_LATE[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATE})


__all__ = [
    "INTERFACE",
    "UNKNOWN_TOKEN",
    "BlockStore",
    "CacheFolder",
    "Closed",
    "Context",
    "ContextBusy",
    "ConvertedWarning",
    "Difference",
    "DiskCache",
    "File",
    "FolderMiss",
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
    "PagesLost",
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
