"""The numbers of one request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Totals:
    """Token counts and times of one request, over all its prompts and choices. Times are seconds."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose K/V was found in the prefix cache."""
    written_tokens: int = 0
    """Prompt tokens that were computed and that later requests find in the prefix cache."""
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    prefill: float = 0.0
    decode: float = 0.0
