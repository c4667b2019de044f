"""llama.cpp's sampler chain once more, slow and obvious: float64, sorted lists, no shared passes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
DEFAULTS = {
    "temperature": 0.8,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "repeat_penalty": 1.0,
    "repeat_last_n": 64,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": (),
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "samplers": ORDER,
    "logit_bias": None,
}
Logits = dict[int, float]


def probabilities(x: Logits) -> dict[int, float]:
    """Softmax."""
    most = max(x.values())
    weights = {t: math.exp(v - most) for t, v in x.items()}
    total = math.fsum(weights.values())
    return {t: w / total for t, w in weights.items()}


def likeliest_first(x: Logits) -> list[int]:
    return sorted(x, key=lambda t: (-x[t], t))


def only(x: Logits, kept: Sequence[int]) -> Logits:
    keep = set(kept)
    return {t: v for t, v in x.items() if t in keep}


def until(order: Sequence[int], p: Mapping[int, float], mass: float, *, strictly: bool) -> list[int]:
    """The first in this order until they have this much probability, at least one."""
    total = 0.0
    for i, token in enumerate(order):
        total += p[token]
        if total > mass if strictly else total >= mass:
            return list(order[: i + 1])
    return list(order)


def entropy(x: Logits) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities(x).values() if p > 0)


def last(history: Sequence[int], n: int) -> list[int]:
    return list(history) if n < 0 else list(history[len(history) - min(n, len(history)) :])


def penalties(x: Logits, history: Sequence[int], o: Mapping[str, object]) -> Logits:
    recent = last(history, o["repeat_last_n"])
    out = dict(x)
    for token in set(recent) & set(x):
        v = x[token]
        v = v * o["repeat_penalty"] if v <= 0 else v / o["repeat_penalty"]
        out[token] = v - recent.count(token) * o["frequency_penalty"] - o["presence_penalty"]
    return out


def dry_lengths(history: Sequence[int], o: Mapping[str, object]) -> dict[int, int]:
    """Token -> how long a repetition it would prolong."""
    recent, allowed = last(history, o["dry_penalty_last_n"]), o["dry_allowed_length"]
    if len(recent) <= allowed:
        return {}
    # The part behind the last complete breaker; of breakers that begin at one token the longest.
    limit = len(recent)
    for begin in reversed(range(len(recent))):
        ends = [
            begin + len(b)
            for b in map(list, o["dry_sequence_breakers"])
            if b and recent[begin : begin + len(b)] == b
        ]
        if ends:
            limit = len(recent) - max(ends)
            break
    if limit < allowed:
        return {}
    longest: dict[int, int] = {}
    for end in range(1, len(recent)):  # recent[:end] ends as recent does; recent[end] followed
        length = 0
        while length < end and recent[end - 1 - length] == recent[-1 - length]:
            length += 1
        length = min(length, limit)
        if length >= allowed:
            longest[recent[end]] = max(longest.get(recent[end], 0), length)
    return longest


def dry(x: Logits, history: Sequence[int], o: Mapping[str, object]) -> Logits:
    out = dict(x)
    for token, length in dry_lengths(history, o).items():
        if token in out:
            out[token] -= o["dry_multiplier"] * o["dry_base"] ** (length - o["dry_allowed_length"])
    return out


def cut_sigma(x: Logits, n: float) -> Logits:
    mean = math.fsum(x.values()) / len(x)
    deviation = math.sqrt(math.fsum((v - mean) ** 2 for v in x.values()) / len(x))
    return {t: v for t, v in x.items() if v >= max(x.values()) - n * deviation}


def cut_typical(x: Logits, mass: float) -> Logits:
    p, expected = probabilities(x), entropy(x)
    surprise = {t: -math.log(q) if q > 0 else math.inf for t, q in p.items()}
    order = sorted(x, key=lambda t: (abs(surprise[t] - expected), t))
    return only(x, until(order, p, mass, strictly=True))


def cut_xtc(x: Logits, threshold: float) -> Logits:
    p = probabilities(x)
    likely = [t for t in likeliest_first(x) if p[t] >= threshold]
    return {t: v for t, v in x.items() if t not in likely[:-1]}


def heat(x: Logits, t: float, spread: float, exponent: float) -> Logits:
    if spread > 0:
        if len(x) < 2:
            return x
        low, high = max(0.0, t - spread), t + spread
        t = low + (high - low) * min(1.0, max(0.0, entropy(x) / math.log(len(x)))) ** exponent
    if t <= 0:
        return only(x, likeliest_first(x)[:1])
    return {token: v / t for token, v in x.items()}


def apply(name: str, x: Logits, history: Sequence[int], chance: float, o: Mapping[str, object]) -> Logits:
    """One stage."""
    if name == "penalties":
        return penalties(x, history, o)
    if name == "dry":
        return dry(x, history, o) if o["dry_multiplier"] > 0 else x
    if name == "top_n_sigma":
        return cut_sigma(x, o["top_n_sigma"]) if o["top_n_sigma"] > 0 and len(x) > 1 else x
    if name == "top_k":
        return only(x, likeliest_first(x)[: o["top_k"]]) if o["top_k"] > 0 else x
    if name == "typ_p":
        return cut_typical(x, o["typical_p"]) if o["typical_p"] < 1 else x
    if name == "top_p":
        order = likeliest_first(x)
        return only(x, until(order, probabilities(x), o["top_p"], strictly=False)) if o["top_p"] < 1 else x
    if name == "min_p":
        least = max(x.values()) + math.log(o["min_p"]) if o["min_p"] > 0 else -math.inf
        return {t: v for t, v in x.items() if v >= least}
    if name == "xtc":
        on = chance < o["xtc_probability"] and o["xtc_threshold"] <= 0.5
        return cut_xtc(x, o["xtc_threshold"]) if on else x
    assert name == "temperature"
    return heat(x, o["temperature"], o["dynatemp_range"], o["dynatemp_exponent"])


def mirostat_cut(x: Logits, vocabulary: int, mu: float, version: int) -> Logits:
    order, p = likeliest_first(x), probabilities(x)
    if version == 2:
        kept = [t for t in order if p[t] > 0 and -math.log2(p[t]) <= mu]
        return only(x, kept or order[:1])
    top = order[:101]
    if len(top) < 2:
        return x
    steps = [math.log((i + 2) / (i + 1)) for i in range(len(top) - 1)]
    falls = [x[a] - x[b] for a, b in itertools.pairwise(top)]
    s = math.fsum(t * b for t, b in zip(steps, falls, strict=True)) / math.fsum(t * t for t in steps)
    try:
        k = (((s - 1) * 2**mu) / (1 - vocabulary ** -(s - 1))) ** (1 / s)
    except (ZeroDivisionError, OverflowError):
        k = math.nan  # the caller chooses the fallback
    return only(x, order[: max(1, int(min(k, len(x))))]) if not math.isnan(k) else x


def distribution(
    logits: Sequence[float],
    *,
    history: Sequence[int] = (),
    allowed: Sequence[bool] | None = None,
    chance: float = 0.0,
    mu: float | None = None,
    **options: object,
) -> dict[int, float]:
    """Token -> probability, of the tokens that can be drawn."""
    o = {**DEFAULTS, **options}
    x = {t: float(v) for t, v in enumerate(logits) if allowed is None or allowed[t]}
    for token, bias in (o["logit_bias"] or {}).items():
        if token in x:
            x[token] += bias
    x = {t: v for t, v in x.items() if v > -math.inf}
    if o["mirostat"]:
        x = heat(x, o["temperature"], 0.0, 1.0)
        mu = 2 * o["mirostat_tau"] if mu is None else mu
        return probabilities(mirostat_cut(x, len(logits), mu, o["mirostat"]))
    for name in o["samplers"]:
        x = apply(name, x, history, chance, o)
    return probabilities(x)
