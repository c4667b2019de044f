"""Save a context to one file and restore it, byte for byte, into pages of any size."""

from __future__ import annotations

import hashlib
import os
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from llamay_kv import _format as fmt
from llamay_kv._context import Context, Pool
from llamay_kv._convert import Scratch, converts, narrowed
from llamay_kv._crypto import Encryption, Key, Keys, nonce
from llamay_kv._errors import ConvertedWarning, LegacyWarning, NotAllowed, SnapshotError
from llamay_kv._format import Manifest
from llamay_kv._identity import Identity
from llamay_kv._ids import Ids
from llamay_kv._kv import Lease, crc64
from llamay_kv._layout import Layout, Precision
from llamay_kv._reader import Reader
from llamay_kv._recurrent import Packed, lengths, place, with_states
from llamay_kv._vfs import Buffer, LocalVfs, Vfs, write_atomically

Legacy = Literal["warn", "refuse", "allow"]


def save(
    context: Context,
    path: str | os.PathLike[str],
    *,
    identity: Identity | None = None,
    side: Mapping[str, tuple[int, bytes]] | None = None,
    key: Key | None = None,
    precision: Precision | None = None,
    durable: bool = True,
    vfs: Vfs | None = None,
) -> Manifest:
    """Write the context; see `Context.save`."""
    with context.fork() as frozen:  # what is written is one moment, whatever the context does meanwhile
        states = with_states(frozen, frozen.side if side is None else side)
        ids = Ids.of(frozen.tokens)
        held = frozen.pool.layout
        layout = held if precision is None else narrowed(held, precision)
        computed = None if layout == held else tuple(group.precision for group in held.groups)
        if computed and identity is not None:
            identity = identity.stored_as(str(precision))
        manifest = Manifest(
            layout=layout,
            n_tokens=len(frozen),
            tokens_sha256=None if key else hashlib.sha256(ids.encode() + ids.table).hexdigest(),
            first=tuple(fmt.first_needed(group, len(frozen)) for group in layout.groups),
            side=tuple((name, version, len(data)) for name, (version, data) in states.items()),
            identity=identity,
            owner=frozen.owner,
            marking=frozen.marking,
            encryption=Encryption.under(key) if key else None,
            computed=computed,
            rows=len(ids.table) // fmt.ROW_ENTRY,
        )
        payloads = _payloads(manifest, frozen, ids, states)
        write_atomically(vfs or LocalVfs(), os.fspath(path), _file(manifest, key, payloads), durable=durable)
    return manifest


def _file(
    manifest: Manifest, key: Key | None, payloads: Iterator[tuple[fmt.Frame, Buffer]]
) -> Iterator[Sequence[Buffer]]:
    yield [manifest.header()]
    cipher = manifest.encryption.cipher(key) if manifest.encryption and key else None
    for frame, payload in payloads:
        place = manifest.place(frame)
        if cipher:
            yield [cipher.encrypt(nonce(frame.index), bytes(payload), place)]
        else:
            yield [payload, fmt.CHECKSUM.pack(crc64(payload, crc64(place)))]


def _payloads(
    manifest: Manifest, context: Context, ids: Ids, side: Mapping[str, tuple[int, bytes | Packed]]
) -> Iterator[tuple[fmt.Frame, Buffer]]:
    states = iter(side.values())
    buffer = np.empty(0, np.uint8)
    pairs = zip(manifest.layout.groups, context.pool.layout.groups, strict=True)
    scratch = [Scratch(stored) if converts(stored, held) else None for stored, held in pairs]
    for frame in manifest.frames():
        if frame.kind == fmt.TOKENS:
            yield frame, ids.encode()
        elif frame.kind == fmt.TABLE:
            yield frame, ids.table
        elif frame.kind == fmt.SIDE:
            yield frame, bytes(next(states)[1])
        else:
            convert = scratch[frame.group]
            chunk = None if convert else context.packed_view(frame.group, frame.begin, frame.end)
            if chunk is None:
                if len(buffer) < frame.size:
                    buffer = np.empty(frame.size, np.uint8)
                chunk = buffer[: frame.size]
                if convert:
                    convert.pack(context, frame, chunk)
                else:
                    context.pack_into(frame.group, frame.begin, frame.end, chunk)
            yield frame, chunk.data


def inspect(path: str | os.PathLike[str], *, vfs: Vfs | None = None) -> Manifest:
    """Return what a snapshot says about itself, reading and validating its header and manifest only."""
    with Reader(vfs or LocalVfs(), os.fspath(path)) as reader:
        return reader.manifest


def verify(path: str | os.PathLike[str], *, keys: Keys = None, vfs: Vfs | None = None) -> Manifest:
    """Read a snapshot to the end and check every byte; raise SnapshotError at the first fault.

    Takes memory for one frame. What is encrypted can be verified with its key only.
    """
    with Reader(vfs or LocalVfs(), os.fspath(path)) as reader:
        reader.unlock(keys)
        for _ in _copied(reader):
            pass
        return reader.manifest


def stored_tokens(path: str | os.PathLike[str], *, keys: Keys = None, vfs: Vfs | None = None) -> list[int]:
    """Return the token ids in a snapshot, without a pool; what is read is verified.

    Rows that are not tokens are negative, by numbers that this file alone has for them.
    """
    with Reader(vfs or LocalVfs(), os.fspath(path)) as reader:
        reader.unlock(keys)
        ids: list[int] = reader.ids().stored.tolist()
        return ids


def restore(
    pool: Pool,
    path: str | os.PathLike[str],
    *,
    identity: Identity | None = None,
    legacy: Legacy = "warn",
    owner: str | None = None,
    markings: Collection[str] = (),
    keys: Keys = None,
    digest: bytes | None = None,
    vfs: Vfs | None = None,
) -> Context:
    """Return the saved context; see `Pool.restore`."""
    with Reader(vfs or LocalVfs(), os.fspath(path)) as reader:
        manifest = reader.manifest
        if digest is not None and manifest.digest != digest:
            raise SnapshotError(
                reader.path, "header", "it is not the snapshot that was asked for, by its digest"
            )
        _check_labels(reader.path, manifest, owner, markings)
        if identity is not None:  # before the layout, which is a consequence of it
            _check_identity(reader.path, manifest, identity, legacy)
        if manifest.layout != pool.layout != manifest.computed_layout:
            difference = manifest.layout.difference(pool.layout)
            raise SnapshotError(reader.path, "layout", f"it is not the pool's: {difference}")
        if manifest.computed is not None and (identity is None or "payload" not in identity.fields):
            _warn_of_conversion(reader.path, manifest)
        reader.unlock(keys)
        states, last_is_checkpoint = lengths(reader.path, manifest)
        context = pool.context()
        try:
            with context.reserve(manifest.n_tokens, list(manifest.first), states=states or None) as lease:
                ids, side = _read_frames(reader, lease, pool.layout)
                lease.commit(ids.here, checkpoints=True)
            if last_is_checkpoint:
                context.checkpoint()
            context.side = side
            context.owner, context.marking = manifest.owner, manifest.marking
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # their locals look into pages, and would keep them
            context.close()
            raise
        return context


def rekey(
    path: str | os.PathLike[str],
    key: Key | None,
    *,
    keys: Keys = None,
    vfs: Vfs | None = None,
) -> Manifest:
    """Write a snapshot again under another key, in place of the old file, verifying every byte on the way.

    Args:
        path: the snapshot.
        key: the new key; None leaves it in the clear, and is refused for a snapshot with a marking.
        keys: those it may be encrypted under now.
        vfs: where files live.

    """
    vfs, path = vfs or LocalVfs(), os.fspath(path)
    with Reader(vfs, path) as reader:
        if key is None and reader.manifest.marking is not None:
            reason = f"the snapshot is marked {reader.manifest.marking!r} and stays encrypted"
            raise NotAllowed(path, "marking", reason)
        reader.unlock(keys)
        ids = reader.ids()
        manifest = replace(
            reader.manifest,
            tokens_sha256=None if key else hashlib.sha256(ids.encode() + ids.table).hexdigest(),
            encryption=Encryption.under(key) if key else None,
        )
        write_atomically(vfs, path, _file(manifest, key, _copied(reader)))
    return manifest


def _copied(reader: Reader) -> Iterator[tuple[fmt.Frame, Buffer]]:
    """Yield each frame, verified, with its payload, which the next one overwrites."""
    reader.ids()
    buffer = np.empty(0, np.uint8)
    for frame, offset in reader.frames():
        if len(buffer) < frame.size:
            buffer = np.empty(frame.size, np.uint8)
        reader.read(frame, offset, buffer[: frame.size])
        yield frame, buffer[: frame.size].data


def _check_labels(path: str, manifest: Manifest, owner: str | None, markings: Collection[str]) -> None:
    if manifest.owner is not None and owner != manifest.owner:
        raise NotAllowed(path, "owner", "the snapshot belongs to somebody else")
    if manifest.marking is not None and manifest.marking not in markings:
        reason = f"the snapshot is marked {manifest.marking!r}, which was not asked for"
        raise NotAllowed(path, "marking", reason)


def _check_identity(path: str, manifest: Manifest, identity: Identity, legacy: Legacy) -> None:
    if manifest.identity is not None:
        identity.require(manifest.identity, path=path)
    elif legacy == "refuse" or (legacy == "warn" and manifest.marking is not None):
        raise SnapshotError(
            path, "manifest", "it does not say what computed it, and such snapshots are refused here"
        )
    elif legacy == "warn":
        message = f"{path} does not say what computed it; it is restored because its layout fits"
        warnings.warn(message, LegacyWarning, stacklevel=4)


def _warn_of_conversion(path: str, manifest: Manifest) -> None:
    computed, stored = (
        "/".join(g.precision for g in layout.groups) for layout in (manifest.computed_layout, manifest.layout)
    )
    message = f"{path} was computed in {computed} and holds {stored}: what follows from it is not exact"
    warnings.warn(message, ConvertedWarning, stacklevel=4)


def _read_frames(reader: Reader, lease: Lease, layout: Layout) -> tuple[Ids, dict[str, tuple[int, bytes]]]:
    pairs = zip(reader.manifest.layout.groups, layout.groups, strict=True)
    scratch = [Scratch(stored) if converts(stored, held) else None for stored, held in pairs]
    ids = reader.ids()
    side: dict[str, tuple[int, bytes]] = {}
    states = iter(reader.manifest.side)
    recurrent = any(group.kind == "state" for group in layout.groups)
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
        convert = scratch[frame.group]
        target = None if convert else lease.packed_target(frame.group, frame.begin, frame.end)
        if target is not None:
            reader.read(frame, offset, target)
            continue
        if len(buffer) < frame.size:
            buffer = np.empty(frame.size, np.uint8)
        reader.read(frame, offset, buffer[: frame.size])
        if convert:
            convert.unpack(buffer[: frame.size], frame, lease)
        else:
            lease.unpack_from(frame.group, frame.begin, frame.end, buffer[: frame.size])
    return ids, side
