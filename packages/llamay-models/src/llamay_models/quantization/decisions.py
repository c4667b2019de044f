"""Deciding about each tensor of a model file: whether it is quantized, and in which format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

import llamay_kernels as kernels
from llamay_models.errors import LlamayError
from llamay_models.gguf import FORMATS, GGUFFile
from llamay_models.quantization.architectures import ARCHITECTURES
from llamay_models.quantization.matrices import Verdict, judge, read_name
from llamay_models.quantization.recipe import (
    MIXES,
    OUTPUT,
    TABLE,
    TABLES,
    VALUES,
    Mix,
    fitting,
    format_of,
    role_of,
)
from llamay_models.quantization.rules import Place

_FLOATS = ("F32", "F16", "BF16")


class QuantizeError(LlamayError):
    """A model cannot be quantized as asked."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision for one tensor.

    Attributes:
        name: of the tensor.
        shape: the longest run of values last.
        source: its format in the source.
        target: its format in the target.
        source_bytes: of its data in the source.
        target_bytes: of its data in the target.
        reason: what the tensor is, which says why it is quantized or kept: "matrix", "vector", "router", ….
        kept: whether it stays as it is, whatever the mix.
        known: whether a rule knows its name; what none knows is kept.

    """

    name: str
    shape: tuple[int, ...]
    source: str
    target: str
    source_bytes: int
    target_bytes: int
    reason: str
    kept: bool
    known: bool


def decide(
    file: GGUFFile,
    kind: str,
    *,
    pure: bool = False,
    output: str | None = None,
    embedding: str | None = None,
    requantize: bool = False,
) -> list[Decision]:
    """Return the format of every tensor, in the file's order. Arguments and errors as for `quantize_file`."""
    mix = mix_of(kind)
    for name in (output, embedding):
        if name is not None:
            _known_format(name)
    _check_kind_of_file(file)
    tied = OUTPUT not in file.tensors
    sizes = {name: size for name, (size, _) in kernels.FORMATS.items()} | {"F16": 1}
    verdicts = {name: judge(name, info.shape) for name, info in file.tensors.items()}
    places = _places(file, verdicts)
    decisions = []
    for name, info in file.tensors.items():
        target, verdict = info.format, verdicts[name]
        if verdict.quantized:
            columns = info.shape[-1]
            target = mix.base if pure else format_of(mix, name, places[name], tied=tied)
            is_output = name == OUTPUT or (tied and name == TABLE)
            if output is not None and is_output:
                target = output
            elif embedding is not None and name in TABLES:
                target = embedding
            elif is_output and not pure and columns % sizes[_known_format(target)]:
                target = "Q8_0"
            target = fitting(_known_format(target), columns, sizes)
            if target != info.format and info.format not in _FLOATS and not requantize:
                raise QuantizeError(
                    f"{file.path}: the tensor {name} is {info.format} already, and quantizing it again loses"
                    f" more than quantizing the original; use the F16, BF16 or F32 file, or allow it"
                )
            if info.format not in kernels.FORMATS and target != info.format:
                raise QuantizeError(
                    f"{file.path}: the tensor {name} has the format {info.format}, which cannot be read;"
                    f" the formats are {', '.join(sorted(kernels.FORMATS))}"
                )
        decisions.append(
            Decision(
                name=name,
                shape=info.shape,
                source=info.format,
                target=target,
                source_bytes=info.nbytes,
                target_bytes=FORMATS[target].nbytes(info.shape),
                reason=verdict.reason,
                kept=not verdict.quantized,
                known=verdict.known,
            )
        )
    return decisions


def mix_of(kind: str) -> Mix:
    """Return a mix by its name. Raises QuantizeError that lists them."""
    if kind not in MIXES:
        raise QuantizeError(f"there is no type {kind!r}; the types are {', '.join(MIXES)}")
    return MIXES[kind]


def _known_format(name: str) -> str:
    if name not in kernels.FORMATS:
        raise QuantizeError(
            f"there is no format {name!r} to write; the formats are {', '.join(sorted(kernels.FORMATS))}"
        )
    return name


def _check_kind_of_file(file: GGUFFile) -> None:
    """Raise QuantizeError unless the file is a model of an architecture that has rules."""
    name, kind = file.metadata.get("general.architecture"), file.metadata.get("general.type", "model")
    if kind == "adapter":
        raise QuantizeError(f"{file.path} is an adapter, not a model; quantize the model that it adapts")
    if not isinstance(name, str):
        raise QuantizeError(
            f"{file.path} does not name its architecture (general.architecture), so it is not known which of its"
            f" tensors engines can read in other formats"
        )
    if name not in ARCHITECTURES:
        raise QuantizeError(
            f"{file.path}: there are no rules for the architecture {name[:40]!r}, so it is not known which of its"
            f" tensors engines can read in other formats; quantize it with the program that it was made for"
        )


def _places(file: GGUFFile, verdicts: Mapping[str, Verdict]) -> dict[str, Place]:
    """Return where each matrix stands. Layers are counted in each stack, as those of an encoder and a decoder."""
    prefix = str(file.metadata["general.architecture"])
    experts = file.metadata.get(f"{prefix}.expert_count", 0)
    names = {name: read_name(name) for name in file.tensors}
    counts: dict[str, int] = {}
    for found in names.values():
        counts[found.stack] = max(counts.get(found.stack, 0), found.layer + 1)
    places, values = {}, []
    for name, found in names.items():
        if verdicts[name].quantized:
            places[name] = Place(
                found.layer,
                counts[found.stack],
                _shared(file, found.layer),
                experts if isinstance(experts, int) else 0,
                prefix,
            )
            if role_of(name) in VALUES:
                values.append(name)
    for stack in {names[name].stack for name in values}:
        inside = sorted((n for n in values if names[n].stack == stack), key=lambda n: (names[n].layer, n))
        for rank, name in enumerate(inside):
            places[name] = replace(places[name], layer=rank, layers=len(inside))
    return places


def _shared(file: GGUFFile, layer: int) -> int:
    """Return how many query heads share a key/value head in a layer; 1 where that is not said."""
    prefix = file.metadata["general.architecture"]
    numbers: list[int] = []
    for key in ("head_count", "head_count_kv"):
        value = file.metadata.get(f"{prefix}.attention.{key}", numbers[0] if numbers else 1)
        if isinstance(value, np.ndarray):
            value = int(value[layer]) if layer < len(value) else 1
        numbers.append(value if isinstance(value, int) else 1)
    heads, kv_heads = numbers
    return heads // kv_heads if kv_heads > 0 else 1
