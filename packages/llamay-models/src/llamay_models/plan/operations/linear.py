"""Products with matrices, and the fusions around them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from llamay_models.arguments import whole
from llamay_models.errors import PlanError
from llamay_models.plan.attributes import Attr
from llamay_models.plan.operations.elementwise import ACT, UNARY
from llamay_models.plan.recorder import Recorder, stem
from llamay_models.plan.records import Doubles, Program, Record, Tensor, Value, matrix, vector
from llamay_models.plan.rewriting import Wiring, rewrite
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Fusion, Operation, Tensors


class Linear(Recorder):
    """Products with matrices."""

    def linear(self, x: Value, w: Tensor, width: int, bias: Tensor | None = None) -> Value:
        """`w @ x`, plus `bias` where there is one; `w`: (width, x's width), `bias`: (width,)."""
        weights = [self._weight("linear", w, width, x.width)]
        if bias is not None:
            weights.append(self._weight("linear", bias, 1, width))
        return self._emit("linear", width, stem(w.name), [x], weights)

    def linear_split(
        self, x: Value, w: Tensor, widths: Sequence[int], bias: Tensor | None = None
    ) -> tuple[Value, ...]:
        """`linear` with several matrices that are stacked in one; the product with each is a value of its own.

        `w`: (sum of widths, x's width), `bias`: (sum of widths,). Each matrix is recorded as a `linear` with its rows.
        """
        for number, width in enumerate(widths):
            whole(f"linear_split: widths[{number}]", width, 1, error=PlanError)
        total, begin, values = sum(widths), 0, []
        for number, width in enumerate(widths):
            part = range(begin, begin + width)
            weights = [self._part("linear_split", w, total, x.width, part)]
            if bias is not None:
                weights.append(self._part("linear_split", bias, 1, total, part))
            values.append(self._emit("linear", width, f"{stem(w.name)}.{number}", [x], weights))
            begin += width
        return tuple(values)


# -- meanings


def product(x: Doubles, w: Tensor, bias: Tensor | None = None) -> Doubles:
    """Return `w @ x + bias` of each row."""
    y: Doubles = x @ matrix(w).T
    return y if bias is None else y + vector(bias)


def _group(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles, ...]:
    rest = iter(w)
    return tuple(product(x[0], next(rest), next(rest) if biased else None) for biased in a["bias"])


def _glu(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    return (UNARY[a["act"]](product(x[0], w[0])) * product(x[0], w[1]),)


# -- records


def _check(call: Call) -> None:
    """Check the matrix against the last argument, and the bias and a residual against the product."""
    out = call.outs[0]
    call.expect_weight(0, out.width, call.args[-1].width)
    call.expect_weight(1, 1, out.width)
    if len(call.args) > 1:
        call.expect_same(call.args[0], out)


def _check_glu(call: Call) -> None:
    for index in range(2):
        call.expect_weight(index, call.outs[0].width, call.args[0].width)


def _check_group(call: Call) -> None:
    bias, index = call.attrs["bias"], 0
    if len(bias) != len(call.outs) or len(bias) + sum(bias) != len(call.weights):
        call.fail(f"{len(call.outs)} products have {len(call.weights)} weights and bias={bias!r}")
    for out, biased in zip(call.outs, bias, strict=True):
        call.expect_weight(index, out.width, call.args[0].width)
        if biased:
            call.expect_weight(index + 1, 1, out.width)
        index += 1 + biased


def _work(call: Call) -> int:
    return call.args[-1].width * sum(out.width for out in call.outs)


_WEIGHTS = ("w", "bias?")

OPERATIONS = (
    Operation(
        name="linear",
        weights=_WEIGHTS,
        check=_check,
        meaning=lambda rows, x, w, a: (product(x[0], *w),),
        row_by_row=True,
        multiply_adds=_work,
        adapts="product",
    ),
    Operation(
        name="linear_group",
        weights=("w", "bias?", "..."),
        outs=("y", "..."),
        attrs={"bias": Attr("flags")},
        means="several `linear` of one x; `bias` has a flag for each product, set where the product has a bias",
        check=_check_group,
        meaning=_group,
        multiply_adds=_work,
    ),
    Operation(
        name="glu",
        weights=("gate", "up"),
        attrs={"act": ACT},
        means="`mul(unary(linear(x, gate), act), linear(x, up))`",
        check=_check_glu,
        meaning=_glu,
        multiply_adds=lambda call: 2 * _work(call),
    ),
    Operation(
        name="linear_add",
        args=("residual", "x"),
        weights=_WEIGHTS,
        means="`add(residual, linear(x, w, bias))`",
        check=_check,
        meaning=lambda rows, x, w, a: (x[0] + product(x[1], *w),),
        multiply_adds=_work,
    ),
    Operation(
        name="linear_act",
        weights=_WEIGHTS,
        attrs={"act": ACT},
        means="`unary(linear(x, w, bias), act)`",
        check=_check,
        meaning=lambda rows, x, w, a: (UNARY[a["act"]](product(x[0], *w)),),
        multiply_adds=_work,
    ),
)


# -- fusions


def glu(program: Program) -> Program:
    """Fuse `mul(act(linear(x, gate)), linear(x, up))` into one operation that reads x once."""

    def match(wiring: Wiring, last: Record) -> tuple[Record, set[int]] | None:
        if last.op != "mul":
            return None
        act = wiring.made(last.args[0], "unary")
        up = wiring.made(last.args[1], "linear")
        gate = wiring.made(act.args[0], "linear") if act else None
        if act is None or up is None or gate is None or gate.args != up.args:
            return None
        if len(gate.weights) > 1 or len(up.weights) > 1:
            return None  # biases are not part of the fused operation
        weights = (gate.weights[0], up.weights[0])
        record = Record("glu", last.outs, gate.args, weights, {"act": act.attrs["kind"]})
        return record, {gate.outs[0], act.outs[0], up.outs[0]}

    return rewrite(program, match)


def linear_add(program: Program) -> Program:
    """Fuse `add(residual, linear(x, w))`, with a bias or without: adding while the product is written."""

    def match(wiring: Wiring, last: Record) -> tuple[Record, set[int]] | None:
        product = wiring.made(last.args[1], "linear") if last.op == "add" else None
        if product is None:
            return None
        args = (last.args[0], product.args[0])
        return Record("linear_add", last.outs, args, product.weights, {}), {product.outs[0]}

    return rewrite(program, match)


def linear_act(program: Program) -> Program:
    """Fuse `act(linear(x, w))`, with a bias or without: a thread applies `act` to values that it has just computed."""

    def match(wiring: Wiring, last: Record) -> tuple[Record, set[int]] | None:
        product = wiring.made(last.args[0], "linear") if last.op == "unary" else None
        if product is None:
            return None
        attrs = {"act": last.attrs["kind"]}
        return Record("linear_act", last.outs, product.args, product.weights, attrs), {product.outs[0]}

    return rewrite(program, match)


def linear_group(program: Program) -> Program:
    """Group the products of one value: the value is quantized once, and the threads share one piece of work.

    The group stands in the place of its first product.
    """
    groups: dict[int, list[Record]] = defaultdict(list)
    for record in program.records:
        if record.op == "linear":
            groups[record.args[0]].append(record)
    firsts = {g[0].outs[0]: g for g in groups.values() if len(g) > 1}
    grouped = {r.outs[0] for g in firsts.values() for r in g}
    out: list[Record] = []
    for record in program.records:
        if record.op != "linear" or record.outs[0] not in grouped:
            out.append(record)
        elif (group := firsts.get(record.outs[0])) is not None:
            weights = tuple(w for r in group for w in r.weights)
            bias = tuple(len(r.weights) > 1 for r in group)
            outs = tuple(r.outs[0] for r in group)
            out.append(Record("linear_group", outs, record.args, weights, {"bias": bias}))
    return replace(program, records=tuple(out))


FUSIONS = (
    Fusion(glu),
    Fusion(linear_add, after=("glu",)),
    Fusion(linear_act, after=("glu",)),
    Fusion(linear_group, after=("glu", "linear_add", "linear_act")),
)
