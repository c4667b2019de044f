"""LoRA adapters: files of low-rank updates, and models that use them over the same weights.

The files are llama.cpp's (`convert_lora_to_gguf.py`): `general.type` "adapter", `adapter.type` "lora",
`adapter.lora.alpha`, and for each matrix `<name>.lora_a` and `<name>.lora_b`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar, cast

import llamay_kv
from llamay_models import gguf
from llamay_models.backend import Backend, Plan, Threads, Weight
from llamay_models.errors import MetadataError, PlanError, TensorError
from llamay_models.kv_cache.layout import Precision, cache_layout
from llamay_models.kv_cache.pool import kv_pool
from llamay_models.plan import Program, Update, adapt, fuse
from llamay_models.tensors import FileTensor, file_tensors, pack

AdapterLike: TypeAlias = "Adapter | str | PathLike[str] | tuple[str | PathLike[str], float]"
"""An adapter, its file, or the file and its scale."""


@dataclass(frozen=True)
class Adapter:
    """An adapter's file, read and checked; with a `scale` of 1 it applies as it was trained.

    Attributes:
        path: where it is.
        name: its `general.name`, or the file's.
        rank: the largest rank of its updates.
        scale: the factor of the updates, besides alpha / rank.
        file: the open file.

    """

    path: Path
    name: str
    architecture: str
    scale: float
    pairs: Mapping[str, tuple[FileTensor, FileTensor]]
    alpha: float
    file: gguf.GGUFFile

    @classmethod
    def open(cls, path: str | PathLike[str], scale: float = 1.0) -> Adapter:
        """Read a file. Raises GGUFError, MetadataError, TensorError naming the problem; OSError; ValueError."""
        scale = float(scale)
        if not math.isfinite(scale):
            raise ValueError(f"the scale of {path} must be a finite number, not {scale}")
        file = gguf.open(path)
        metadata = file.metadata
        kind, what = metadata.get("general.type"), metadata.get("adapter.type")
        if kind != "adapter":
            raise MetadataError(f"{file.path} is not an adapter: its general.type is {kind!r}")
        if what != "lora":
            raise MetadataError(f"{file.path}: adapters of the type {what!r} are not supported, only 'lora'")
        if metadata.get("adapter.alora.invocation_tokens") is not None:
            raise MetadataError(f"{file.path}: adapters that a text switches on (aLoRA) are not supported")
        architecture, alpha = metadata.get("general.architecture"), metadata.get("adapter.lora.alpha")
        if not isinstance(architecture, str):
            raise MetadataError(f"{file.path}: the key general.architecture is missing")
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 <= alpha < math.inf:
            raise MetadataError(f"{file.path}: adapter.lora.alpha must be a number from 0 on, not {alpha!r}")
        name = metadata.get("general.name")
        return cls(
            file.path,
            name if isinstance(name, str) and name else file.path.stem,
            architecture,
            scale,
            _pairs(file_tensors(file), file.path),
            float(alpha),
            file,
        )

    @property
    def rank(self) -> int:
        """The largest rank of its updates."""
        return max(b.cols for _, b in self.pairs.values())

    def at(self, scale: float) -> Adapter:
        """Return the same file in another scale."""
        return replace(self, scale=float(scale))

    def updates(self) -> dict[str, Update]:
        """Return the update of each matrix. With an alpha of 0 the factor is the scale alone, as in llama.cpp."""
        return {
            name: Update(a, b, self.scale * (self.alpha / b.cols if self.alpha else 1.0))
            for name, (a, b) in self.pairs.items()
        }


def read_adapter(text: str) -> tuple[str, float]:
    """Return file and scale of `FILE` or `FILE:SCALE`; a text that names an existing file is that file."""
    path, colon, scale = text.rpartition(":")
    if not colon or Path(text).exists():
        return text, 1.0
    try:
        return path, float(scale)
    except ValueError:
        return text, 1.0


def open_adapters(adapters: Iterable[AdapterLike]) -> tuple[Adapter, ...]:
    """Read adapters in their order, without those whose scale is 0; see `Adapter.open`."""
    opened = []
    for each in adapters:
        if isinstance(each, Adapter):
            opened.append(each)
        elif isinstance(each, tuple):
            opened.append(Adapter.open(*each))
        else:
            opened.append(Adapter.open(each))
    return tuple(adapter for adapter in opened if adapter.scale)


def adapted_program(program: Program, adapters: Sequence[Adapter], architecture: str) -> Program:
    """Return the program with the updates of adapters, not fused. Raises MetadataError, TensorError naming the file."""
    for adapter in adapters:
        if adapter.architecture != architecture:
            raise MetadataError(
                f"{adapter.path} adapts the architecture {adapter.architecture}, and this model's is {architecture}"
            )
    for adapter in reversed(adapters):  # the last adapter is added last
        try:
            program = adapt(program, adapter.updates())
        except PlanError as error:
            raise TensorError(f"{adapter.path}: {error}") from None
    return program


def packed_updates(
    program: Program,
    shared: int,
    adapters: Sequence[Adapter],
    threads: Threads,
    backend: Backend,
    *,
    dequantized: bool,
) -> list[Weight]:
    """Return the tensors of an adapted program beyond the first `shared`, those of its adapters, prepared.

    Raises GGUFError if an adapter's file was written to since it was opened.
    """
    weights = pack(program.tensors[shared:], threads, backend=backend, dequantized=dequantized)
    for adapter in adapters:
        adapter.file.check_unchanged()
    return weights


def identity_fields(adapters: Sequence[Adapter]) -> dict[str, bytes]:
    """Return the fields of the identity for adapters: a digest of the files' bytes, scales and order."""
    total = hashlib.sha256()
    for adapter in adapters:
        total.update(f"{adapter.file.sha256()}:{adapter.scale!r}\n".encode())
    return {"adapters": total.digest()}


class AdaptableParts(Protocol):
    """The parts of a loaded model, as many as adapters change or read; a dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def architecture(self) -> str:
        """The name of the architecture."""

    @property
    def base(self) -> Program:
        """The program, neither fused nor adapted."""

    @property
    def backend(self) -> Backend:
        """The backend that computes."""

    @property
    def weights(self) -> Sequence[Weight]:
        """The prepared weights, those of `base` first."""

    @property
    def plan(self) -> Plan:
        """The prepared program."""

    @property
    def threads(self) -> Threads:
        """The threads that compute."""

    @property
    def precision(self) -> str:
        """The precision of K/V."""

    @property
    def dequantized(self) -> bool:
        """Whether weights are dequantized."""

    @property
    def prefix_cache(self) -> int:
        """Bytes that prefixes may take."""


class AdaptableModel(Protocol):
    """A model that is made of parts."""

    pool: llamay_kv.Pool

    def __init__(self, parts: Any) -> None: ...


Parts = TypeVar("Parts", bound=AdaptableParts)
Model = TypeVar("Model", bound=AdaptableModel)


def with_adapters(
    model: Model, parts: Parts, adapters: Iterable[AdapterLike], kv_budget: int | None
) -> Model:
    """Return another model over the same weights; see `Model.adapted`."""
    opened = open_adapters(adapters)
    program = adapted_program(parts.base, opened, parts.architecture)
    shared = len(parts.base.tensors)
    extra = packed_updates(
        program, shared, opened, parts.threads, parts.backend, dequantized=parts.dequantized
    )
    weights = [*parts.weights[:shared], *extra]
    fused = fuse(replace(program, tensors=tuple(weights)))
    pool = kv_pool(
        cache_layout(fused, cast(Precision, parts.precision)),
        model.pool.page_tokens,
        model.pool.budget_bytes if kv_budget is None else kv_budget,
        parts.backend,
    )
    plan = parts.backend.plan(fused.records, fused.widths, weights, max_rows=parts.plan.max_rows)
    changes = {
        "program": fused,
        "weights": weights,
        "plan": plan,
        "pool": pool,
        "adapters": opened,
        "prefix_cache": min(parts.prefix_cache, pool.budget_bytes),
        "owns_disk": False,
        "owns_draft": False,
    }
    return type(model)(replace(parts, **changes))


_HALVES = ("lora_a", "lora_b")


def _pairs(tensors: Mapping[str, FileTensor], path: Path) -> dict[str, tuple[FileTensor, FileTensor]]:
    """Sort a file's tensors by the matrix that they change. Raises TensorError for one that is no half of a pair."""
    halves: dict[str, dict[str, FileTensor]] = {}
    for name, tensor in tensors.items():
        matrix, dot, half = name.rpartition(".")
        if not dot or half not in _HALVES or matrix.rpartition(".")[2] in _HALVES:
            raise TensorError(
                f"{path}: {name} is not a low-rank update; adapters that replace whole tensors are not supported"
            )
        if not tensor.rows or not tensor.cols:
            raise TensorError(f"{path}: {name} is empty")
        halves.setdefault(matrix, {})[half] = tensor
    if not halves:
        raise TensorError(f"{path} holds no update of any matrix")
    for matrix, found in halves.items():
        if len(found) < 2:
            missing = "lora_a" if "lora_b" in found else "lora_b"
            raise TensorError(f"{path}: {matrix}.{missing} is missing")
    return {matrix: (found["lora_a"], found["lora_b"]) for matrix, found in halves.items()}


__all__ = [
    "Adapter",
    "adapted_program",
    "identity_fields",
    "open_adapters",
    "read_adapter",
    "with_adapters",
]
