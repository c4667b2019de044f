"""`Trace`: the meaning of the vocabulary that records a plan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from llamay_models.errors import PlanError
from llamay_models.plan._records import Part, Program, Record, Tensor, Value
from llamay_models.plan._rope import Rope


class Trace:
    """Records each call, and computes nothing.

    Widths and shapes are checked, so that a mistake in an architecture is an error that names the
    operation and both sizes. The methods are the vocabulary: their docstrings say what each operation
    means for one row. `Reference` has the same methods and computes it.
    """

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.widths: list[int] = []
        self.names: list[str] = []
        self.tensors: list[Tensor] = []
        self._numbers: dict[str, int] = {}
        self._selected: Value | None = None

    def program(self) -> Program:
        """Return what was recorded. Raises PlanError if nothing was."""
        if not self.records:
            raise PlanError("a plan needs at least one operation")
        return Program(tuple(self.records), tuple(self.widths), tuple(self.tensors), tuple(self.names))

    # -- operations with weights

    def embed(self, w: Tensor, vocab: int, width: int) -> Value:
        """Return the table's row of the row's token; `w`: (vocab, width)."""
        table = self._weight("embed", w, vocab, width)
        return self._emit("embed", width, _stem(w.name), (), (table,))

    def embed_positions(self, w: Tensor, count: int, width: int) -> Value:
        """Return the table's row of the row's position, for positions that were learned; `w`: (count, width)."""
        table = self._weight("embed_positions", w, count, width)
        return self._emit("embed_positions", width, _stem(w.name), (), (table,))

    def linear(self, x: Value, w: Tensor, width: int, bias: Tensor | None = None) -> Value:
        """`w @ x`, plus `bias` where there is one; `w`: (width, x's width), `bias`: (width,)."""
        weights = [self._weight("linear", w, width, x.width)]
        if bias is not None:
            weights.append(self._weight("linear", bias, 1, width))
        return self._emit("linear", width, _stem(w.name), (x,), tuple(weights))

    def linear_split(
        self, x: Value, w: Tensor, widths: Sequence[int], bias: Tensor | None = None
    ) -> tuple[Value, ...]:
        """`linear` with a matrix in which several lie on top of each other, as one value for each.

        `w`: (sum of widths, x's width), `bias`: (sum of widths,). Recorded as a `linear` of each part's rows.
        """
        total, begin, values = sum(widths), 0, []
        for number, width in enumerate(widths):
            part = range(begin, begin + width)
            weights = [self._part("linear_split", w, total, x.width, part)]
            if bias is not None:
                weights.append(self._part("linear_split", bias, 1, total, part))
            name = f"{_stem(w.name)}.{number}"
            values.append(self._emit("linear", width, name, (x,), tuple(weights)))
            begin += width
        return tuple(values)

    def layer_norm(self, x: Value, w: Tensor, bias: Tensor | None, eps: float) -> Value:
        """`(x - mean(x)) / sqrt(variance(x) + eps) * w`, plus `bias` where there is one; both: (x's width,).

        Ba, Kiros and Hinton 2016, https://arxiv.org/abs/1607.06450.
        """
        weights = [self._weight("layer_norm", w, 1, x.width)]
        if bias is not None:
            weights.append(self._weight("layer_norm", bias, 1, x.width))
        return self._emit("layer_norm", x.width, _stem(w.name), (x,), tuple(weights), eps=float(eps))

    def rms_norm(self, x: Value, w: Tensor, eps: float, heads: int = 1) -> Value:
        """`x / sqrt(mean(x^2) + eps) * w` in each of `heads` parts of the row; `w`: (x's width / heads,).

        Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467.
        """
        if heads < 1 or x.width % heads:
            raise PlanError(
                f"rms_norm: {x.name} has {x.width} values, which do not divide into {heads} heads"
            )
        weight = self._weight("rms_norm", w, 1, x.width // heads)
        return self._emit("rms_norm", x.width, _stem(w.name), (x,), (weight,), eps=float(eps))

    def rope(self, x: Value, heads: int, rope: Rope, factors: Tensor | None = None) -> Value:
        """Rotate pairs of each head by the row's position times a frequency.

        Su et al. 2021, https://arxiv.org/abs/2104.09864. `factors`, (rotated dimensions / 2,), divide the
        frequencies; they are read when the plan is made.
        """
        if heads < 1 or x.width % heads:
            raise PlanError(f"rope: {x.name} has {x.width} values, which do not divide into {heads} heads")
        head_dim = x.width // heads
        if rope.dims > head_dim:
            raise PlanError(f"rope: rotates {rope.dims} dimensions but a head of {x.name} has {head_dim}")
        frequencies = rope.frequencies(self._constant("rope", factors, rope.dims // 2))
        return self._emit(
            "rope",
            x.width,
            f"{x.name}.rope",
            (x,),
            head_dim=head_dim,
            style=rope.style,
            freqs=frequencies,
            factor=rope.factor,
        )

    # -- attention

    def attention(
        self,
        layer: int,
        q: Value,
        k: Value,
        v: Value,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
    ) -> Value:
        """Causal attention of this row over everything `layer` has seen in its context, this row included.

        Query head `h` reads key/value head `h // (heads / kv_heads)`. `window` is how many positions a row
        may look back, itself included; 0 for all. `softcap` bounds the scores by `cap * tanh(s / cap)`; 0
        for none.
        """
        if heads < 1 or kv_heads < 1 or heads % kv_heads:
            raise PlanError(f"attention: {heads} query heads do not divide among {kv_heads} key/value heads")
        for value, count in ((q, heads), (k, kv_heads), (v, kv_heads)):
            if value.width % count:
                raise PlanError(f"attention: {value.name} has {value.width} values for {count} heads")
        k_dim, v_dim = k.width // kv_heads, v.width // kv_heads
        if q.width != heads * k_dim:
            raise PlanError(
                f"attention: a query head has {q.width // heads} values but a key head has {k_dim}"
            )
        return self._emit(
            "attention",
            heads * v_dim,
            f"blk.{layer}.attention",
            (q, k, v),
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            k_dim=k_dim,
            v_dim=v_dim,
            scale=float(scale),
            window=int(window),
            softcap=float(softcap),
        )

    # -- operations on values

    def add(self, a: Value, b: Value) -> Value:
        """Sum: `a + b`."""
        return self._pair("add", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """Product, value by value: `a * b`."""
        return self._pair("mul", a, b)

    def scale(self, x: Value, by: float) -> Value:
        """`x * by`."""
        return self._emit("scale", x.width, f"{x.name}.scale", (x,), by=float(by))

    def silu(self, x: Value) -> Value:
        """`x / (1 + exp(-x))`."""
        return self._emit("silu", x.width, f"{x.name}.silu", (x,))

    def gelu_tanh(self, x: Value) -> Value:
        """Return the tanh approximation of GELU: `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`."""
        return self._emit("gelu_tanh", x.width, f"{x.name}.gelu_tanh", (x,))

    def softcap(self, x: Value, cap: float) -> Value:
        """`cap * tanh(x / cap)`."""
        return self._emit("softcap", x.width, f"{x.name}.softcap", (x,), cap=float(cap))

    def select(self, x: Value) -> Value:
        """Only the rows whose output is wanted. What follows may only combine values that were selected."""
        return self._emit("select", x.width, f"{x.name}.select", (x,))

    # -- how it is recorded

    def _pair(self, op: str, a: Value, b: Value) -> Value:
        if a.width != b.width:
            raise PlanError(f"{op}: {a.name} has {a.width} values but {b.name} has {b.width}")
        return self._emit(op, a.width, f"{b.name}.{op}", (a, b))

    def _expect(self, op: str, w: Tensor, rows: int, cols: int) -> None:
        if (w.rows, w.cols) != (rows, cols):
            raise PlanError(
                f"{op}: {w.name} is {_shape(w.rows, w.cols)} but {_shape(rows, cols)} is needed here"
            )

    def _weight(self, op: str, w: Tensor, rows: int, cols: int) -> int:
        self._expect(op, w, rows, cols)
        return self._number(w)

    def _part(self, op: str, w: Tensor, rows: int, cols: int, part: range) -> int:
        """Some rows of a matrix, some values of a vector."""
        self._expect(op, w, rows, cols)
        return self._number(Part(w, part.start, part.stop))

    def _number(self, w: Tensor) -> int:
        if w.name not in self._numbers:
            self._numbers[w.name] = len(self.tensors)
            self.tensors.append(w)
        return self._numbers[w.name]

    def _constant(
        self, op: str, w: Tensor | None, count: int
    ) -> np.ndarray[Any, np.dtype[np.float32]] | None:
        if w is None:
            return None
        if (w.rows, w.cols) != (1, count):
            raise PlanError(
                f"{op}: {w.name} is {_shape(w.rows, w.cols)} but {_shape(1, count)} is needed here"
            )
        return w.dequantize().reshape(-1)

    def _emit(
        self,
        op: str,
        width: int,
        name: str,
        args: tuple[Value, ...],
        weights: tuple[int, ...] = (),
        **attrs: Any,
    ) -> Value:
        out = Value(len(self.widths), width, name)
        self.widths.append(width)
        self.names.append(name)
        self.records.append(Record(op, (out.id,), tuple(a.id for a in args), weights, attrs))
        return out


def _stem(name: str) -> str:
    return name.removesuffix(".weight")


def _shape(rows: int, cols: int) -> str:
    return f"a vector of {cols}" if rows == 1 else f"{rows} x {cols}"
