"""Norms, and the fusions around them."""

from dataclasses import replace

import numpy as np

from llamay_models.errors import PlanError
from llamay_models.plan.attributes import real, whole
from llamay_models.plan.recorder import Recorder, stem
from llamay_models.plan.records import Doubles, Program, Record, Tensor, Value, vector
from llamay_models.plan.rewriting import Wiring, rewrite
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Fusion, Operation, Tensors


class Norm(Recorder):
    """Norms."""

    def rms_norm(self, x: Value, w: Tensor | None, eps: float, heads: int = 1, *, own: bool = False) -> Value:
        """`x / sqrt(mean(x^2) + eps) * w` in each of `heads` parts of the row.

        `w`: (x's width / heads,), the same weights for each part, or with `own` (x's width,), a weight for each number;
        None for a norm without weights. `groups` is recorded where the length of w does not determine the parts.
        Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467.
        """
        size = self._parts("rms_norm", x, heads)
        if w is None:
            name, weights, usual = f"{x.name}.rms_norm", [], 1
        else:
            length = x.width if own else size
            weights = [self._weight("rms_norm", w, 1, length)]
            name = stem(w.name)
            usual = x.width // length
        groups = None if heads == usual else heads
        return self._emit("rms_norm", x.width, name, [x], weights, eps=eps, groups=groups)

    def layer_norm(self, x: Value, w: Tensor | None, bias: Tensor | None, eps: float) -> Value:
        """`(x - mean(x)) / sqrt(variance(x) + eps) * w + bias`; `w`, `bias`: (x's width,), or None.

        Without w there is no bias either. Ba, Kiros and Hinton 2016, https://arxiv.org/abs/1607.06450.
        """
        if w is None and bias is not None:
            raise PlanError(f"layer_norm: {x.name} has a bias, {bias.name}, but no weight")
        vectors = [v for v in (w, bias) if v is not None]
        weights = [self._weight("layer_norm", v, 1, x.width) for v in vectors]
        name = f"{x.name}.layer_norm" if w is None else stem(w.name)
        return self._emit("layer_norm", x.width, name, [x], weights, eps=eps)


# -- meanings


def rms(x: Doubles, w: Tensors, eps: float, groups: int | None = None) -> Doubles:
    """Return each group of a row, divided by the root of its mean square plus eps, times the weights.

    Without `groups`, a row has as many groups as it has repetitions of the weights; without weights, one.
    """
    weight = vector(w[0]) if w else np.ones(1)
    if groups is None:
        groups = x.shape[1] // len(weight) if w else 1
    parts = x.reshape(len(x), groups, x.shape[1] // groups)
    y: Doubles = (parts / np.sqrt((parts * parts).mean(-1, keepdims=True) + eps)).reshape(x.shape)
    return y * np.tile(weight, x.shape[1] // len(weight))


def _layer_norm(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    centred = x[0] - x[0].mean(-1, keepdims=True)
    y: Doubles = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + a["eps"])
    if w:
        y = y * vector(w[0])
    return (y if len(w) < 2 else y + vector(w[1]),)


def _add_rms_norm(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles, Doubles]:
    total = x[0] + x[1]
    return total, rms(total, w, **a)


# -- records


def check_norm(call: Call) -> None:
    """Check the widths and the weight of a norm, fused or not. Raises PlanError."""
    x = call.args[-1]
    for value in (*call.args[:-1], *call.outs):
        call.expect_same(value, x)
    if call.weights:
        length = call.weights[0].cols
        call.expect_weight(0, 1, length)
        call.expect_parts(x, length, "weights")
    groups = call.attrs["groups"]
    if groups is not None:
        call.expect_parts(x, groups, "groups")
        if call.weights and call.weights[0].cols not in (x.width, x.width // groups):
            call.fail(f"{groups} groups of {x.name} have {call.weights[0].cols} weights")


def _check_layer_norm(call: Call) -> None:
    call.expect_same(call.outs[0], call.args[0])
    for index in range(2):
        call.expect_weight(index, 1, call.args[0].width)


_EPS = {"eps": real(low=0)}
RMS = {**_EPS, "groups": whole(default=None, low=1)}
"""The attributes of an RMS norm and of the operations that an RMS norm is fused into."""

OPERATIONS = (
    Operation(
        name="rms_norm",
        weights=("w?",),
        attrs=RMS,
        check=check_norm,
        meaning=lambda rows, x, w, a: (rms(x[0], w, **a),),
        row_by_row=True,
        is_norm=True,
    ),
    Operation(
        name="layer_norm",
        weights=("w?", "bias?"),
        attrs=_EPS,
        check=_check_layer_norm,
        meaning=_layer_norm,
        row_by_row=True,
        is_norm=True,
    ),
    Operation(
        name="add_rms_norm",
        args=("a", "b"),
        weights=("w?",),
        outs=("sum", "y"),
        attrs=RMS,
        means="`sum = add(a, b)` and `y = rms_norm(sum, w)`",
        check=check_norm,
        meaning=_add_rms_norm,
        is_norm=True,
    ),
    Operation(
        name="rms_norm_add",
        args=("residual", "x"),
        weights=("w?",),
        attrs=RMS,
        means="`add(residual, rms_norm(x, w))`: the norm after a block, as in Gemma",
        check=check_norm,
        meaning=lambda rows, x, w, a: (x[0] + rms(x[1], w, **a),),
    ),
)


# -- fusions


def rms_norm_add(program: Program) -> Program:
    """Fuse `add(residual, rms_norm(x))`, the norm after a block, as in Gemma."""

    def match(wiring: Wiring, last: Record) -> tuple[Record, set[int]] | None:
        norm = wiring.made(last.args[1], "rms_norm") if last.op == "add" else None
        if norm is None:
            return None
        args = (last.args[0], norm.args[0])
        return Record("rms_norm_add", last.outs, args, norm.weights, norm.attrs), {norm.outs[0]}

    return rewrite(program, match)


def add_rms_norm(program: Program) -> Program:
    """Fuse `rms_norm(add(a, b))`, also where other records read the sum: sum and norm are written in one pass.

    The fused record stands in the place of the sum.
    """
    records, wiring = program.records, Wiring(program)
    out: list[Record] = []
    absorbed: set[int] = set()
    for index, record in enumerate(records):
        if index in absorbed:
            continue
        readers = wiring.readers[record.outs[0]] if record.op == "add" else []
        norm = next((i for i in readers if records[i].op == "rms_norm"), None)
        if norm is None:
            out.append(record)
            continue
        following = records[norm]
        absorbed.add(norm)
        outs = (record.outs[0], following.outs[0])
        out.append(Record("add_rms_norm", outs, record.args, following.weights, following.attrs))
    return replace(program, records=tuple(out))


FUSIONS = (
    Fusion(rms_norm_add),
    Fusion(add_rms_norm, after=("rms_norm_add", "linear_add")),
)
