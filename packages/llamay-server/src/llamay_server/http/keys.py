"""API keys: kept as digests, compared in constant time over all of them, never shown."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping


class Keys:
    """The keys in force. False when there is none, and then everybody is the one anonymous owner."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._digests = [(hashlib.sha256(key.encode()).digest(), owner) for key, owner in keys.items()]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def owner(self, headers: Mapping[bytes, bytes]) -> str | None:
        """Whose key a request carries; every key is compared, so that the time says nothing about which one."""
        given = headers.get(b"authorization", b"")
        scheme, _, value = given.partition(b" ")
        key = value.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"").strip()
        digest = hashlib.sha256(key).digest()
        found = None
        for known, owner in self._digests:
            if hmac.compare_digest(known, digest):
                found = owner
        return found
