"""The bytes of a snapshot: header, manifest and frames. docs/snapshot-format.md is the specification."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, Literal

from llamay_kv._kv import crc64
from llamay_kv.errors import SnapshotError
from llamay_kv.identity import Identity
from llamay_kv.layout import KINDS, PRECISIONS, Group, Layer, Layout, Precision
from llamay_kv.storage.crypto import Encryption

Legacy = Literal["warn", "refuse", "allow"]
"""How to treat a snapshot without identity."""

MAGIC = b"LLAMAYKV"
VERSION = 1
CHUNK = 64
"""Positions of a group in one frame."""

HEADER = Struct("<8sIIQQ32sQ")
CHECKSUM = Struct("<Q")
MAX_MANIFEST = 16 << 20
MAX_SIDE = 1 << 30
_PLACE = Struct("<32sIII")
TAG = 16
ENCRYPTED, ROWS = 1, 2
"""Flags of the header."""
ROW_ENTRY = 40
"""Bytes of an entry of the table of rows: a digest, the index of the first row, the number of rows."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One stretch of the file: `size` bytes of payload, then its checksum or its authentication tag."""

    index: int
    name: str
    size: int
    kind: int
    group: int = 0
    begin: int = 0
    end: int = 0


TOKENS, SIDE, CHUNKS, TABLE = 1, 2, 3, 4


@dataclass(frozen=True)
class Manifest:
    """The description of a snapshot at its beginning.

    Attributes:
        layout: the groups whose pages the file holds.
        n_tokens: length of the context.
        tokens_sha256: SHA-256 of the ids as 32-bit little-endian integers and of the table of rows; None if they are
            encrypted.
        first: for each group the first position that is stored.
        side: opaque states as (name, version, bytes).
        identity: everything beside the tokens that the K/V depends on, or None if it was not given.
        owner: the owner, or None.
        marking: the confidentiality, or None.
        encryption: the encryption of the frames, or None. The manifest itself is in the clear, and a change of it
            without the key is detected.
        computed: the precision of each group when it was computed, if the file holds another; None if the file
            holds exactly the computed values.
        rows: entries of the table of rows that are not tokens; 0 if there are none among the ids.

    """

    layout: Layout
    n_tokens: int
    tokens_sha256: str | None
    first: tuple[int, ...]
    side: tuple[tuple[str, int, int], ...] = ()
    identity: Identity | None = None
    owner: str | None = None
    marking: str | None = None
    encryption: Encryption | None = None
    computed: tuple[Precision, ...] | None = None
    rows: int = 0
    digest: bytes = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", hashlib.sha256(self.encode()).digest())

    def encode(self) -> bytes:
        """Return the canonical JSON: sorted keys, no blanks, UTF-8."""
        # Only in files that need these keys: all others stay byte for byte as older releases write them.
        further: dict[str, object] = {} if self.computed is None else {"computed": list(self.computed)}
        if self.rows:
            further["rows"] = self.rows
        return _canonical(
            further
            | {
                "chunk": CHUNK,
                "encryption": None if self.encryption is None else self.encryption.to_json(),
                "first": list(self.first),
                "identity": None if self.identity is None else self.identity.to_json(),
                "layout": self.layout.to_json(),
                "marking": self.marking,
                "owner": self.owner,
                "side": [list(entry) for entry in self.side],
                "tokens": self.n_tokens,
                "tokens_sha256": self.tokens_sha256,
            }
        )

    def frames(self) -> Iterator[Frame]:
        """Yield the frames in file order: tokens, rows, side states, then chunks by position and group."""
        yield Frame(0, "tokens", 4 * self.n_tokens, TOKENS)
        index = 1
        if self.rows:
            yield Frame(index, "rows", ROW_ENTRY * self.rows, TABLE)
            index += 1
        for name, _version, size in self.side:
            yield Frame(index, f"side state {name!r}", size, SIDE)
            index += 1
        widths = [group.position_bytes for group in self.layout.groups]
        for chunk in range(-(-self.n_tokens // CHUNK)):
            for g, width in enumerate(widths):
                begin, end = max(chunk * CHUNK, self.first[g]), min((chunk + 1) * CHUNK, self.n_tokens)
                if width and begin < end:
                    name = f"chunk {chunk} of group {g}"
                    yield Frame(index, name, (end - begin) * width, CHUNKS, g, begin, end)
                    index += 1

    @property
    def computed_layout(self) -> Layout:
        """The layout of the context that was saved; another than `layout` if the file holds another precision."""
        if self.computed is None:
            return self.layout
        pairs = zip(self.layout.groups, self.computed, strict=True)
        return Layout(replace(group, precision=wide) for group, wide in pairs)

    @property
    def file_bytes(self) -> int:
        """Length of the file."""
        return HEADER.size + len(self.encode()) + sum(frame.size + self.trailer for frame in self.frames())

    @property
    def trailer(self) -> int:
        """Bytes behind the payload of each frame."""
        return CHECKSUM.size if self.encryption is None else TAG

    def place(self, frame: Frame) -> bytes:
        """Return the bytes that bind a frame to this snapshot and to its place; its checksum or tag covers them."""
        return _PLACE.pack(self.digest, frame.index, frame.kind, frame.group)

    def header(self) -> bytes:
        """Return the header and the manifest."""
        manifest = self.encode()
        flags = (ENCRYPTED if self.encryption is not None else 0) | (ROWS if self.rows else 0)
        head = HEADER.pack(MAGIC, VERSION, flags, len(manifest), self.file_bytes, self.digest, 0)
        head = head[: -CHECKSUM.size]
        return head + CHECKSUM.pack(crc64(head)) + manifest

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as `llamay ctx inspect --json` prints it."""
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


def check_header(path: str, head: bytes, file_bytes: int) -> tuple[int, int, bytes]:
    """Return the manifest's length, the flags, and the manifest's SHA-256.

    SnapshotError unless the header is right and the file is as long as it says.
    """

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
    if flags & ~(ENCRYPTED | ROWS):
        raise refuse(f"the file uses features that this release does not know (flags {flags:#x})")
    if stated_bytes != file_bytes:
        raise SnapshotError(path, "end", f"the file has {file_bytes} bytes and should have {stated_bytes}")
    if manifest_bytes > MAX_MANIFEST or HEADER.size + manifest_bytes > file_bytes:
        raise refuse(f"a manifest of {manifest_bytes} bytes cannot be")
    return manifest_bytes, flags, digest


def parse_manifest(path: str, data: bytes, digest: bytes) -> Manifest:
    """Return the manifest. SnapshotError, with the reason, if the bytes are no valid manifest."""
    if hashlib.sha256(data).digest() != digest:
        raise SnapshotError(path, "manifest", "its SHA-256 does not match: the file is damaged")
    try:
        manifest = _manifest(json.loads(data))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise SnapshotError(path, "manifest", f"not one that this format allows: {error}") from error
    if manifest.encode() != data:
        raise SnapshotError(path, "manifest", "the manifest is not in canonical form")
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
    known = {"chunk", "encryption", "first", "identity", "layout", "marking", "owner", "side", "tokens"}
    known.add("tokens_sha256")
    keys = set(value) - {"computed", "rows"}
    if keys != known:
        different = keys ^ known
        raise ValueError(f"unexpected or missing keys: {', '.join(sorted(map(repr, different)))}")
    _int(value["chunk"], CHUNK, CHUNK, "chunk")
    layout = _layout(value["layout"])
    n_tokens = _int(value["tokens"], 0, 2**31 - 1, "tokens")
    encryption = Encryption.from_json(value["encryption"])
    sha = value["tokens_sha256"]
    if (sha is None) != (encryption is not None):
        raise ValueError("tokens_sha256 must be null in an encrypted snapshot, and only there")
    if sha is not None and len(bytes.fromhex(_str(sha, "tokens_sha256"))) != 32:
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
    owner, marking = (_label(value[name], name) for name in ("owner", "marking"))
    computed = _computed(value["computed"], layout) if "computed" in value else None
    rows = _int(value["rows"], 1, n_tokens, "rows") if "rows" in value else 0
    return Manifest(
        layout, n_tokens, sha, first, tuple(side), identity, owner, marking, encryption, computed, rows
    )


def _computed(value: Any, layout: Layout) -> tuple[Precision, ...]:
    if not isinstance(value, list) or len(value) != len(layout.groups):
        raise TypeError("computed has not one precision for each group")
    for wide, group in zip(value, layout.groups, strict=True):
        if wide not in PRECISIONS or PRECISIONS[wide] > PRECISIONS[group.precision]:
            raise ValueError(f"{group.precision} does not come from {wide!r}")
    if all(wide == group.precision for wide, group in zip(value, layout.groups, strict=True)):
        raise ValueError("computed has the stored precisions, so it must be left out")
    return tuple(value)


def _label(value: object, name: str) -> str | None:
    if value == "":
        raise ValueError(f"{name} is empty")
    return None if value is None else _str(value, name)


def _layout(groups: Any) -> Layout:
    parsed = []
    for group in groups:
        if set(group) != {"kind", "layers", "precision", "window"}:
            raise ValueError("a group has unexpected or missing keys")
        layers = []
        kind, precision = group["kind"], group["precision"]
        least = 0 if kind in ("latent", "state") else 1
        for index, heads, k, v in group["layers"]:
            dims = [_int(n, low, 1 << 20, "a dimension") for n, low in ((heads, 1), (k, least), (v, least))]
            layers.append(Layer(_int(index, 0, 2**32 - 1, "layer"), *dims))
        if kind not in KINDS or precision not in PRECISIONS:
            raise ValueError(f"a group of kind {kind!r} and precision {precision!r} is not known here")
        parsed.append(Group(kind, tuple(layers), _int(group["window"], 0, 2**32 - 1, "window"), precision))
    return Layout(parsed)


def first_needed(group: Group, n_tokens: int) -> int:
    """Return the first position of the group that a context of n_tokens may still read."""
    return max(0, n_tokens + 1 - group.window) if group.kind == "window" and n_tokens else 0
