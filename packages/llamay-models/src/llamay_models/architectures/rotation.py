"""Rotary embeddings as files describe them; their keys and how they combine are llama.cpp's."""

from __future__ import annotations

from llamay_models.architectures.keys import Keys
from llamay_models.errors import MetadataError
from llamay_models.plan import LinearScaling, Llama3Scaling, Rope, Style, YarnScaling


def read_rope(keys: Keys, style: Style, head_dim: int) -> Rope:
    """Return the rotation of heads of this size. Raises MetadataError that names the key."""
    dims = keys.integer("rope.dimension_count", head_dim)
    if dims % 2 or dims > head_dim:
        raise MetadataError(
            f"{keys.name('rope.dimension_count')} must be even and at most the head's {head_dim}, not {dims}"
        )
    return Rope(dims, read_base(keys), style, _read_scaling(keys), keys.real("rope.scaling.attn_factor", 1.0))


def read_base(keys: Keys, key: str = "rope.freq_base") -> float:
    """Return the base of a rotation's frequencies, 10,000 where the file names none. Raises MetadataError."""
    base: float = keys.real(key, 10000.0)
    if base <= 1:
        raise MetadataError(f"{keys.name(key)} must be more than 1, not {base!r}")
    return base


def _read_scaling(keys: Keys) -> LinearScaling | YarnScaling | Llama3Scaling | None:
    # Files without a type but with a factor are older ones, and mean linear.
    kind = keys.text("rope.scaling.type", "linear")
    factor = keys.real("rope.scaling.factor", None) or keys.real("rope.scale_linear", None)
    if kind == "none" or factor is None or (factor == 1.0 and kind == "linear"):
        return None
    if kind == "linear":
        return LinearScaling(factor)
    original = keys.integer("rope.scaling.original_context_length", None) or keys.integer("context_length")
    if kind == "yarn":
        return YarnScaling(
            factor,
            original,
            keys.real("rope.scaling.yarn_beta_fast", 32.0),
            keys.real("rope.scaling.yarn_beta_slow", 1.0),
            keys.real("rope.scaling.yarn_log_multiplier", 0.0, positive=False),
        )
    if kind == "llama3":
        low = keys.real("rope.scaling.low_freq_factor", 1.0)
        high = keys.real("rope.scaling.high_freq_factor", 4.0)
        if low >= high:
            raise MetadataError(
                f"{keys.name('rope.scaling.high_freq_factor')} must be more than {low}, not {high}"
            )
        return Llama3Scaling(factor, original, low, high)
    known = "none, linear, yarn, llama3"
    raise MetadataError(f"{keys.name('rope.scaling.type')} must be one of {known}, not {kind!r}")
