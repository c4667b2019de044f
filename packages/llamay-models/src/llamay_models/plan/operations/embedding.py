"""The first value of a row: a table's row for the row's token, position or type, or a vector that was handed in."""

import numpy as np

from llamay_models.errors import PlanError
from llamay_models.plan.recorder import Recorder, stem
from llamay_models.plan.records import Doubles, Tensor, Value
from llamay_models.plan.rows import Ints, Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Inputs, Operation, Tensors


class Embedding(Recorder):
    """Look-ups in tables."""

    def embed(self, w: Tensor, vocab: int, width: int) -> Value:
        """Return the table's row for the row's token; `w`: (vocab, width)."""
        table = self._weight("embed", w, vocab, width)
        return self._emit("embed", width, stem(w.name), (), [table])

    def embed_positions(self, w: Tensor, count: int, width: int) -> Value:
        """Return the table's row for the row's position, where positions are learned; `w`: (count, width)."""
        table = self._weight("embed_positions", w, count, width)
        return self._emit("embed_positions", width, stem(w.name), (), [table])

    def embed_types(self, w: Tensor, types: int, width: int) -> Value:
        """Return the table's row for the type of the row's token, 0 unless the step names one; `w`: (types, width)."""
        table = self._weight("embed_types", w, types, width)
        return self._emit("embed_types", width, stem(w.name), (), [table])

    def given(self, x: Value) -> Value:
        """Return x for a row that is a token, and the vector itself for a row that is a vector handed in.

        An architecture calls this once, on the scaled embeddings of its tokens, before positions, types or norms.
        """
        return self._emit("given", x.width, f"{x.name}.given", [x])


def _look_up(table: Tensor, ids: Ints, what: str) -> tuple[Doubles]:
    """Return the rows `ids` of a table. Raises PlanError for a row that the table does not have."""
    if len(ids) and ids.max() >= table.rows:
        raise PlanError(f"{table.name} has {table.rows} rows; there is none for the {what} {ids.max()}")
    return (np.asarray(table.dequantize()[ids], np.float64),)


def _tokens(rows: Rows) -> Ints:
    """Return each row's token, int (rows,); 0 where the row is a vector, whose token has no effect."""
    ids = np.array(rows.tokens, np.int64)
    ids[list(rows.vectors)] = 0
    return ids


def _given(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    out = x[0].copy()
    for row, vector in rows.vectors.items():
        if np.shape(vector) != out[row].shape:
            raise PlanError(
                f"given: the vector of row {row} has the shape {np.shape(vector)}; it must be {out[row].shape}"
            )
        out[row] = vector
    return (out,)


def _check_table(call: Call) -> None:
    call.expect_width(call.outs[0], call.weights[0].cols, "the table's columns are")


OPERATIONS = (
    Operation(
        name="embed",
        args=(),
        weights=("table",),
        check=_check_table,
        meaning=lambda rows, x, w, a: _look_up(w[0], _tokens(rows), "token"),
        inputs=lambda call: Inputs(tokens=call.weights[0].rows),
        adapts="table",
    ),
    Operation(
        name="embed_positions",
        args=(),
        weights=("table",),
        check=_check_table,
        meaning=lambda rows, x, w, a: _look_up(w[0], rows.position(), "position"),
        inputs=lambda call: Inputs(positions=call.weights[0].rows, axes=1),
    ),
    Operation(
        name="embed_types",
        args=(),
        weights=("table",),
        check=_check_table,
        meaning=lambda rows, x, w, a: _look_up(w[0], rows.type(), "type"),
        inputs=lambda call: Inputs(types=call.weights[0].rows),
    ),
    Operation(
        name="given",
        meaning=_given,
        inputs=lambda call: Inputs(vector=call.outs[0].width),
    ),
)
