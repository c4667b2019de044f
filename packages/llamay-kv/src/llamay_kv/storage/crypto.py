"""Encryption of stored state: a key for each snapshot, a tag for each frame."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from struct import pack
from typing import TYPE_CHECKING

from llamay_kv import arguments

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CIPHER = "AES-256-GCM"
KDF = "HKDF-SHA256"
_INFO = b"llamay snapshot 1"
_MINIMUM = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A secret, and the name by which a snapshot says under which one it was written.

    Args:
        name: distinguishes keys; it is stored in the clear.
        secret: at least 32 bytes from a good source. The secret itself never encrypts anything: each snapshot has a key
            that is derived from it (HKDF, RFC 5869) with a salt of its own.

    """

    name: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        arguments.text("name", self.name)
        if not isinstance(self.secret, arguments.Bytes):  # whatever it is, no message shows it
            raise TypeError(f"secret must be bytes, not a value of the type {type(self.secret).__name__}")
        object.__setattr__(self, "secret", bytes(self.secret))
        if len(self.secret) < _MINIMUM:
            raise ValueError(f"a key needs a secret of at least {_MINIMUM} bytes, not {len(self.secret)}")

    @classmethod
    def generate(cls, name: str) -> Key:
        """Return a key with a new random secret."""
        return cls(name, os.urandom(_MINIMUM))


Keys = Key | Iterable[Key] | None
"""The keys for a reader: one, several, or none."""


def given_keys(keys: Keys) -> tuple[Key, ...]:
    """Return the keys that were given to a reader."""
    if keys is None:
        return ()
    return (keys,) if isinstance(keys, Key) else arguments.several("keys", keys, Key)


@dataclass(frozen=True, slots=True)
class Encryption:
    """The encryption of the frames of a snapshot.

    Attributes:
        key: the name of the key.
        salt: 32 random bytes; with the key's secret they give the key of this snapshot alone.

    """

    key: str
    salt: bytes

    @classmethod
    def under(cls, key: Key) -> Encryption:
        """Return an encryption under the key with a new salt."""
        return cls(key.name, os.urandom(32))

    def to_json(self) -> dict[str, str]:
        """Return the form that the manifest stores."""
        return {"cipher": CIPHER, "kdf": KDF, "key": self.key, "salt": self.salt.hex()}

    @classmethod
    def from_json(cls, value: object) -> Encryption | None:
        """Return the encryption that a manifest stores. ValueError if this release does not know it."""
        if value is None:
            return None
        if not isinstance(value, Mapping) or set(value) != {"cipher", "kdf", "key", "salt"}:
            raise ValueError("encryption is not one that this format allows")
        if (value["cipher"], value["kdf"]) != (CIPHER, KDF):
            raise ValueError(f"encryption with {value['cipher']!r} and {value['kdf']!r} is not known here")
        if not isinstance(value["key"], str) or not isinstance(value["salt"], str):
            raise TypeError("the key's name and the salt are strings")
        salt = bytes.fromhex(value["salt"])
        if len(salt) != 32:
            raise ValueError("the salt has not 32 bytes")
        return cls(value["key"], salt)

    def find(self, keys: Iterable[Key]) -> Key | None:
        """Return the named key, None if it is not among the given ones."""
        return next((key for key in keys if key.name == self.key), None)

    def cipher(self, key: Key) -> AESGCM:
        """Return the cipher of this snapshot."""
        # Not at import: it takes longer than everything else of this package, and most processes never need it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        derived = HKDF(algorithm=SHA256(), length=32, salt=self.salt, info=_INFO).derive(key.secret)
        return AESGCM(derived)


def nonce(index: int) -> bytes:
    """Return the nonce of a frame. No two frames share one, for no two snapshots share a key."""
    return pack("<QI", index, 0)
