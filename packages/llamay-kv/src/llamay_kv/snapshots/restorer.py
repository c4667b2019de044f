"""Fill a context from a snapshot, or leave the pool as it was."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Collection
from typing import get_args

import numpy as np

from llamay_kv import arguments
from llamay_kv._kv import Context, Lease
from llamay_kv.errors import ConvertedWarning, LegacyWarning, NotAllowedError, SnapshotError
from llamay_kv.identity import Identity
from llamay_kv.layout import Layout
from llamay_kv.snapshots import format as fmt
from llamay_kv.snapshots.conversion import ChunkConverter, converts
from llamay_kv.snapshots.format import Legacy, Manifest
from llamay_kv.snapshots.reader import SnapshotReader
from llamay_kv.snapshots.states import lengths, place
from llamay_kv.storage.crypto import Keys, given_keys
from llamay_kv.storage.vfs import Vfs, given_vfs


def restore_into(
    context: Context,
    layout: Layout,
    path: str | os.PathLike[str],
    *,
    identity: Identity | None = None,
    legacy: Legacy = "warn",
    owner: str | None = None,
    markings: Collection[str] = (),
    keys: Keys = None,
    digest: bytes | None = None,
    vfs: Vfs | None = None,
) -> None:
    """Fill a new context, whose pool has the layout, from a snapshot; see `Pool.restore`.

    If anything is wrong, the context is closed, and its pool is as it was before.
    """
    try:
        arguments.optional("identity", identity, Identity)
        arguments.one_of("legacy", legacy, get_args(Legacy))
        if owner is not None:
            arguments.text("owner", owner)
        markings, given = arguments.several("markings", markings, str), given_keys(keys)
        if digest is not None:
            arguments.data("digest", digest)
        with SnapshotReader(given_vfs(vfs), arguments.path("path", path)) as reader:
            manifest = reader.manifest
            if digest is not None and manifest.digest != digest:
                raise SnapshotError(
                    reader.path,
                    "header",
                    "the file is not the snapshot that was asked for: its digest differs",
                )
            _check_labels(reader.path, manifest, owner, markings)
            if identity is not None:  # before the layout, which is a consequence of it
                _check_identity(reader.path, manifest, identity, legacy)
            if manifest.layout != layout != manifest.computed_layout:
                difference = manifest.layout.difference(layout)
                raise SnapshotError(reader.path, "layout", f"the layout is not the pool's: {difference}")
            if manifest.computed is not None and (identity is None or "payload" not in identity.fields):
                _warn_of_conversion(reader.path, manifest)
            reader.unlock(given)
            states, last_is_checkpoint = lengths(reader.path, manifest)
            ids = reader.ids()
            with context.reserve(manifest.n_tokens, list(manifest.first), states=states or None) as lease:
                side = _read_frames(reader, lease, layout)
                lease.commit(ids.here, checkpoints=True)
            if last_is_checkpoint:
                context.checkpoint()
            context.side = side
            context.owner, context.marking = manifest.owner, manifest.marking
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # their locals look into pages, and would keep them
        context.close()
        raise


def _check_labels(path: str, manifest: Manifest, owner: str | None, markings: Collection[str]) -> None:
    if manifest.owner is not None and owner != manifest.owner:
        raise NotAllowedError(path, "owner", "the snapshot has another owner")
    if manifest.marking is not None and manifest.marking not in markings:
        reason = f"the snapshot is marked {manifest.marking!r}, which the caller does not handle"
        raise NotAllowedError(path, "marking", reason)


def _check_identity(path: str, manifest: Manifest, identity: Identity, legacy: Legacy) -> None:
    if manifest.identity is not None:
        identity.require(manifest.identity, path=path)
    elif legacy == "refuse" or (legacy == "warn" and manifest.marking is not None):
        raise SnapshotError(
            path, "manifest", "the snapshot has no identity, and snapshots without one are refused here"
        )
    elif legacy == "warn":
        message = f"{path} has no identity; it is restored because its layout fits"
        warnings.warn(message, LegacyWarning, stacklevel=4)


def _warn_of_conversion(path: str, manifest: Manifest) -> None:
    computed, stored = (
        "/".join(g.precision for g in layout.groups) for layout in (manifest.computed_layout, manifest.layout)
    )
    message = f"{path} was computed in {computed} and holds {stored}: its continuation is not exact"
    warnings.warn(message, ConvertedWarning, stacklevel=4)


def _read_frames(reader: SnapshotReader, lease: Lease, layout: Layout) -> dict[str, tuple[int, bytes]]:
    """Fill the lease's pages and recurrent states; return the other side states."""
    pairs = zip(reader.manifest.layout.groups, layout.groups, strict=True)
    converters = [ChunkConverter(stored) if converts(stored, held) else None for stored, held in pairs]
    side: dict[str, tuple[int, bytes]] = {}
    states = iter(reader.manifest.side)
    recurrent = layout.recurrent
    buffer = np.empty(0, np.uint8)
    for frame, offset in reader.frames():
        if frame.kind in (fmt.TOKENS, fmt.TABLE):
            continue
        if frame.kind == fmt.SIDE:
            raw = np.empty(frame.size, np.uint8)
            reader.read(frame, offset, raw)
            name, version, _size = next(states)
            if recurrent and (where := place(name)) is not None:
                lease.unpack_state(*where, raw)
            else:
                side[name] = (version, raw.tobytes())
            continue
        converter = converters[frame.group]
        target = None if converter else lease.packed_target(frame.group, frame.begin, frame.end)
        if target is not None:
            reader.read(frame, offset, target)
            continue
        if len(buffer) < frame.size:
            buffer = np.empty(frame.size, np.uint8)
        reader.read(frame, offset, buffer[: frame.size])
        if converter:
            converter.unpack(buffer[: frame.size], frame, lease)
        else:
            lease.unpack_from(frame.group, frame.begin, frame.end, buffer[: frame.size])
    return side
