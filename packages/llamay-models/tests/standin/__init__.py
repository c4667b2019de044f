"""A second backend, in numpy and float64: slow, obvious, and nothing like the first.

It shows that the engine asks for nothing that only llamay_kernels has: the engine's tests run on both. Each row is
computed by itself, from what is kept of its text, so no batch can show in a result; what an operation means comes from
the plan's table of operations. Logits are rounded to float32, and tokens are drawn by llamay_kernels' samplers.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import llamay_kernels as kernels
from llamay_models.backend import Backend

from .plan import Plan
from .weight import Weight


@dataclass(frozen=True)
class Threads:
    """One thread computes, whatever is asked for."""

    n: int


@dataclass(frozen=True)
class Limits:
    """Of no machine in particular."""

    read_bandwidth: float = 1e9
    int8_ops: float = 1e9


class Flag:
    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self, on: bool = True) -> None:
        if on:
            self._event.set()
        else:
            self._event.clear()

    @property
    def on(self) -> bool:
        return self._event.is_set()


STANDIN = Backend(
    name="stand-in",
    device="numpy",
    arithmetic=1,
    threads=Threads,
    weight=Weight,
    plan=Plan,
    sampler=kernels.Sampler,
    sample_batch=lambda rows, threads=None: kernels.sample_batch(rows),
    fill_masks=lambda rows, ends, threads=None: kernels.fill_masks(rows, ends),
    logprobs=kernels.logprobs,
    flag=Flag,
    limits=lambda threads: Limits(),
)
