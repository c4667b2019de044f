"""Write a context to one file, and write a file again under another key."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np

from llamay_kv import arguments
from llamay_kv._kv import Context, crc64
from llamay_kv.errors import NotAllowedError
from llamay_kv.identity import Identity
from llamay_kv.ids import Ids
from llamay_kv.layout import Layout, Precision
from llamay_kv.snapshots import format as fmt
from llamay_kv.snapshots.conversion import ChunkConverter, converts, narrowed
from llamay_kv.snapshots.format import Manifest
from llamay_kv.snapshots.reader import SnapshotReader
from llamay_kv.snapshots.states import PackedState, checked_side, with_states
from llamay_kv.storage.crypto import Encryption, Key, Keys, given_keys, nonce
from llamay_kv.storage.vfs import Buffer, Vfs, given_vfs, write_atomically


def save(
    context: Context,
    held: Layout,
    path: str | os.PathLike[str],
    *,
    identity: Identity | None = None,
    side: Mapping[str, tuple[int, bytes]] | None = None,
    key: Key | None = None,
    precision: Precision | None = None,
    durable: bool = True,
    vfs: Vfs | None = None,
) -> Manifest:
    """Write the context, whose pool has the layout `held`; see `Context.save`."""
    vfs, target = given_vfs(vfs), arguments.path("path", path)
    arguments.optional("identity", identity, Identity)
    arguments.optional("key", key, Key)
    durable = arguments.flag("durable", durable)
    if side is not None:
        side = checked_side(side)
    with closing(
        context.fork()
    ) as frozen:  # the file holds one moment, even if the context goes on meanwhile
        states = with_states(frozen, held, frozen.side if side is None else side)
        ids = Ids.of(frozen.tokens)
        layout = held if precision is None else narrowed(held, precision)
        computed = None if layout == held else tuple(group.precision for group in held.groups)
        if computed and identity is not None:
            identity = identity.stored_as(str(precision))
        manifest = Manifest(
            layout=layout,
            n_tokens=len(ids),
            tokens_sha256=None if key else hashlib.sha256(ids.encode() + ids.table).hexdigest(),
            first=tuple(fmt.first_needed(group, len(ids)) for group in layout.groups),
            side=tuple((name, version, len(data)) for name, (version, data) in states.items()),
            identity=identity,
            owner=frozen.owner,
            marking=frozen.marking,
            encryption=Encryption.under(key) if key else None,
            computed=computed,
            rows=len(ids.table) // fmt.ROW_ENTRY,
        )
        payloads = _payloads(manifest, held, frozen, ids, states)
        write_atomically(vfs, target, _file(manifest, key, payloads), durable=durable)
    return manifest


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
        key: the new key; None writes in the clear, and is refused for a snapshot with a marking.
        keys: the keys that the file may be encrypted under now.
        vfs: where files live.

    """
    vfs, path, given = given_vfs(vfs), arguments.path("path", path), given_keys(keys)
    arguments.optional("key", key, Key)
    with SnapshotReader(vfs, path) as reader:
        if key is None and reader.manifest.marking is not None:
            reason = f"the snapshot is marked {reader.manifest.marking!r} and stays encrypted"
            raise NotAllowedError(path, "marking", reason)
        reader.unlock(given)
        ids = reader.ids()
        manifest = replace(
            reader.manifest,
            tokens_sha256=None if key else hashlib.sha256(ids.encode() + ids.table).hexdigest(),
            encryption=Encryption.under(key) if key else None,
        )
        write_atomically(vfs, path, _file(manifest, key, reader.payloads()))
    return manifest


def _file(
    manifest: Manifest, key: Key | None, payloads: Iterator[tuple[fmt.Frame, Buffer]]
) -> Iterator[Sequence[Buffer]]:
    """Yield the parts of the file: header and manifest, then each frame with its checksum or its tag."""
    yield [manifest.header()]
    cipher = manifest.encryption.cipher(key) if manifest.encryption and key else None
    for frame, payload in payloads:
        place = manifest.place(frame)
        if cipher:
            yield [cipher.encrypt(nonce(frame.index), bytes(payload), place)]
        else:
            yield [payload, fmt.CHECKSUM.pack(crc64(payload, crc64(place)))]


def _payloads(
    manifest: Manifest,
    held: Layout,
    context: Context,
    ids: Ids,
    side: Mapping[str, tuple[int, bytes | PackedState]],
) -> Iterator[tuple[fmt.Frame, Buffer]]:
    """Yield the frames with their payloads, which the next one may overwrite."""
    states = iter(side.values())
    buffer = np.empty(0, np.uint8)
    pairs = zip(manifest.layout.groups, held.groups, strict=True)
    converters = [ChunkConverter(stored) if converts(stored, mine) else None for stored, mine in pairs]
    for frame in manifest.frames():
        if frame.kind == fmt.TOKENS:
            yield frame, ids.encode()
        elif frame.kind == fmt.TABLE:
            yield frame, ids.table
        elif frame.kind == fmt.SIDE:
            yield frame, bytes(next(states)[1])
        else:
            converter = converters[frame.group]
            chunk = None if converter else context.packed_view(frame.group, frame.begin, frame.end)
            if chunk is None:
                if len(buffer) < frame.size:
                    buffer = np.empty(frame.size, np.uint8)
                chunk = buffer[: frame.size]
                if converter:
                    converter.pack(context, frame, chunk)
                else:
                    context.pack_into(frame.group, frame.begin, frame.end, chunk)
            yield frame, chunk.data
