"""The results of a generation: pieces of text, scores, counts and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

FinishReason = Literal["stop", "length", "timeout", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A token with its natural-log probability, and the likeliest alternatives, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """Text of whole characters, the tokens that completed it, and their scores if requested."""

    text: str
    tokens: tuple[int, ...] = ()
    logprobs: tuple[TokenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens: of the prompt, of these the ones found in the prefix cache, and the generated ones."""

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds: in the queue, of the prefill, and from the first token to the last."""

    queue: float
    prompt: float
    decode: float
