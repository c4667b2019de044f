"""Tensor formats, CPU kernels, threads, the plan executor and sampling.

Set LLAMAY_ISA to force a kernel set; every set computes the same bits.
"""

from llamay_kernels._kernels import (
    FORMATS,
    PACKED_LAYOUT,
    BegunRows,
    Brake,
    Limits,
    Plan,
    PlanError,
    Sampler,
    Threads,
    Weight,
    dequantize,
    fill_masks,
    isa,
    limits,
    logprobs,
    quantize,
    runnable_isas,
    sample_batch,
    use_isa,
)

INTERFACE = {"plan": (1, 2)}
"""The interfaces that this package offers, each with (major, minor)."""

ARITHMETIC = 1
"""The version of docs/arithmetic.md that the kernels keep; saved state of another version is not reused."""

__all__ = [
    "ARITHMETIC",
    "FORMATS",
    "INTERFACE",
    "PACKED_LAYOUT",
    "BegunRows",
    "Brake",
    "Limits",
    "Plan",
    "PlanError",
    "Sampler",
    "Threads",
    "Weight",
    "dequantize",
    "fill_masks",
    "isa",
    "limits",
    "logprobs",
    "quantize",
    "runnable_isas",
    "sample_batch",
    "use_isa",
]


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
