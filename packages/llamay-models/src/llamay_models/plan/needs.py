"""`Needs`: the meaning of the vocabulary that lists the weights of an architecture, with their shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from llamay_models.errors import TensorError
from llamay_models.plan.recorder import fit
from llamay_models.plan.records import Floats, Outline, Tensor, shape_text
from llamay_models.plan.trace import Trace
from llamay_models.plan.weights import Weights

# Converters of some models write these tensors, and no engine reads them.
_IGNORED = ("rope_freqs.weight", ".attn_rot_embd", ".attention.rotary_emb.inv_freq")
_LISTED = 8


@dataclass(frozen=True)
class Absent:
    """A stand-in of any shape for a tensor that the file lacks, so that an architecture asks for all its tensors."""

    name: str
    format: str = "absent"
    rows: int = 0
    cols: int = 0
    nbytes: int = 0

    def dequantize(self) -> Floats:
        """Raise TensorError: an absent tensor has no values."""
        raise TensorError(f"the tensor {self.name} is missing")


class Needs(Trace):
    """Runs an architecture to learn its weights.

    `wanted` maps each name to (rows, cols); a vector has one row.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wanted: dict[str, tuple[int, int]] = {}
        self.problems: list[str] = []

    def _fit(self, op: str, w: Tensor, rows: int, cols: int, stack: int) -> Tensor:
        """Note the wanted tensor, and return it as if it were there."""
        known, needed = self.wanted.setdefault(w.name, (rows, cols)), shape_text(rows, cols, stack)
        if known != (rows, cols):
            # A tied table must serve both of its uses.
            self._report(f"{w.name} is wanted as {shape_text(*known)} and as {needed}")
        elif isinstance(w, Absent):
            self._report(f"{w.name} is missing ({needed})")
        elif fit(w, rows, cols) is None:
            self._report(f"{w.name} is {shape_text(w.rows, w.cols)} but must be {needed}")
        return Outline(w.name, w.format, rows, cols, w.nbytes)

    def _constant(self, op: str, w: Tensor | None, count: int) -> Floats | None:
        if w is not None:
            self._expect(op, w, 1, count)
        return None

    def _report(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)


def check(
    architecture: Callable[..., Any], config: Any, tensors: Mapping[str, Tensor], where: str = ""
) -> Needs:
    """Ask an architecture for its weights and compare them with a file's, before anything is computed.

    Raises TensorError that names every tensor which is missing, has the wrong shape, or is not used: the architecture
    would ignore a part of the model.
    """
    needs, weights = Needs(), Weights(tensors, missing=Absent)
    architecture(needs, config, weights)
    problems = list(needs.problems)
    unused = sorted(n for n in tensors.keys() - weights.asked if not n.endswith(_IGNORED))
    problems += [f"{name} is not used by this architecture" for name in unused]
    if problems:
        shown = "; ".join(problems[:_LISTED])
        more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise TensorError(
            f"the tensors{f' of {where}' if where else ''} do not fit the architecture: {shown}{more}"
        )
    return needs
