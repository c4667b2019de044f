"""Rotation of queries and keys by their position."""

from collections.abc import Sequence

import numpy as np

from llamay_models import arguments
from llamay_models.errors import PlanError
from llamay_models.plan.attributes import Attr, real, text, whole
from llamay_models.plan.operations.norm import RMS, check_norm, rms
from llamay_models.plan.recorder import Recorder
from llamay_models.plan.records import Doubles, Program, Record, Tensor, Value
from llamay_models.plan.rewriting import Wiring, rewrite
from llamay_models.plan.rotary import Rope
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Fusion, Inputs, Operation, Tensors


class Rotation(Recorder):
    """Rotation by position."""

    def rope(
        self,
        x: Value,
        heads: int,
        rope: Rope | None,
        factors: Tensor | None = None,
        *,
        offset: int = 0,
        axes: Sequence[int] | None = None,
    ) -> Value:
        """Rotate pairs of each head by the row's position times a frequency, and multiply them by the rope's factor.

        Su et al. 2021, https://arxiv.org/abs/2104.09864. `factors`, (rotated dimensions / 2,), divide the
        frequencies; they are read when the plan is made. The n rotated dimensions of a head begin at `offset`, and
        the others stay as they are. Of the rotated dimensions, style "half" pairs i with i + n / 2, and "pairs" pairs
        2 i with 2 i + 1. Where positions have several axes, `axes` names for each pair the axis that turns the pair;
        the position of a text's row is the same in every axis. Without a rope, x is returned and nothing is recorded.
        """
        head_dim = self._parts("rope", x, heads)
        if rope is None:
            return x
        if not isinstance(rope, Rope):
            raise PlanError(f"rope: the rotation must be a Rope or None, not {rope!r}")
        arguments.whole("rope: offset", offset, error=PlanError)
        if offset < 0 or rope.dims + offset > head_dim:
            at = f" from {offset} on" if offset else ""
            raise PlanError(f"rope: rotates {rope.dims} dimensions{at} but a head of {x.name} has {head_dim}")
        turned_by = None if axes is None else _axes(axes, rope.dims // 2)
        frequencies = rope.frequencies(self._constant("rope", factors, rope.dims // 2))
        return self._emit(
            "rope",
            x.width,
            f"{x.name}.rope",
            [x],
            head_dim=head_dim,
            style=rope.style,
            freqs=frequencies,
            factor=rope.factor,
            offset=offset,
            axes=turned_by if turned_by is not None and any(turned_by) else None,
        )


def _axes(axes: Sequence[int], pairs: int) -> tuple[int, ...]:
    """Return the axis of each pair. Raises PlanError."""
    if not isinstance(axes, Sequence | np.ndarray):
        raise PlanError(f"rope: axes must be a sequence of whole numbers, not {axes!r}")
    if len(axes) != pairs:
        raise PlanError(f"rope: axes has {len(axes)} entries for {pairs} pairs")
    return tuple(arguments.whole(f"rope: axes[{i}]", axis, 0, error=PlanError) for i, axis in enumerate(axes))


def rotate(rows: Rows, x: Doubles, a: Attrs) -> Doubles:
    """Return x with the pairs of each head turned by the row's position times their frequency, times the factor."""
    head_dim, n, offset = a["head_dim"], len(a["freqs"]), a["offset"]
    heads = x.reshape(len(x), x.shape[1] // head_dim, head_dim).copy()
    if a["style"] == "half":
        first, second = slice(offset, offset + n), slice(offset + n, offset + 2 * n)
    else:
        first, second = slice(offset, offset + 2 * n, 2), slice(offset + 1, offset + 2 * n, 2)
    axes = a["axes"] or [0] * n
    positions = np.stack([rows.position(axis) for axis in axes], 1)
    angle = (positions * np.asarray(a["freqs"]))[:, None]
    one, two = heads[:, :, first].copy(), heads[:, :, second].copy()
    cos, sin = np.cos(angle) * a["factor"], np.sin(angle) * a["factor"]
    heads[:, :, first], heads[:, :, second] = one * cos - two * sin, two * cos + one * sin
    return heads.reshape(x.shape)


def _check(call: Call) -> None:
    x, a = call.args[0], call.attrs
    call.expect_same(call.outs[0], x)
    if x.width % a["head_dim"]:
        call.fail(f"{x.name} has {x.width} values, which do not divide into heads of {a['head_dim']}")
    pairs, offset = len(a["freqs"]), a["offset"]
    if not 1 <= pairs <= (a["head_dim"] - offset) // 2:
        call.fail(f"{pairs} pairs from {offset} on do not fit a head of {a['head_dim']} dimensions")
    if a["axes"] is not None and len(a["axes"]) != pairs:
        call.fail(f"axes has {len(a['axes'])} entries for {pairs} pairs")


_ROTATION = {
    "head_dim": whole(low=1),
    "style": text("half", "pairs"),
    "freqs": Attr("reals"),
    "factor": real(),
    "offset": whole(default=0),
    "axes": Attr("wholes", default=None, low=0),
}


def _inputs(call: Call) -> Inputs:
    return Inputs(axes=1 + max(call.attrs["axes"] or [0]))


def _check_both(call: Call) -> None:
    check_norm(call)
    _check(call)


def _rope_norm(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    return (rotate(rows, rms(x[0], w, a["eps"], a["groups"]), a),)


OPERATIONS = (
    # A rotation is not row by row: it needs the row's position, which a selected row has lost.
    Operation(
        name="rope",
        attrs=_ROTATION,
        check=_check,
        meaning=lambda rows, x, w, a: (rotate(rows, x[0], a),),
        inputs=_inputs,
    ),
    Operation(
        name="rope_norm",
        weights=("w?",),
        attrs={**RMS, **_ROTATION},
        means="`rope(rms_norm(x, w), …)`",
        check=_check_both,
        meaning=_rope_norm,
        inputs=_inputs,
    ),
)


def rope_norm(program: Program) -> Program:
    """Fuse `rope(rms_norm(x))` into one pass over each head."""

    def match(wiring: Wiring, last: Record) -> tuple[Record, set[int]] | None:
        norm = wiring.made(last.args[0], "rms_norm") if last.op == "rope" else None
        if norm is None:
            return None
        attrs = {**norm.attrs, **last.attrs}
        return Record("rope_norm", last.outs, norm.args, norm.weights, attrs), {norm.outs[0]}

    return rewrite(program, match)


FUSIONS = (Fusion(rope_norm),)
