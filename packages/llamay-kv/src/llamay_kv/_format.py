"""The bytes of a snapshot: header, manifest and frames. docs/snapshot-format.md is the specification."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any

from llamay_kv._errors import SnapshotError
from llamay_kv._identity import Identity
from llamay_kv._kv import crc64
from llamay_kv._layout import KINDS, PRECISIONS, Group, Layer, Layout

MAGIC = b"LLAMAYKV"
VERSION = 1
CHUNK = 64
"""Positions of a group in one frame."""

HEADER = Struct("<8sIIQQ32sQ")
CHECKSUM = Struct("<Q")
MAX_MANIFEST = 16 << 20
MAX_SIDE = 1 << 30
_SEED = Struct("<32sIII")


@dataclass(frozen=True, slots=True)
class Frame:
    """One stretch of the file: `size` bytes of payload and the eight of its checksum."""

    index: int
    name: str
    size: int
    kind: int
    group: int = 0
    begin: int = 0
    end: int = 0

    @property
    def stored(self) -> int:
        """Bytes in the file."""
        return self.size + CHECKSUM.size


TOKENS, SIDE, CHUNKS = 1, 2, 3


@dataclass(frozen=True)
class Manifest:
    """What a snapshot says about itself.

    Attributes:
        layout: the groups whose pages it holds.
        n_tokens: length of the context.
        tokens_sha256: SHA-256 of the ids as 32-bit little-endian integers.
        first: for each group the first position that is stored.
        side: opaque states as (name, version, bytes).
        identity: what the K/V depends on, or None if it was not told.

    """

    layout: Layout
    n_tokens: int
    tokens_sha256: str
    first: tuple[int, ...]
    side: tuple[tuple[str, int, int], ...] = ()
    identity: Identity | None = None
    digest: bytes = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(self.encode()).digest())

    def encode(self) -> bytes:
        """Return the canonical JSON: sorted keys, no blanks, UTF-8."""
        return _canonical(
            {
                "chunk": CHUNK,
                "first": list(self.first),
                "identity": None if self.identity is None else self.identity.to_json(),
                "layout": self.layout.to_json(),
                "side": [list(entry) for entry in self.side],
                "tokens": self.n_tokens,
                "tokens_sha256": self.tokens_sha256,
            }
        )

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in file order: tokens, side states, then chunks by position and group."""
        yield Frame(0, "tokens", 4 * self.n_tokens, TOKENS)
        index = 1
        for name, _version, size in self.side:
            yield Frame(index, f"side state {name!r}", size, SIDE)
            index += 1
        widths = [group.position_bytes for group in self.layout.groups]
        for chunk in range(-(-self.n_tokens // CHUNK)):
            for g, width in enumerate(widths):
                begin, end = max(chunk * CHUNK, self.first[g]), min((chunk + 1) * CHUNK, self.n_tokens)
                if begin < end:
                    name = f"chunk {chunk} of group {g}"
                    yield Frame(index, name, (end - begin) * width, CHUNKS, g, begin, end)
                    index += 1

    @property
    def file_bytes(self) -> int:
        """Length of the file."""
        return HEADER.size + len(self.encode()) + sum(frame.stored for frame in self.frames())

    def seed(self, frame: Frame) -> int:
        """Return what a frame's checksum continues from: it binds the frame to the snapshot and its place."""
        return crc64(_SEED.pack(self.digest, frame.index, frame.kind, frame.group))

    def header(self) -> bytes:
        """Return the header and the manifest."""
        manifest = self.encode()
        head = HEADER.pack(MAGIC, VERSION, 0, len(manifest), self.file_bytes, self.digest, 0)[
            : -CHECKSUM.size
        ]
        return head + CHECKSUM.pack(crc64(head)) + manifest

    def to_json(self) -> dict[str, Any]:
        """Return what `llamay ctx inspect --json` prints."""
        return {
            "format": VERSION,
            "digest": self.digest.hex(),
            "file_bytes": self.file_bytes,
            **json.loads(self.encode()),
        }


def _canonical(value: object) -> bytes:
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def check_header(path: str, head: bytes, file_bytes: int) -> tuple[int, bytes]:
    """Return the manifest's length and SHA-256, or raise SnapshotError unless header and length are right."""

    def refuse(reason: str) -> SnapshotError:
        return SnapshotError(path, "header", reason)

    if not head.startswith(MAGIC[: len(head)]) or not head:
        raise refuse("this is not a llamay snapshot")
    if len(head) < HEADER.size:
        raise refuse(f"the file ends after {len(head)} bytes")
    _, version, flags, manifest_bytes, stated_bytes, digest, checksum = HEADER.unpack(head)
    if crc64(head[: -CHECKSUM.size]) != checksum:
        raise refuse("its checksum does not match: the file is damaged")
    if version != VERSION:
        raise refuse(f"format version {version}; this release reads version {VERSION}")
    if flags:
        raise refuse(f"it uses features that this release does not know (flags {flags:#x})")
    if stated_bytes != file_bytes:
        raise SnapshotError(path, "end", f"the file has {file_bytes} bytes and should have {stated_bytes}")
    if manifest_bytes > MAX_MANIFEST or HEADER.size + manifest_bytes > file_bytes:
        raise refuse(f"a manifest of {manifest_bytes} bytes cannot be")
    return manifest_bytes, digest


def parse_manifest(path: str, data: bytes, digest: bytes) -> Manifest:
    """Return the manifest. SnapshotError, saying what is wrong with it, if this is none."""
    if hashlib.sha256(data).digest() != digest:
        raise SnapshotError(path, "manifest", "its SHA-256 does not match: the file is damaged")
    try:
        manifest = _manifest(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SnapshotError(path, "manifest", f"not one that this format allows: {error}") from error
    if manifest.encode() != data:
        raise SnapshotError(path, "manifest", "it is not in canonical form")
    return manifest


def _int(value: object, low: int, high: int, name: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} is not an integer from {low} to {high}")
    return value


def _str(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is not a string")
    return value


def _manifest(value: Any) -> Manifest:
    if not isinstance(value, dict):
        raise TypeError("not an object")
    known = {"chunk", "first", "identity", "layout", "side", "tokens", "tokens_sha256"}
    if set(value) != known:
        raise ValueError(f"unexpected or missing keys: {', '.join(sorted(map(repr, set(value) ^ known)))}")
    _int(value["chunk"], CHUNK, CHUNK, "chunk")
    layout = _layout(value["layout"])
    n_tokens = _int(value["tokens"], 0, 2**31 - 1, "tokens")
    sha = _str(value["tokens_sha256"], "tokens_sha256")
    if len(bytes.fromhex(sha)) != 32:
        raise ValueError("tokens_sha256 is not a SHA-256")
    first = tuple(_int(n, 0, n_tokens, "first") for n in value["first"])
    if len(first) != len(layout.groups):
        raise ValueError("first has not one position for each group")
    for g, group in enumerate(layout.groups):
        if first[g] > first_needed(group, n_tokens):
            raise ValueError(f"group {g} lacks positions inside its window")
    side = []
    for name, version, size in value["side"]:
        side.append(
            (_str(name, "side"), _int(version, 0, 2**32 - 1, "version"), _int(size, 0, MAX_SIDE, "side"))
        )
    if [name for name, _, _ in side] != sorted({name for name, _, _ in side}):
        raise ValueError("side states are not in order")
    fields = value["identity"]
    if fields is not None and not isinstance(fields, dict):
        raise TypeError("identity is not an object")
    identity = None if fields is None else Identity.from_json(fields)
    return Manifest(layout, n_tokens, sha, first, tuple(side), identity)


def _layout(groups: Any) -> Layout:
    parsed = []
    for group in groups:
        if set(group) != {"kind", "layers", "precision", "window"}:
            raise ValueError("a group has unexpected or missing keys")
        layers = []
        for index, heads, k, v in group["layers"]:
            dims = [_int(n, 1, 1 << 20, "a dimension") for n in (heads, k, v)]
            layers.append(Layer(_int(index, 0, 2**32 - 1, "layer"), *dims))
        kind, precision = group["kind"], group["precision"]
        if kind not in KINDS or precision not in PRECISIONS:
            raise ValueError(f"a group of kind {kind!r} and precision {precision!r} is not known here")
        parsed.append(Group(kind, tuple(layers), _int(group["window"], 0, 2**32 - 1, "window"), precision))
    return Layout(parsed)


def first_needed(group: Group, n_tokens: int) -> int:
    """Return the first position of the group that a context of n_tokens may still read."""
    return max(0, n_tokens + 1 - group.window) if group.kind == "window" and n_tokens else 0
