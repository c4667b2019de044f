"""Reading an architecture's hyper-parameters from GGUF metadata, each checked and named when it is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llamay_models.errors import MetadataError

_REQUIRED: Any = object()


class Keys:
    """The metadata of one file, seen from one architecture.

    `keys.integer("block_count")` reads `llama.block_count`. Every method raises MetadataError that names
    the key and its allowed values.
    """

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self.metadata = metadata
        self.architecture = architecture

    def integer(self, key: str, default: int | None = _REQUIRED, *, low: int = 1, high: int = 1 << 31) -> Any:
        """Return a whole number in low..high.

        A list with one entry a layer is taken where all its entries agree.
        """
        value = self._one(key, self._raw(key, default))
        return value if value is default else self._whole(key, value, low, high)

    def integers(
        self,
        key: str,
        layers: int,
        default: int | Sequence[int] | None = _REQUIRED,
        *,
        low: int = 1,
        high: int = 1 << 31,
    ) -> tuple[int, ...]:
        """Return a whole number in low..high for each layer, from a list of them or from one number for all."""
        value = self._raw(key, default)
        return tuple(self._whole(key, v, low, high) for v in self._each(key, value, layers))

    def real(self, key: str, default: float | None = _REQUIRED, *, positive: bool = True) -> Any:
        """Return a finite number, more than 0 unless `positive` is false."""
        value = self._one(key, self._raw(key, default))
        return value if value is default else self._real(key, value, positive)

    def flag(self, key: str, default: bool) -> bool:
        """Return whether a key is true, as bool or as 0 or 1; `default` where the file lacks it."""
        return self._flag(key, self._raw(key, default))

    def local_layers(self, key: str, layers: int, period: int) -> tuple[bool, ...]:
        """Return which layers see only a window.

        Of every so many layers, `period` unless the file says another number, the last one sees everything; or the file
        says it of each layer.
        """
        value = self._raw(key, period)
        if _is_list(value):
            return tuple(self._flag(key, v) for v in self._each(key, value, layers))
        period = self._whole(key, value, 1, 1 << 31)
        return tuple(i % period < period - 1 for i in range(layers))

    def text(self, key: str, default: str | None = _REQUIRED) -> Any:
        """Return a string, or `default` where the file lacks the key."""
        value = self._raw(key, default)
        if value is not default and not isinstance(value, str):
            raise MetadataError(f"{self.name(key)} must be a string, not {value!r}")
        return value

    def vocabulary(self) -> int:
        """Return how many tokens there are: those of the tokenizer, or `vocab_size` without one."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        if tokens is not None and not hasattr(tokens, "__len__"):
            raise MetadataError(f"tokenizer.ggml.tokens must be a list of strings, not {tokens!r}")
        return len(tokens) if tokens is not None and len(tokens) else int(self.integer("vocab_size"))

    def token_types(self) -> int:
        """Return how many types a token may have; 1 where the file says nothing of them."""
        count = self.metadata.get("tokenizer.ggml.token_type_count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1 << 16:
            raise MetadataError(
                f"tokenizer.ggml.token_type_count must be a whole number from 1 to {1 << 16}, not {count!r}"
            )
        return count

    def refuse(self, key: str, feature: str) -> None:
        """Raise if the key asks for something that is not built; a wrong answer would be worse than none."""
        value = self._raw(key, None)
        if value is not None and bool(np.any(value)):
            raise MetadataError(
                f"{self.name(key)} is {value!r}, but {feature} is not supported for {self.architecture}"
            )

    def has(self, key: str) -> bool:
        """Return whether the file has the key, whatever its value."""
        return self.name(key) in self.metadata

    def name(self, key: str) -> str:
        """Return the key's full name, with the architecture in front."""
        return f"{self.architecture}.{key}"

    def _raw(self, key: str, default: Any) -> Any:
        value = self.metadata.get(self.name(key), default)
        if value is _REQUIRED:
            raise MetadataError(f"the key {self.name(key)} is missing")
        return value

    def _whole(self, key: str, value: Any, low: int, high: int) -> int:
        if (
            isinstance(value, bool | np.bool_)
            or not isinstance(value, int | np.integer)
            or not low <= int(value) <= high
        ):
            raise MetadataError(
                f"{self.name(key)} must be a whole number from {low} to {high}, not {value!r}"
            )
        return int(value)

    def _real(self, key: str, value: Any, positive: bool) -> float:
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        number = float(value) if is_number else math.nan
        if not math.isfinite(number) or (positive and number <= 0):
            kind = "a positive number" if positive else "a finite number"
            raise MetadataError(f"{self.name(key)} must be {kind}, not {value!r}")
        return number

    def _flag(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool | np.bool_) and not (
            isinstance(value, int | np.integer) and value in (0, 1)
        ):
            raise MetadataError(f"{self.name(key)} must be true or false, not {value!r}")
        return bool(value)

    def _each(self, key: str, value: Any, layers: int) -> Sequence[Any]:
        """Return a value for each layer."""
        if not _is_list(value):
            return [value] * layers
        entries = [v.item() if isinstance(v, np.generic) else v for v in value]
        if len(entries) != layers:
            raise MetadataError(f"{self.name(key)} has {len(entries)} entries for {layers} layers")
        return entries

    def _one(self, key: str, value: Any) -> Any:
        if _is_list(value):
            distinct = {v.item() if isinstance(v, np.generic) else v for v in value}
            if len(distinct) != 1:
                raise MetadataError(
                    f"{self.name(key)} differs from layer to layer ({list(value)[:8]}), "
                    f"which is not supported"
                )
            return distinct.pop()
        return value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)
