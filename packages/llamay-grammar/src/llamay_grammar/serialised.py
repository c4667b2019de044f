"""Grammars and positions as bytes: a magic number, the digest of what they belong to, a body and a checksum."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import numpy as np

from llamay_grammar.errors import RestoreError

_GRAMMAR, _MATCHER = b"llmG\x01", b"llmM\x01"
_DIGEST, _CHECKSUM = 32, 16


def write_grammar(recipe: bytes, vocabulary: bytes) -> bytes:
    """Return the recipe of a grammar over the vocabulary with this digest as bytes."""
    return _sealed(_GRAMMAR + vocabulary + recipe)


def read_grammar(data: bytes, vocabulary: bytes) -> bytes:
    """Return the recipe that `write_grammar` wrote for the vocabulary with this digest. Raises RestoreError."""
    owner, recipe = _opened(data, _GRAMMAR, 0, "grammar")
    if owner != vocabulary:
        raise RestoreError("the serialised grammar belongs to another vocabulary")
    return recipe


def write_position(tokens: Sequence[int], grammar: bytes) -> bytes:
    """Return the tokens accepted under the grammar with this digest as bytes."""
    ids = np.asarray(tokens, np.uint32)
    return _sealed(_MATCHER + grammar + struct.pack("<Q", ids.size) + ids.astype("<u4").tobytes())


def read_position(data: bytes, grammar: bytes) -> list[int]:
    """Return the tokens that `write_position` wrote for the grammar with this digest. Raises RestoreError."""
    owner, body = _opened(data, _MATCHER, 8, "matcher")
    if owner != grammar:
        raise RestoreError("the serialised matcher belongs to another grammar or vocabulary")
    (n,) = struct.unpack_from("<Q", body)
    if len(body) != 8 + 4 * n:
        raise RestoreError("the serialised matcher is damaged: its length does not match")
    return [int(t) for t in np.frombuffer(body, "<u4", offset=8)]


def _sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()[:_CHECKSUM]


def _opened(data: bytes, magic: bytes, shortest: int, kind: str) -> tuple[bytes, bytes]:
    """Return the digest and the body, of at least `shortest` bytes. Raises RestoreError."""
    if len(data) < len(magic) + _DIGEST + shortest + _CHECKSUM or not data.startswith(magic):
        raise RestoreError(f"not a serialised {kind}, or cut short")
    sealed, check = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if hashlib.sha256(sealed).digest()[:_CHECKSUM] != check:
        raise RestoreError(f"the serialised {kind} is damaged: its checksum does not match")
    content = sealed[len(magic) :]
    return content[:_DIGEST], content[_DIGEST:]
