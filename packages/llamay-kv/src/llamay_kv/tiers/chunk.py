"""The file of one chunk: 64 positions of all groups, encrypted under a key that only its own history gives.

A chunk has a name and a key by the chain of tokens that leads to it. With s the store's secret:

    root  = HMAC-SHA256(s, "llamay chunk root 1" 00, SHA-256 of the layout, identity digest, tenant)
    link  = HMAC-SHA256(s, link of the chunk before, or root; the 64 token ids as 32-bit little-endian integers; the
            table of the rows among them, if there are any)

Rows that are not tokens are numbered -2, -3, … in the order of their first appearance in the chunk. The table has, for
each run of numbers, the digest (32 bytes), the index of the first row and the number of rows (32 bits each).

The file is named by its link in hexadecimal, so that the secret suffices to verify a folder. It is: the magic
`LLAMAYKC` (8 bytes), format version 1 and which groups it holds as a bit set (32 bits each), a random nonce (12), then
the AES-256-GCM ciphertext of the groups' payloads (in the order of docs/snapshot-format.md) and its tag (16). The key
is HKDF-SHA256(s, salt the link, info `llamay chunk 1`); associated data is everything before the nonce. So a file under
another name, of another history or another identity does not decrypt. The payload of a recurrent group is its state
after the 64 positions, as a snapshot has it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from struct import Struct

import numpy as np

from llamay_kv._kv import describe_ids
from llamay_kv.identity import Identity
from llamay_kv.layout import Layout
from llamay_kv.snapshots import format as fmt

HEAD = Struct("<8sII")
MAGIC = b"LLAMAYKC"
VERSION = 1
NONCE = 12
OVERHEAD = HEAD.size + NONCE + fmt.TAG
SUFFIX = ".kvc"


@dataclass(frozen=True, slots=True)
class Link:
    """The place of a chunk in the tree of histories."""

    digest: bytes

    @classmethod
    def root(cls, secret: bytes, layout: Layout, identity: Identity, tenant: str) -> Link:
        """Return the link that the first chunk of a history follows."""
        body = hashlib.sha256(repr(layout.to_json()).encode()).digest() + identity.digest + tenant.encode()
        return cls(hmac.digest(secret, b"llamay chunk root 1\0" + body, "sha256"))

    def next(self, secret: bytes, tokens: np.ndarray) -> Link:
        """Return the link of the chunk with these tokens and rows, int32 (64,), after this one."""
        stored, table = describe_ids(tokens)
        return Link(hmac.digest(secret, self.digest + stored.astype("<i4").tobytes() + table, "sha256"))

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.digest.hex() + SUFFIX

    @classmethod
    def named(cls, name: str) -> Link:
        """Return the link of a file. DamagedError if no chunk has such a name."""
        try:
            digest = bytes.fromhex(name.removesuffix(SUFFIX))
        except ValueError:
            raise DamagedError("not the name of a chunk") from None
        if len(digest) != 32:
            raise DamagedError("not the name of a chunk")
        return cls(digest)


class DamagedError(Exception):
    """The file of a chunk is damaged or forged."""


def seal(secret: bytes, link: Link, present: int, payload: bytes | bytearray | memoryview) -> list[bytes]:
    """Return the parts of the file."""
    head = HEAD.pack(MAGIC, VERSION, present)
    nonce = os.urandom(NONCE)
    return [head, nonce, _cipher(secret, link).encrypt(nonce, payload, head)]


def present(head: bytes) -> int:
    """Return the set of groups that a file holds, from its first bytes; DamagedError if it is no chunk."""
    if len(head) < HEAD.size:
        raise DamagedError("too short")
    magic, version, groups = HEAD.unpack(head[: HEAD.size])
    if magic != MAGIC or version != VERSION:
        raise DamagedError("not a chunk")
    return int(groups)


def open_sealed(secret: bytes, link: Link, file: bytearray | memoryview) -> tuple[int, memoryview]:
    """Return the set of groups that a file holds, and their payloads. DamagedError unless every byte is authentic."""
    from cryptography.exceptions import InvalidTag

    view = memoryview(file)
    groups = present(bytes(view[: HEAD.size]))
    if len(view) < OVERHEAD:
        raise DamagedError("too short")
    head, nonce, sealed = view[: HEAD.size], view[HEAD.size : HEAD.size + NONCE], view[HEAD.size + NONCE :]
    payload = bytearray(len(sealed) - fmt.TAG)
    try:
        _cipher(secret, link).decrypt_into(nonce, sealed, head, payload)
    except InvalidTag:
        raise DamagedError("not authentic") from None
    return groups, memoryview(payload)


def _cipher(secret: bytes, link: Link):  # type: ignore[no-untyped-def]  # AESGCM is imported late
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return AESGCM(
        HKDF(algorithm=SHA256(), length=32, salt=link.digest, info=b"llamay chunk 1").derive(secret)
    )
