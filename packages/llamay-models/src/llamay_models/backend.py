"""`Backend`: the device that computes, as a table of functions.

Everything between a file's tensors and the tokens that come out of a step is in the table: preparing weights and plans,
running steps, drawing tokens, filling masks. Nothing else in this package knows the device. `CPU` is llamay_kernels.
docs/engine.md states the rules for backends, and `packages/llamay-models/tests/standin` has one in numpy that passes
the engine's tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

import llamay_kernels as kernels
from llamay_models.plan import Record, Tensor
from llamay_models.plan.records import Floats

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    Ids: TypeAlias = npt.NDArray[np.int32]
    Mask: TypeAlias = npt.NDArray[np.uint32]

RowInputs: TypeAlias = "Mapping[str, Any]"
"""The inputs of a text's rows other than tokens; an entry is absent where it does not apply.

"vectors": (int32 (m,), numbers of rows counted from the text's first, increasing; float32 (m, width)): rows that are
vectors handed in. "types": int32 (n,). "positions": int32 (n, axes).
"""

Given: TypeAlias = (
    "tuple[object, Sequence[int], int, int] | tuple[object, Sequence[int], int, int, RowInputs]"
)
"""The rows of a text in a step: the lease on its K/V and states (None where a plan keeps nothing), the tokens (0 where
the row is a vector), the position of the first, how many of the last rows want an output, and the other inputs."""

Draw: TypeAlias = "tuple[Sampler, int, int, Ids | None, Mask | None]"
"""A draw of a token: the sampler, the number of the step's output, the position, the tokens before, the mask."""

Drawn: TypeAlias = "tuple[list[int], dict[int, str]]"
"""The tokens, -1 where none can be drawn, and the errors by the number of the draw."""


class Threads(Protocol):
    """The threads of the host that compute."""

    @property
    def n(self) -> int:
        """The number of threads."""


class Weight(Tensor, Protocol):
    """A tensor in the form that the backend's plans read."""


class Flag(Protocol):
    """A flag that any thread may set: while it is set, no step begins after another by itself."""

    def set(self, on: bool = True, /) -> None:
        """Set or clear the flag."""

    @property
    def on(self) -> bool:
        """Whether the flag is set."""


class Sampler(Protocol):
    """Chooses tokens from logits; see docs/sampling.md. Its only state beside the options is `mu`, of mirostat."""

    mu: float

    def sample(
        self, logits: Floats, position: int, history: Ids | None = None, mask: Mask | None = None, /
    ) -> int:
        """Return the token for `position` of the text. Raises ValueError where none can be chosen."""

    def sample_scored(
        self, logits: Floats, position: int, history: Ids | None, mask: Mask | None, top: int, /
    ) -> tuple[int, float, list[tuple[int, float]]]:
        """Return also its natural-log probability after all stages, and those of the `top` likeliest tokens."""

    def state(self) -> dict[str, Any]:
        """Return the arguments that make an equal sampler."""


class Begun(Protocol):
    """A step that has begun."""

    def finish(
        self, draws: Sequence[Draw] = (), flag: Flag | None = None, ends: Sequence[int] = (), /
    ) -> tuple[float, list[int], dict[int, str], bool]:
        """Complete the step, and draw tokens. Return as `Plan.run_rows`, and whether the next step has begun.

        The next step begins by itself, and is then this object, where there is a flag that is not set, each text had
        one row from which one token was drawn, none of `ends`, and each lease has another position, with a state to be
        written after it where the plan keeps states.
        """

    def leave(self) -> None:
        """End the step early; its writes do not count. When this returns, no thread writes any more."""


class Plan(Protocol):
    """A prepared program."""

    @property
    def output_width(self) -> int:
        """The number of values of an output."""

    @property
    def max_rows(self) -> int:
        """The most rows of a step."""

    def run_rows(
        self, rows: Sequence[Given], out: Floats, threads: Threads, draws: Sequence[Draw] = (), /
    ) -> tuple[float, list[int], dict[int, str]]:
        """Compute one step; write the outputs in order, float32 (as many or more, output width); draw tokens from them.

        Returns the seconds that the step took, and `Drawn`. Keys, values and states go to the leases; those of
        committed rows count. Raises ValueError, before anything is written, for arguments that do not fit.
        """

    def begin_rows(self, rows: Sequence[Given], out: Floats, threads: Threads, /) -> Begun:
        """Begin a step that `Begun.finish` completes, and return at once. Raises as `run_rows` does."""

    def describe(self) -> str:
        """Return a description, for people, of the prepared program."""


class MakeWeight(Protocol):
    """Prepares a weight from its bytes, row by row as in a file. The bytes are not kept."""

    def __call__(
        self,
        data: Buffer,
        format: str,  # noqa: A002
        rows: int,
        cols: int,
        *,
        name: str = "",
        threads: Threads | None = None,
        mapped: bool = False,
    ) -> Weight: ...


class MakePlan(Protocol):
    """Prepares a program for steps of at most `max_rows` rows. Raises ValueError naming the record that it cannot."""

    def __call__(
        self,
        records: Sequence[Record],
        widths: Sequence[int],
        weights: Sequence[Weight],
        *,
        max_rows: int,
    ) -> Plan: ...


class MakeSampler(Protocol):
    """Makes a sampler of `Sampling`'s options, which draws from stream `sequence` of the seed."""

    def __call__(self, seed: int = 0, sequence: int = 0, **options: Any) -> Sampler: ...


class Limits(Protocol):
    """The measured limits of the device, each in units a second."""

    @property
    def read_bandwidth(self) -> float:
        """Bytes read from memory."""

    @property
    def int8_ops(self) -> float:
        """Operations on 8-bit integers."""


SampleBatch: TypeAlias = (
    "Callable[[Sequence[tuple[Sampler, Floats, int, Ids | None, Mask | None]], Threads | None], Drawn]"
)
FillMasks: TypeAlias = (
    "Callable[[Sequence[tuple[object, Mask]], Mask, Threads | None], list[tuple[int, int, float]]]"
)
Logprobs: TypeAlias = "Callable[[Floats, int, int], tuple[float, list[tuple[int, float]]]]"


@dataclass(frozen=True)
class Packed:
    """How prepared weights are kept in a file, and read back without preparing them again.

    Attributes:
        layout: the version of their form; bytes of another are not read.
        bytes: the prepared bytes of a weight.
        checksum: of these.
        read: the weight from (file descriptor, offset, format, rows, cols, checksum, *, name, threads). Raises
            ValueError where the bytes are not those of the checksum.

    """

    layout: int
    bytes: Callable[[Weight], npt.NDArray[np.uint8]]
    checksum: Callable[[Weight, Threads], int]
    read: Callable[..., Weight]


@dataclass(frozen=True, repr=False)
class Backend:
    """A device's functions.

    Attributes:
        name: the name of the device in messages.
        device: the class of devices that compute the same bits. K/V of another class is refused.
        arithmetic: the version of the arithmetic; K/V of another version is refused.
        threads: makes the threads of the host, of a number.
        weight, plan: prepare.
        sampler, sample_batch: make a sampler, and draw tokens from logits that are there.
        fill_masks: fill the masks of constraints that offer the C interface, in one call.
        logprobs: the natural-log probability of a token, and the likeliest tokens, from float32 (vocabulary,) logits.
        flag: makes a flag that is not set.
        limits: measures the limits of the device.
        memory: makes the allocator of K/V, as `llamay_kv.Pool(allocator=)` takes it; None for ordinary memory.
        packed: how prepared weights are kept in files; None where they cannot be.

    """

    name: str
    device: str
    arithmetic: int
    threads: Callable[[int], Threads]
    weight: MakeWeight
    plan: MakePlan
    sampler: MakeSampler
    sample_batch: SampleBatch
    fill_masks: FillMasks
    logprobs: Logprobs
    flag: Callable[[], Flag]
    limits: Callable[[Threads], Limits]
    memory: Callable[[], object] | None = None
    packed: Packed | None = None

    def __repr__(self) -> str:
        return f"<Backend {self.name}>"


# The native module's types name each other where the protocols name protocols.
CPU = Backend(
    name="cpu",
    device="cpu",
    arithmetic=kernels.ARITHMETIC,
    threads=kernels.Threads,
    weight=cast(MakeWeight, kernels.Weight),
    plan=cast(MakePlan, kernels.Plan),
    sampler=cast(MakeSampler, kernels.Sampler),
    sample_batch=cast("SampleBatch", kernels.sample_batch),
    fill_masks=cast("FillMasks", kernels.fill_masks),
    logprobs=kernels.logprobs,
    flag=cast("Callable[[], Flag]", kernels.Brake),
    limits=cast("Callable[[Threads], Limits]", kernels.limits),
    packed=Packed(
        kernels.PACKED_LAYOUT,
        lambda weight: cast(kernels.Weight, weight).packed,
        lambda weight, threads: cast(kernels.Weight, weight).checksum(cast(kernels.Threads, threads)),
        kernels.Weight.read_packed,
    ),
)
"""llamay_kernels: every kernel set of it computes the same bits."""


__all__ = [
    "CPU",
    "Backend",
    "Begun",
    "Draw",
    "Drawn",
    "Flag",
    "Given",
    "Limits",
    "Packed",
    "Plan",
    "RowInputs",
    "Sampler",
    "Threads",
    "Weight",
]
