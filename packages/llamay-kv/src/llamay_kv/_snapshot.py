"""Save a context to one file and restore it, byte for byte, into pages of any size."""

from __future__ import annotations

import hashlib
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self

import numpy as np

from llamay_kv import _format as fmt
from llamay_kv._context import Context, Pool
from llamay_kv._errors import LegacyWarning, SnapshotError
from llamay_kv._format import Manifest
from llamay_kv._identity import Identity
from llamay_kv._kv import Lease, crc64
from llamay_kv._vfs import Buffer, File, LocalVfs, Vfs, write_atomically

Legacy = Literal["warn", "refuse", "allow"]


def save(
    context: Context,
    path: str | os.PathLike[str],
    *,
    identity: Identity | None = None,
    side: Mapping[str, tuple[int, bytes]] | None = None,
    vfs: Vfs | None = None,
) -> Manifest:
    """Write the context; see `Context.save`."""
    with context.fork() as frozen:  # what is written is one moment, whatever the context does meanwhile
        states = dict(sorted((frozen.side if side is None else side).items()))
        tokens = np.array(frozen.tokens, "<i4")
        groups = frozen.pool.layout.groups
        manifest = Manifest(
            layout=frozen.pool.layout,
            n_tokens=len(frozen),
            tokens_sha256=hashlib.sha256(tokens.tobytes()).hexdigest(),
            first=tuple(fmt.first_needed(group, len(frozen)) for group in groups),
            side=tuple((name, version, len(data)) for name, (version, data) in states.items()),
            identity=identity,
        )
        write_atomically(vfs or LocalVfs(), os.fspath(path), _parts(manifest, frozen, tokens, states))
    return manifest


def _parts(
    manifest: Manifest, context: Context, tokens: np.ndarray, side: Mapping[str, tuple[int, bytes]]
) -> Iterator[Sequence[Buffer]]:
    yield [manifest.header()]
    states = iter(side.values())
    buffer = np.empty(0, np.uint8)
    for frame in manifest.frames():
        payload: Buffer
        if frame.kind == fmt.TOKENS:
            payload = tokens.tobytes()
        elif frame.kind == fmt.SIDE:
            payload = next(states)[1]
        else:
            chunk = context.packed_view(frame.group, frame.begin, frame.end)
            if chunk is None:
                if len(buffer) < frame.size:
                    buffer = np.empty(frame.size, np.uint8)
                chunk = buffer[: frame.size]
                context.pack_into(frame.group, frame.begin, frame.end, chunk)
            payload = chunk.data
        yield [payload, fmt.CHECKSUM.pack(crc64(payload, manifest.seed(frame)))]


class Reader:
    """A snapshot with a valid header and manifest; frames are validated one by one as they are read."""

    def __init__(self, vfs: Vfs, path: str) -> None:
        self.path = path
        self._file: File = vfs.open(path)
        try:
            self.manifest = self._open()
        except BaseException:
            self._file.close()
            raise

    def _open(self) -> Manifest:
        size = self._file.size()
        head = bytearray(min(size, fmt.HEADER.size))
        self._fill([memoryview(head)], 0, "header")
        manifest_bytes, digest = fmt.check_header(self.path, bytes(head), size)
        data = bytearray(manifest_bytes)
        self._fill([memoryview(data)], fmt.HEADER.size, "manifest")
        manifest = fmt.parse_manifest(self.path, bytes(data), digest)
        if manifest.file_bytes != size:
            reason = f"the file has {size} bytes and what the manifest lists takes {manifest.file_bytes}"
            raise SnapshotError(self.path, "end", reason)
        self._offset = fmt.HEADER.size + manifest_bytes
        return manifest

    def _fill(self, buffers: Sequence[memoryview], offset: int, part: str) -> None:
        wanted = sum(b.nbytes for b in buffers)
        got = self._file.read_into(buffers, offset)
        if got != wanted:
            raise SnapshotError(self.path, part, f"the file ends {wanted - got} bytes too early")

    def frames(self) -> Iterator[tuple[fmt.Frame, int]]:
        """Yield each frame and where it begins."""
        offset = self._offset
        for frame in self.manifest.frames():
            yield frame, offset
            offset += frame.stored

    def read(self, frame: fmt.Frame, offset: int, out: np.ndarray) -> None:
        """Fill `out`, as long as the frame's payload, and verify it."""
        checksum = bytearray(fmt.CHECKSUM.size)
        self._fill([out.data, memoryview(checksum)], offset, frame.name)
        if crc64(out, self.manifest.seed(frame)) != fmt.CHECKSUM.unpack(checksum)[0]:
            raise SnapshotError(self.path, frame.name, "its checksum does not match: the file is damaged")

    def check_tokens(self, tokens: np.ndarray) -> None:
        """Compare the ids with what the manifest says of them."""
        if hashlib.sha256(tokens.tobytes()).hexdigest() != self.manifest.tokens_sha256:
            raise SnapshotError(self.path, "tokens", "their SHA-256 does not match the manifest's")

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()


def inspect(path: str | os.PathLike[str], *, vfs: Vfs | None = None) -> Manifest:
    """Return what a snapshot says about itself, reading and validating its header and manifest only."""
    with Reader(vfs or LocalVfs(), os.fspath(path)) as reader:
        return reader.manifest


def verify(path: str | os.PathLike[str], *, vfs: Vfs | None = None) -> Manifest:
    """Read a snapshot to the end and check every byte; raise SnapshotError at the first fault.

    Takes memory for one frame.
    """
    with Reader(vfs or LocalVfs(), os.fspath(path)) as reader:
        buffer = np.empty(0, np.uint8)
        for frame, offset in reader.frames():
            if len(buffer) < frame.size:
                buffer = np.empty(frame.size, np.uint8)
            reader.read(frame, offset, buffer[: frame.size])
            if frame.kind == fmt.TOKENS:
                reader.check_tokens(buffer[: frame.size])
        return reader.manifest


def restore(
    pool: Pool,
    path: str | os.PathLike[str],
    *,
    identity: Identity | None = None,
    legacy: Legacy = "warn",
    vfs: Vfs | None = None,
) -> Context:
    """Return the saved context; see `Pool.restore`."""
    with Reader(vfs or LocalVfs(), os.fspath(path)) as reader:
        manifest = reader.manifest
        difference = manifest.layout.difference(pool.layout)
        if difference is not None:
            raise SnapshotError(reader.path, "layout", f"it is not the pool's: {difference}")
        if identity is not None:
            _check_identity(reader.path, manifest, identity, legacy)
        context = pool.context()
        try:
            with context.reserve(manifest.n_tokens, list(manifest.first)) as lease:
                tokens, side = _read_frames(reader, lease)
                lease.commit(tokens)
            context.side = side
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # their locals look into pages, and would keep them
            context.close()
            raise
        return context


def _check_identity(path: str, manifest: Manifest, identity: Identity, legacy: Legacy) -> None:
    if manifest.identity is not None:
        identity.require(manifest.identity)
    elif legacy == "refuse":
        raise SnapshotError(
            path, "manifest", "it does not say what computed it, and such snapshots are refused here"
        )
    elif legacy == "warn":
        message = f"{path} does not say what computed it; it is restored because its layout fits"
        warnings.warn(message, LegacyWarning, stacklevel=4)


def _read_frames(reader: Reader, lease: Lease) -> tuple[np.ndarray, dict[str, tuple[int, bytes]]]:
    tokens = np.empty(0, np.int32)
    side: dict[str, tuple[int, bytes]] = {}
    states = iter(reader.manifest.side)
    buffer = np.empty(0, np.uint8)
    for frame, offset in reader.frames():
        if frame.kind == fmt.TOKENS:
            raw = np.empty(frame.size, np.uint8)
            reader.read(frame, offset, raw)
            reader.check_tokens(raw)
            tokens = raw.view("<i4").astype(np.int32, copy=False)
        elif frame.kind == fmt.SIDE:
            raw = np.empty(frame.size, np.uint8)
            reader.read(frame, offset, raw)
            name, version, _size = next(states)
            side[name] = (version, raw.tobytes())
        elif (target := lease.packed_target(frame.group, frame.begin, frame.end)) is not None:
            reader.read(frame, offset, target)
        else:
            if len(buffer) < frame.size:
                buffer = np.empty(frame.size, np.uint8)
            reader.read(frame, offset, buffer[: frame.size])
            lease.unpack_from(frame.group, frame.begin, frame.end, buffer[: frame.size])
    return tokens, side
