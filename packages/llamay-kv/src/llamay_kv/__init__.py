"""Paged, forkable, persistent K/V state: contexts as values."""

from llamay_kv._context import Context, Pool
from llamay_kv._kv import Closed, ContextBusy, Lease, OutOfPages
from llamay_kv._layout import Group, Layer, Layout

INTERFACE: dict[str, tuple[int, int]] = {"kv_view": (1, 0)}
"""The versions of the interfaces that this package offers, as (major, minor)."""

__all__ = [
    "INTERFACE",
    "Closed",
    "Context",
    "ContextBusy",
    "Group",
    "Layer",
    "Layout",
    "Lease",
    "OutOfPages",
    "Pool",
]
