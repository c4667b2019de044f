"""Parts of rows, joined rows, and the selection of rows."""

import numpy as np

from llamay_models.plan.attributes import text, whole
from llamay_models.plan.recorder import Recorder
from llamay_models.plan.records import Doubles, Value
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Operation, Tensors


class Shape(Recorder):
    """Parts of rows, joined rows, chosen rows."""

    def columns(self, x: Value, start: int, width: int, heads: int = 1) -> Value:
        """Return the `width` values from `start` on of each of `heads` equal parts of x."""
        self._counts("columns", width=width, heads=heads)
        name = f"{x.name}.{start}"
        return self._emit("columns", heads * width, name, [x], start=start, width=width, heads=heads)

    def concat(self, a: Value, b: Value, heads: int = 1) -> Value:
        """Return each of `heads` equal parts of a, followed by that part of b."""
        return self._emit("concat", a.width + b.width, f"{a.name}.concat", [a, b], heads=heads)

    def select(self, x: Value) -> Value:
        """Return only the rows whose output is wanted. Later operations combine selected values only."""
        return self._emit("select", x.width, f"{x.name}.select", [x])

    def pool(self, x: Value, kind: str) -> Value:
        """Return for each row whose output is wanted x pooled over the row's text.

        `kind` "mean" is the mean of all rows of the text, "cls" its first row, and "last" its last. The text must be
        one step.
        """
        return self._emit("pool", x.width, f"{x.name}.pool", [x], kind=kind)


# -- meanings


def _columns(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    parts = x[0].reshape(len(x[0]), a["heads"], -1)
    return (parts[:, :, a["start"] : a["start"] + a["width"]].reshape(len(x[0]), -1),)


def _concat(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    parts = [each.reshape(len(each), a["heads"], -1) for each in x]
    return (np.concatenate(parts, axis=2).reshape(len(x[0]), -1),)


def _pool(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    out = np.zeros((len(rows.outputs), x[0].shape[1]))
    for i, row in enumerate(rows.outputs):
        span = rows.span_of(int(row))
        text = x[0][span.start : span.stop]
        out[i] = text.mean(0) if a["kind"] == "mean" else text[0 if a["kind"] == "cls" else -1]
    return (out,)


# -- records


def _check_columns(call: Call) -> None:
    x, a = call.args[0], call.attrs
    call.expect_parts(x, a["heads"])
    size = x.width // a["heads"]
    if a["start"] + a["width"] > size:
        call.fail(f"{a['width']} values from {a['start']} on, but a head of {x.name} has {size}")
    call.expect_width(call.outs[0], a["heads"] * a["width"], "heads * width is")


def _check_concat(call: Call) -> None:
    for value in call.args:
        call.expect_parts(value, call.attrs["heads"])
    call.expect_width(call.outs[0], sum(v.width for v in call.args), "its inputs have together")


_HEADS = {"heads": whole(low=1)}

OPERATIONS = (
    Operation(
        name="columns",
        attrs={"start": whole(), "width": whole(low=1), **_HEADS},
        check=_check_columns,
        meaning=_columns,
        row_by_row=True,
    ),
    Operation(
        name="concat",
        args=("a", "b"),
        attrs=_HEADS,
        check=_check_concat,
        meaning=_concat,
        row_by_row=True,
    ),
    Operation(
        name="select",
        meaning=lambda rows, x, w, a: (x[0][rows.outputs],),
        rows="wanted",
    ),
    Operation(
        name="pool",
        attrs={"kind": text("mean", "cls", "last")},
        meaning=_pool,
        rows="wanted",
        whole_text=lambda a: True,
    ),
)
