"""The key that encrypts snapshots and kept prefixes."""

from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path

import llamay_kv
from llamay_server.config import ConfigError


def read_key(path: str) -> llamay_kv.Key:
    """Return the key in a file of 32 to 1024 bytes, or of 64 hexadecimal digits or more.

    Its name, a digest, tells it from other keys without revealing it. Raises `ConfigError` for a file that cannot be
    read, that other users may read, or that is too short or too long.
    """
    try:
        mode, raw = Path(path).stat().st_mode, Path(path).read_bytes()
    except OSError as e:
        raise ConfigError(f"ctx_key {path}: {e.strerror}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(f"ctx_key {path} is open to other users; run: chmod 600 {path}")
    text = raw.strip()
    if re.fullmatch(rb"(?:[0-9a-fA-F]{2}){32,}", text):
        raw = bytes.fromhex(text.decode())
    if not 32 <= len(raw) <= 1024:
        raise ConfigError(f"ctx_key {path} holds {len(raw)} bytes; it takes 32, or 64 hexadecimal digits")
    return llamay_kv.Key(hashlib.sha256(b"llamay key name" + raw).hexdigest()[:16], raw)
