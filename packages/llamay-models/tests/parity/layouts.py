"""How values of a parameter lie in a file where they lie otherwise in transformers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Layout = Callable[[str, Array], dict[str, Array]]
"""From a tensor's name and a parameter, the tensors of the file by name."""


def as_it_is(name: str, values: Array) -> dict[str, Array]:
    """Row after row, as in transformers."""
    return {name: values}


def rotated_pairs(heads: int) -> Layout:
    """Queries or keys whose rotated pairs lie half a head apart here, and side by side in the file."""

    def pairs(name: str, values: Array) -> dict[str, Array]:
        halves = values.reshape(heads, 2, -1, *values.shape[1:])
        return {name: np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))}

    return pairs


def transposed(name: str, values: Array) -> dict[str, Array]:
    """Matrices of (inputs, outputs) here are (outputs, inputs) in the file."""
    return {name: np.ascontiguousarray(values.T)}


def conv(name: str, values: Array) -> dict[str, Array]:
    """A convolution of each channel for itself has an axis of one input, which files leave out."""
    return {name: values[:, 0]}


def fused_experts(name: str, values: Array) -> dict[str, Array]:
    """Gates of all experts are one tensor in the file, and the other halves of their MLPs another; gates come first."""
    gate, up = np.split(values, 2, axis=1)
    return {name.format("gate"): gate.copy(), name.format("up"): up.copy()}


def tensor_name(parameter: str, names: Any) -> str:
    """Return what the file calls a parameter, `{}` standing for the parts of one that is several tensors.

    Raises KeyError for a parameter that no name is known of.
    """
    parts = parameter.split(".")
    layer = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    rest = ".".join(parts if layer is None else parts[layer + 1 :])
    front = "" if layer is None else f"blk.{parts[layer]}."
    if rest in names:  # the parameter has a name of its own, without `.weight`
        return front + names[rest]
    stem, _, kind = rest.rpartition(".")
    return f"{front}{names[stem]}.{kind}"
