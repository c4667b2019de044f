"""Reading an architecture's hyper-parameters from GGUF metadata, each checked and named when it is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llamay_models.errors import MetadataError

_REQUIRED: Any = object()


class Keys:
    """The metadata of one file, seen from one architecture.

    `keys.integer("block_count")` reads `llama.block_count`. Every method raises MetadataError that names
    the key and what it must be.
    """

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata = metadata
        self.architecture = architecture

    def integer(self, key: str, default: int | None = _REQUIRED, *, low: int = 1, high: int = 1 << 31) -> Any:
        """Return a whole number in low..high.

        A list with one entry a layer is taken where all its entries agree.
        """
        value = self._one(key, self._raw(key, default))
        if value is default and value is not _REQUIRED:
            return value
        if (
            isinstance(value, bool)
            or not isinstance(value, int | np.integer)
            or not low <= int(value) <= high
        ):
            raise MetadataError(
                f"{self.name(key)} must be a whole number from {low} to {high}, not {value!r}"
            )
        return int(value)

    def real(self, key: str, default: float | None = _REQUIRED, *, positive: bool = True) -> Any:
        """Return a finite number, more than 0 unless `positive` is false."""
        value = self._one(key, self._raw(key, default))
        if value is default and value is not _REQUIRED:
            return value
        number = (
            float(value)
            if isinstance(value, int | float | np.number) and not isinstance(value, bool)
            else None
        )
        if number is None or not np.isfinite(number) or (positive and number <= 0):
            kind = "a positive number" if positive else "a finite number"
            raise MetadataError(f"{self.name(key)} must be {kind}, not {value!r}")
        return number

    def text(self, key: str, default: str | None = _REQUIRED) -> Any:
        """Return a string."""
        value = self._raw(key, default)
        if value is not default and not isinstance(value, str):
            raise MetadataError(f"{self.name(key)} must be a string, not {value!r}")
        return value

    def vocabulary(self) -> int:
        """Return how many tokens there are: those of the tokenizer, or `vocab_size` without one."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return len(tokens) if tokens is not None and len(tokens) else int(self.integer("vocab_size"))

    def refuse(self, key: str, feature: str) -> None:
        """Raise if the key asks for something that is not built; a wrong answer would be worse than none."""
        if value := self._raw(key, None):
            raise MetadataError(
                f"{self.name(key)} is {value!r}, but {feature} is not supported for {self.architecture}"
            )

    def name(self, key: str) -> str:
        """Return the key's full name."""
        return f"{self.architecture}.{key}"

    def _raw(self, key: str, default: Any) -> Any:
        value = self.metadata.get(self.name(key), default)
        if value is _REQUIRED:
            raise MetadataError(f"the key {self.name(key)} is missing")
        return value

    def _one(self, key: str, value: Any) -> Any:
        if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
            distinct = {v.item() if isinstance(v, np.generic) else v for v in value}
            if len(distinct) != 1:
                raise MetadataError(
                    f"{self.name(key)} differs from layer to layer ({list(value)[:8]}), "
                    f"which is not supported"
                )
            return distinct.pop()
        return value
