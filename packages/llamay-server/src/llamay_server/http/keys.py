"""API keys: kept as digests, compared in constant time, never shown."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping


class Keys:
    """The keys that are accepted, each with its owner. False where there is none: all requests then have one owner."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._digests = [(hashlib.sha256(key.encode()).digest(), owner) for key, owner in keys.items()]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def owner(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Return the owner of the key that a request carries; None for a wrong key or none.

        Every key is compared, so that the time taken tells nothing about which one matched.
        """
        given = headers.get(b"authorization", b"")
        scheme, _, value = given.partition(b" ")
        key = value.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"").strip()
        digest = hashlib.sha256(key).digest()
        found = None
        for known, owner in self._digests:
            if hmac.compare_digest(known, digest):
                found = owner
        return found
