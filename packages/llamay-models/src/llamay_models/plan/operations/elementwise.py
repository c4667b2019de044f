"""Operations on each number of a row by itself, and on the numbers of two rows, pair by pair."""

import math
from collections.abc import Callable

import numpy as np

from llamay_models.plan.attributes import real, text
from llamay_models.plan.recorder import Recorder
from llamay_models.plan.records import Doubles, Tensor, Value, vector
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Operation, Tensors

# -- functions of one number


def silu(x: Doubles) -> Doubles:
    """Return `x sigmoid(x)` (Elfwing et al. 2017, https://arxiv.org/abs/1702.03118)."""
    with np.errstate(over="ignore"):
        y: Doubles = x / (1 + np.exp(-x))
    return y


def sigmoid(x: Doubles) -> Doubles:
    """Return `1 / (1 + e^-x)`."""
    with np.errstate(over="ignore"):
        y: Doubles = 1 / (1 + np.exp(-x))
    return y


def gelu_tanh(x: Doubles) -> Doubles:
    """Return GELU's approximation by tanh (Hendrycks and Gimpel 2016, https://arxiv.org/abs/1606.08415)."""
    y: Doubles = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return y


_erf = np.vectorize(math.erf, otypes=[np.float64])


def gelu_erf(x: Doubles) -> Doubles:
    """Return GELU itself: x times the standard normal distribution function of x."""
    y: Doubles = x / 2 * (1 + _erf(x / math.sqrt(2)))
    return y


def softplus(x: Doubles) -> Doubles:
    """Return `log(1 + e^x)`, above 20 x itself, as other engines do: the two are equal there in single precision."""
    return np.where(x > 20, x, np.log1p(np.exp(np.minimum(x, 20))))


UNARY: dict[str, Callable[[Doubles], Doubles]] = {
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu_erf": gelu_erf,
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "softplus": softplus,
    "exp": np.exp,
}
"""The kinds of `unary`, which are also the activations of products."""

ACT = text(*UNARY)
"""The attribute of an operation that applies one kind of `unary`."""


class Elementwise(Recorder):
    """Sums, products and functions of one number."""

    def add(self, a: Value, b: Value) -> Value:
        """Sum: `a + b`."""
        return self._emit("add", a.width, f"{b.name}.add", [a, b])

    def mul(self, a: Value, b: Value) -> Value:
        """Product, value by value: `a * b`."""
        return self._emit("mul", a.width, f"{b.name}.mul", [a, b])

    def mul_heads(self, x: Value, g: Value) -> Value:
        """Return x, cut into as many equal parts as g has values, with each part times its value of g."""
        return self._emit("mul_heads", x.width, f"{x.name}.mul_heads", [x, g])

    def scale(self, x: Value, by: float) -> Value:
        """`x * by`."""
        return self._emit("scale", x.width, f"{x.name}.scale", [x], by=by)

    def affine(self, x: Value, w: Tensor | None, b: Tensor | None = None, parts: int | None = None) -> Value:
        """`x * w + b`, where w or b may be left out.

        w and b have a value for each of `parts` equal parts of the row: (parts,). Without `parts`, each number of the
        row is a part; other usual counts are the number of heads, and 1.
        """
        parts = x.width if parts is None else parts
        self._parts("affine", x, parts, "parts")
        weights = [self._weight("affine", v, 1, parts) for v in (w, b) if v is not None]
        has = ("w" if w is not None else "") + ("b" if b is not None else "")
        return self._emit("affine", x.width, f"{x.name}.affine", [x], weights, has=has)

    def unary(self, x: Value, kind: str) -> Value:
        """Return a function of each number.

        `sigmoid`: `1 / (1 + e^-x)`; `silu`: `x sigmoid(x)`; `gelu_erf`: `x/2 (1 + erf(x / sqrt(2)))`; `gelu_tanh`:
        `x/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`; `gelu_quick`: `x sigmoid(1.702 x)`; `relu`: `max(x, 0)`;
        `relu2`: `max(x, 0)^2`; `softplus`: `log(1 + e^x)`; `tanh`; `exp`.
        """
        return self._emit("unary", x.width, f"{x.name}.{kind}", [x], kind=kind)

    def silu(self, x: Value) -> Value:
        """`unary` of kind "silu"."""
        return self.unary(x, "silu")

    def gelu_tanh(self, x: Value) -> Value:
        """`unary` of kind "gelu_tanh"."""
        return self.unary(x, "gelu_tanh")

    def softcap(self, x: Value, cap: float) -> Value:
        """`cap * tanh(x / cap)`."""
        return self._emit("softcap", x.width, f"{x.name}.softcap", [x], cap=cap)


def _by_parts(x: Doubles, parts: Doubles) -> Doubles:
    """Repeat the values of the parts of rows, (..., parts), so that each number of a row has its part's value."""
    return np.repeat(parts, x.shape[-1] // parts.shape[-1], axis=-1)


def _affine(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    values = iter(w)
    y = x[0]
    if "w" in a["has"]:
        y = y * _by_parts(y, vector(next(values)))
    if "b" in a["has"]:
        y = y + _by_parts(y, vector(next(values)))
    return (y,)


def _check_affine(call: Call) -> None:
    call.expect_width(call.outs[0], call.args[0].width, "its input has")
    if len(call.weights) != len(call.attrs["has"]):
        call.fail(f"has is {call.attrs['has']!r}, but there are {len(call.weights)} weights")
    for index, w in enumerate(call.weights):
        call.expect_weight(index, 1, w.cols)
        call.expect_parts(call.args[0], w.cols, "parts")


def _check_pair(call: Call) -> None:
    call.expect_same(*call.args)
    call.expect_width(call.outs[0], call.args[0].width, "its inputs have")


def _check_mul_heads(call: Call) -> None:
    call.expect_parts(call.args[0], call.args[1].width, "parts")
    call.expect_width(call.outs[0], call.args[0].width, "its input has")


OPERATIONS = (
    Operation(
        name="add",
        args=("a", "b"),
        check=_check_pair,
        row_by_row=True,
        meaning=lambda rows, x, w, a: (x[0] + x[1],),
    ),
    Operation(
        name="mul",
        args=("a", "b"),
        check=_check_pair,
        row_by_row=True,
        meaning=lambda rows, x, w, a: (x[0] * x[1],),
    ),
    Operation(
        name="mul_heads",
        args=("x", "g"),
        check=_check_mul_heads,
        row_by_row=True,
        meaning=lambda rows, x, w, a: (x[0] * _by_parts(x[0], x[1]),),
    ),
    Operation(
        name="scale",
        attrs={"by": real()},
        row_by_row=True,
        meaning=lambda rows, x, w, a: (x[0] * a["by"],),
    ),
    Operation(
        name="affine",
        weights=("w or b", "b?"),
        attrs={"has": text("w", "b", "wb")},
        check=_check_affine,
        row_by_row=True,
        meaning=_affine,
    ),
    Operation(
        name="unary",
        attrs={"kind": ACT},
        row_by_row=True,
        meaning=lambda rows, x, w, a: (UNARY[a["kind"]](x[0]),),
    ),
    Operation(
        name="softcap",
        attrs={"cap": real(above=0)},
        row_by_row=True,
        meaning=lambda rows, x, w, a: (a["cap"] * np.tanh(x[0] / a["cap"]),),
    ),
)
