"""A model without weights whose tokens are bytes: what constraints are compiled for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from llamay_models.constraints import Compiled


class _Bytes:
    """A byte each, and an end token."""

    vocab_size, eog = 257, (256,)

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def token_text(self, token: int) -> str:
        return chr(token) if token < 256 else "</s>"

    def is_special(self, token: int) -> bool:
        return token == 256


def byte_model() -> Any:
    return SimpleNamespace(tokenizer=_Bytes(), vocab_size=257)


def writes(compiled: Compiled, text: str) -> bool:
    """Whether a constraint lets a text begin so."""
    matcher = compiled.matcher()
    try:
        for byte in text.encode():
            matcher.accept(byte)
    except ValueError:  # RefusedTokenError is one
        return False
    return True
