"""The events of a running request: text of a choice, the end of a choice, and progress of the prefill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from llamay_models import TokenScore


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of a choice, the tokens that completed it, and their scores where the request asks for them."""

    index: int
    text: str
    tokens: tuple[int, ...] = ()
    scores: tuple[TokenScore, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceEnd:
    """A choice is complete, by "stop" (an end token or a stop string) or by "length"."""

    index: int
    reason: str
    stop_sequence: str | None = None


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Progress of a prefill of `total` tokens after `seconds`: `processed` tokens, `cached` of them from the cache."""

    index: int
    total: int
    cached: int
    processed: int
    seconds: float
