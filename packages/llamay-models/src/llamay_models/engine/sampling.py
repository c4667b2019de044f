"""`Sampling`: the options by which tokens are chosen, with the names and defaults of llama.cpp."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real

from llamay_models.arguments import flag, number, whole
from llamay_models.errors import SamplingError

MAX_LOGPROBS = 1024
SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
"""The stages, in the order in which they are applied unless another is given."""
SAMPLER_LETTERS = dict(zip("edskypmxt", SAMPLERS, strict=True))
"""The letters that llama.cpp has for them."""
DRY_SEQUENCE_BREAKERS = ("\n", ":", '"', "*")
_MAX_BREAKERS, _MAX_BREAKER = 64, 40


@dataclass(frozen=True)
class Sampling:
    """The options by which the next token is chosen. Raises SamplingError, naming the option, if one is out of range.

    Attributes:
        seed: of the random numbers; the same seed gives the same text, alone or in a batch. None draws
            one, which `Generation.sampling` then tells.
        temperature: divides the logits; 0 takes the most likely token.
        dynatemp_range: if more than 0, the temperature lies between `temperature` minus and plus this, the
            higher the more undecided the model is; dynatemp_exponent shapes how it rises.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the most likely tokens until they hold this much probability; 1 keeps all.
        min_p: keep tokens at least this fraction as likely as the most likely one; 0 keeps all.
        typical_p: keep the tokens whose surprise is nearest to the expected one, until they hold this much
            probability; 1 keeps all.
        top_n_sigma: keep logits at most so many standard deviations below the largest; 0 or less keeps
            all.
        xtc_probability: how often all tokens of at least xtc_threshold but the least likely of them are
            dropped; 0 never. A threshold above 0.5 is off.
        repeat_penalty: divides positive logits, and multiplies negative ones, of tokens among the last
            `repeat_last_n`; 1 is off.
        repeat_last_n: how many tokens the penalties look at, prompt included; 0 none, -1 the whole
            context.
        presence_penalty: subtracted from the logit of a token that occurs there at all.
        frequency_penalty: subtracted once for each time it occurs there.
        dry_multiplier: if more than 0, a token that would prolong a repetition of n tokens loses
            `dry_multiplier * dry_base ** (n - dry_allowed_length)` where n reaches the allowed length.
        dry_penalty_last_n: how many tokens are searched for repetitions; 0 none, -1 the whole context.
        dry_sequence_breakers: texts that repetitions do not reach over.
        mirostat: 1 or 2 steers the surprise towards mirostat_tau bits, learning at the rate mirostat_eta,
            in place of all samplers but the temperature; 0 is off.
        samplers: the stages in the order in which they are applied, as a sequence of names or as one text, of
            names with semicolons or of llama.cpp's letters; a stage that is not named is not applied.
        logit_bias: token id -> number added to its logit; -inf forbids it.
        logprobs: how many alternatives to report with each token; None reports no probabilities, 0 only
            the chosen token's.
        post_sampling_logprobs: report the probabilities that are left after all stages, instead of the
            model's own.

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
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: Sequence[str] = DRY_SEQUENCE_BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    samplers: Sequence[str] | str = SAMPLERS
    post_sampling_logprobs: bool = False

    def __post_init__(self) -> None:
        plain: dict[str, object] = {}
        for name, low, high in _RANGES:
            plain[name] = number(name, getattr(self, name), low, high, error=SamplingError)
        for name, least, most in _WHOLE:
            value = getattr(self, name)
            if value is not None or name not in ("seed", "logprobs"):
                shown = "top_k (0 keeps all)" if name == "top_k" else name
                plain[name] = whole(shown, value, least, most, error=SamplingError)
        plain["logit_bias"] = _checked_bias(self.logit_bias)
        plain["post_sampling_logprobs"] = flag(
            "post_sampling_logprobs", self.post_sampling_logprobs, error=SamplingError
        )
        plain["samplers"] = read_samplers(self.samplers)
        plain["dry_sequence_breakers"] = _checked_breakers(self.dry_sequence_breakers)
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def seeded(self) -> Sampling:
        """Return the same with a seed: its own, or one drawn now."""
        return self if self.seed is not None else replace(self, seed=int.from_bytes(os.urandom(4)))

    @property
    def looks_back(self) -> int:
        """The number of the last tokens that a choice depends on; -1 for all."""
        if self.mirostat:
            return 0
        spans = [0]
        penalised = (
            self.repeat_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
        )
        if penalised and "penalties" in self.samplers:
            spans.append(self.repeat_last_n)
        if self.dry_multiplier and "dry" in self.samplers:
            spans.append(self.dry_penalty_last_n)
        return -1 if -1 in spans else max(spans)


def read_samplers(value: object) -> tuple[str, ...]:
    """Return the names of samplers in order: from a sequence of names, one text of names with semicolons, or letters.

    Names may be those of llama.cpp and its clients. Raises SamplingError naming an unknown one.
    """
    if isinstance(value, str) and ";" not in value and _plain(value) not in _ALIASES:
        return sampler_letters(value)
    names = value.split(";") if isinstance(value, str) else value
    if not isinstance(names, Sequence) or len(names) > 64:
        raise SamplingError(f"samplers must be at most 64 names of samplers, not {value!r:.80}")
    out = []
    for name in names:
        known = _ALIASES.get(_plain(name)) if isinstance(name, str) else None
        if known is None and name != "":
            raise SamplingError(f"samplers must be among {', '.join(SAMPLERS)}, not {name!r:.60}")
        if known is not None:
            out.append(known)
    return tuple(out)


def sampler_letters(text: str) -> tuple[str, ...]:
    """Return the names of samplers that llama.cpp's letters mean, in order. Raises SamplingError."""
    unknown = next((letter for letter in text if letter not in SAMPLER_LETTERS), None)
    if unknown is not None or len(text) > 64:
        known = ", ".join(f"{letter} {name}" for letter, name in SAMPLER_LETTERS.items())
        raise SamplingError(f"samplers: {unknown or text[:64]!r} is no sampler; they are {known}, at most 64")
    return tuple(SAMPLER_LETTERS[letter] for letter in text)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def _checked_bias(value: object) -> dict[int, float]:
    if not isinstance(value, Mapping):
        raise SamplingError(f"logit_bias must map token ids to numbers, not {value!r:.80}")
    plain = {}
    for token, bias in value.items():
        i = whole("a token of logit_bias", token, 0, error=SamplingError)
        if not isinstance(bias, Real) or isinstance(bias, bool) or not bias < math.inf:
            raise SamplingError(f"logit_bias of token {i} must be a number or -inf, not {bias!r:.80}")
        plain[i] = float(bias)
    return plain


def _checked_breakers(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) > _MAX_BREAKERS:
        raise SamplingError(f"dry_sequence_breakers must be at most {_MAX_BREAKERS} texts, not {value!r}")
    for text in value:
        if not isinstance(text, str) or not 0 < len(text) <= _MAX_BREAKER:
            raise SamplingError(
                f"dry_sequence_breakers must be texts of 1 to {_MAX_BREAKER} characters, not {text!r}"
            )
    return tuple(value)


# Other names that llama.cpp and its clients have for them.
_ALIASES = {name: name for name in SAMPLERS} | {
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
    "nucleus": "top_p",
    "temp": "temperature",
}
_RANGES = (
    ("temperature", 0.0, 1e6),
    ("dynatemp_range", 0.0, 1e6),
    ("dynatemp_exponent", 0.0, 1e3),
    ("top_p", 0.0, 1.0),
    ("min_p", 0.0, 1.0),
    ("typical_p", 0.0, 1.0),
    ("top_n_sigma", -1e6, 1e6),
    ("xtc_probability", 0.0, 1.0),
    ("xtc_threshold", 0.0, 1.0),
    ("repeat_penalty", 1e-6, 1e6),
    ("presence_penalty", -1e6, 1e6),
    ("frequency_penalty", -1e6, 1e6),
    ("dry_multiplier", 0.0, 1e6),
    ("dry_base", 1.0, 1e6),
    ("mirostat_tau", 0.0, 1e3),
    ("mirostat_eta", 0.0, 1e3),
)
_WHOLE = (
    ("seed", 0, (1 << 64) - 1),
    ("top_k", 0, 1 << 31),
    ("repeat_last_n", -1, 1 << 31),
    ("dry_allowed_length", 0, 1 << 31),
    ("dry_penalty_last_n", -1, 1 << 31),
    ("mirostat", 0, 2),
    ("logprobs", 0, MAX_LOGPROBS),
)
