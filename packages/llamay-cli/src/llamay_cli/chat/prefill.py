"""`Prefill`: what computing a prompt took."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prefill:
    """How many tokens of a turn were computed, how many were known before, and the seconds it took."""

    tokens: int
    cached: int
    seconds: float
