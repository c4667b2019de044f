"""`Prefill`: the cost of a prompt's prefill."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Prefill:
    """The prefill of a turn: tokens computed, tokens found in the context or the cache, and seconds."""

    tokens: int
    cached: int
    seconds: float
