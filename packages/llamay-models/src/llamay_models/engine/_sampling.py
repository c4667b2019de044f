"""`Sampling`: how the next token is chosen, with the options and defaults of llama.cpp."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llamay_models.errors import SamplingError

MAX_LOGPROBS = 1024


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. Raises SamplingError, naming the option, if one is out of range.

    Attributes:
        seed: of the random numbers; the same seed gives the same text, alone or in a batch. None draws
            one, which `Generation.sampling` then tells.
        temperature: divides the logits; 0 takes the most likely token.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the most likely tokens until they hold this much probability; 1 keeps all.
        min_p: keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
        repeat_penalty: divides positive logits, and multiplies negative ones, of tokens among the last
            `repeat_last_n`; 1 is off.
        repeat_last_n: how many tokens the penalties look at, prompt included; 0 none, -1 the whole
            context.
        presence_penalty: subtracted from the logit of a token that occurs there at all.
        frequency_penalty: subtracted once for each time it occurs there.
        logit_bias: token id -> number added to its logit; -inf forbids it.
        logprobs: how many alternatives to report with each token; None reports no probabilities, 0 only
            the chosen token's.

    """

    seed: int | None = None
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None

    def __post_init__(self) -> None:
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise SamplingError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")
        for name, low, high in _WHOLE:
            value = getattr(self, name)
            optional = value is None and name in ("seed", "logprobs")
            whole = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
            if not optional and not whole:
                raise SamplingError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
        for token, bias in self.logit_bias.items():
            if not isinstance(token, int) or token < 0:
                raise SamplingError(f"logit_bias must map token ids to numbers, not {token!r}")
            if not isinstance(bias, int | float) or math.isnan(bias) or bias == math.inf:
                raise SamplingError(f"logit_bias of token {token} must be a number or -inf, not {bias!r}")

    def seeded(self) -> Sampling:
        """Return the same with a seed: its own, or one drawn now."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(32))


_RANGES = (
    ("temperature", 0.0, 1e6),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("repeat_penalty", 1e-6, 1e6),
    ("presence_penalty", -1e6, 1e6),
    ("frequency_penalty", -1e6, 1e6),
)
_WHOLE = (
    ("seed", 0, (1 << 64) - 1),
    ("top_k", 0, 1 << 31),
    ("repeat_last_n", -1, 1 << 31),
    ("logprobs", 0, MAX_LOGPROBS),
)
