"""Rotary frequencies, the same bits on every machine.

They are computed in decimal arithmetic with 50 digits and rounded once to binary64. A `pow` or `log` of
the C library may differ in the last bit from one system to the next, and with it every logit of a long
context.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from functools import lru_cache
from typing import Literal

import numpy as np

from llamay_models.plan.records import Doubles, Floats

Style = Literal["half", "pairs"]

_DIGITS = Context(prec=50)
_TWO_PI = 2 * Decimal("3.14159265358979323846264338327950288419716939937510582097494")


@dataclass(frozen=True)
class LinearScaling:
    """Position interpolation (Chen et al. 2023, https://arxiv.org/abs/2306.15595): frequencies divided by `factor`."""

    factor: float

    def apply(self, frequencies: list[Decimal], rope: Rope) -> list[Decimal]:
        """Return the frequencies, in radians a position for each pair, divided by the factor."""
        return [f / Decimal(self.factor) for f in frequencies]

    def attention_factor(self) -> Decimal:
        """Return 1: interpolation leaves the length of rotated values alone."""
        return Decimal(1)


@dataclass(frozen=True)
class YarnScaling:
    """YaRN (Peng et al. 2023, https://arxiv.org/abs/2309.00071).

    Fast pairs keep their frequency, and slow pairs have it divided by `factor`; between `beta_fast` and `beta_slow`
    turns in the original context the two are mixed. Rotated values are multiplied by `0.1 ln(factor) + 1`, unless the
    file has another factor.
    """

    factor: float
    original_context: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    log_multiplier: float = 0.0

    def apply(self, frequencies: list[Decimal], rope: Rope) -> list[Decimal]:
        """Return the frequencies, in radians a position, mixed by the place of each pair between fast and slow."""
        last = Decimal(rope.dims - 1)
        low = max(Decimal(0), self._dimension(self.beta_fast, rope).to_integral_value(ROUND_FLOOR))
        high = min(last, self._dimension(self.beta_slow, rope).to_integral_value(ROUND_CEILING))
        mixed = []
        for i, f in enumerate(frequencies):
            slow = min(Decimal(1), max(Decimal(0), (i - low) / max(Decimal("0.001"), high - low)))
            mixed.append(f / Decimal(self.factor) * slow + f * (1 - slow))
        return mixed

    def attention_factor(self) -> Decimal:
        """Return the factor of rotated values, by which attention stays as sharp over more positions."""
        if self.factor <= 1:
            return Decimal(1)
        log = Decimal(self.factor).ln()
        plain = 1 + Decimal("0.1") * log
        # DeepSeek's variant has a multiplier for all dimensions, and divides by the factor that this multiplier gives.
        return (
            plain / (1 + Decimal("0.1") * Decimal(self.log_multiplier) * log)
            if self.log_multiplier
            else plain
        )

    def _dimension(self, turns: float, rope: Rope) -> Decimal:
        """Return the pair that makes this many turns in the original context."""
        ratio = Decimal(self.original_context) / (Decimal(turns) * _TWO_PI)
        return rope.dims * ratio.ln() / (2 * Decimal(rope.base).ln())


@dataclass(frozen=True)
class Llama3Scaling:
    """Llama 3.1's rule (Grattafiori et al. 2024, https://arxiv.org/abs/2407.21783): slow pairs divided by `factor`.

    Fast pairs keep their frequency; between `low_frequency_factor` and `high_frequency_factor` turns in the original
    context the two are mixed. Files made by llama.cpp's converter carry the result as the tensor `rope_freqs.weight`
    instead.
    """

    factor: float
    original_context: int
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0

    def apply(self, frequencies: list[Decimal], rope: Rope) -> list[Decimal]:
        """Return the frequencies, in radians a position for each pair, mixed by their wavelength."""
        low, high = Decimal(self.low_frequency_factor), Decimal(self.high_frequency_factor)
        mixed = []
        for f in frequencies:
            turns = Decimal(self.original_context) * f / _TWO_PI
            smooth = min(Decimal(1), max(Decimal(0), (turns - low) / (high - low)))
            mixed.append(f / Decimal(self.factor) * (1 - smooth) + f * smooth)
        return mixed

    def attention_factor(self) -> Decimal:
        """Return 1: the rule leaves the length of rotated values alone."""
        return Decimal(1)


@dataclass(frozen=True)
class Rope:
    """How positions turn the values of a head (Su et al. 2021, https://arxiv.org/abs/2104.09864).

    `style` "half" pairs value `i` with `i + dims / 2` (GPT-NeoX, most files); "pairs" pairs `2i` with `2i
    + 1` (Meta's own order, which GGUF files of the architecture `llama` keep). Only the first `dims`
    values of a head turn.
    """

    dims: int
    base: float
    style: Style = "half"
    scaling: LinearScaling | YarnScaling | Llama3Scaling | None = None
    length: float = 1.0
    factor: float = field(init=False)

    def __post_init__(self) -> None:
        with localcontext(_DIGITS):
            factor = self.scaling.attention_factor() if self.scaling else Decimal(1)
            object.__setattr__(self, "factor", float(factor * Decimal(self.length)))

    def frequencies(self, factors: Floats | None = None) -> Doubles:
        """Return radians a position for each pair, float64 (dims / 2,), scaling and `factors` applied. Read-only."""
        return _frequencies(self, None if factors is None else tuple(factors.tolist()))


@lru_cache(maxsize=256)  # most layers rotate as the layer before does
def _frequencies(rope: Rope, factors: tuple[float, ...] | None) -> Doubles:
    with localcontext(_DIGITS):
        # One logarithm, then products: 128 roundings cost a few of the 50 digits, and binary64 needs 17.
        step = (-2 * Decimal(rope.base).ln() / rope.dims).exp()
        values = [Decimal(1)]
        for _ in range(rope.dims // 2 - 1):
            values.append(values[-1] * step)
        if factors is not None:
            values = [v / Decimal(f) for v, f in zip(values, factors, strict=True)]
        if rope.scaling is not None:
            values = rope.scaling.apply(values, rope)
        out = np.array([float(v) for v in values], np.float64)
    out.flags.writeable = False
    return out
