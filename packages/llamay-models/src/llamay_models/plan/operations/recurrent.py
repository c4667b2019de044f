"""Operations that carry a state of fixed size from row to row of a text."""

import numpy as np

from llamay_models.errors import PlanError
from llamay_models.plan.attributes import text, whole
from llamay_models.plan.recorder import Recorder
from llamay_models.plan.records import Doubles, Tensor, Value, matrix, vector
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Kept, Memory, Operation, Step, Tensors


class Recurrent(Recorder):
    """A short convolution, and a scan over a matrix for each head."""

    def conv(self, layer: int, x: Value, w: Tensor, taps: int, bias: Tensor | None = None) -> Value:
        """Return for each channel c the sum over j of `w[c, j]` times x of `taps - 1 - j` rows before, plus its bias.

        Rows before the text's first row are zeros. `w`: (x's width, taps), `bias`: (x's width,). The layer keeps the
        last `taps - 1` inputs.
        """
        self._counts("conv", taps=taps)
        if taps < 2:
            raise PlanError(f"conv: a convolution of {taps} taps keeps nothing; use affine")
        weights = [self._weight("conv", w, x.width, taps)]
        if bias is not None:
            weights.append(self._weight("conv", bias, 1, x.width))
        return self._emit("conv", x.width, f"blk.{layer}.conv", [x], weights, layer=layer)

    def scan(
        self,
        layer: int,
        r: Value,
        w: Value,
        k: Value,
        v: Value,
        a: Value | None = None,
        b: Value | None = None,
        *,
        heads: int,
        groups: int | None = None,
        map: str = "grouped",  # noqa: A002
    ) -> Value:
        """Update the state of each head, a matrix S of (v_dim, k_dim), and read it: (heads * v_dim,).

        S is zeros before the text's first row. Each row sets `S = S diag(w) + v k^T`, with a and b plus
        `(S_before a) b^T`, and reads `y = S r`. r and k: (groups * k_dim,), shared by the heads of a group: head h
        belongs to group `h // (heads / groups)` with `map` "grouped", to group `h % groups` with "tiled". w: (heads,),
        a decay for each head, or (heads * k_dim,), a decay for each column of S; v: (heads * v_dim,); a, b:
        (heads * k_dim,).

        Scans of this form are Mamba (Gu and Dao 2023, https://arxiv.org/abs/2312.00752), Mamba-2
        (https://arxiv.org/abs/2405.21060), gated delta rules (https://arxiv.org/abs/2412.06464) and RWKV-7
        (https://arxiv.org/abs/2503.14456).
        """
        groups = heads if groups is None else groups
        self._counts("scan", heads=heads, groups=groups)
        if heads % groups:
            raise PlanError(f"scan: {heads} heads do not divide among {groups} groups")
        if (a is None) != (b is None):
            raise PlanError("scan: a and b come together or not at all")
        k_dim, v_dim = self._parts("scan", k, groups, "groups"), self._parts("scan", v, heads)
        args = [r, w, k, v] if a is None or b is None else [r, w, k, v, a, b]
        return self._emit(
            "scan",
            heads * v_dim,
            f"blk.{layer}.scan",
            args,
            layer=layer,
            heads=heads,
            groups=groups,
            k_dim=k_dim,
            v_dim=v_dim,
            map=map,
        )


# -- meanings: one row, and a text as its rows one after the other


def _conv_step(kept: Kept, x: Arrays, w: Tensors, a: Attrs) -> tuple[Kept, tuple[Doubles]]:
    taps = matrix(w[0])
    window = np.concatenate([kept[0].reshape(-1, x[0].shape[1]), x[0]])  # oldest first
    y = (taps.T * window).sum(0)
    if len(w) > 1:
        y = y + vector(w[1])
    return (window[1:].reshape(-1),), (y[None],)


def _scan_step(kept: Kept, x: Arrays, w: Tensors, a: Attrs) -> tuple[Kept, tuple[Doubles]]:
    heads, groups, k_dim, v_dim = a["heads"], a["groups"], a["k_dim"], a["v_dim"]
    r, k = (x[i].reshape(groups, k_dim) for i in (0, 2))
    decay, v = x[1].reshape(heads, -1), x[3].reshape(heads, v_dim)
    state, y = kept[0].reshape(heads, v_dim, k_dim).copy(), np.zeros((heads, v_dim))
    for h in range(heads):
        group = h // (heads // groups) if a["map"] == "grouped" else h % groups
        before = state[h].copy()
        state[h] = before * decay[h] + np.outer(v[h], k[group])
        if len(x) > 4:
            state[h] += np.outer(before @ x[4].reshape(heads, k_dim)[h], x[5].reshape(heads, k_dim)[h])
        y[h] = state[h] @ r[group]
    return (state.reshape(-1),), (y.reshape(1, -1),)


def _texts(step: Step, rows: Rows, x: Arrays, w: Tensors, a: Attrs, size: int) -> tuple[Doubles]:
    out = []
    for span in rows.spans:
        kept: Kept = (np.zeros(size),)
        for row in span:
            kept, outs = step(kept, [each[row : row + 1] for each in x], w, a)
            out.append(outs[0])
    return (np.concatenate(out),)


def _conv(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    return _texts(_conv_step, rows, x, w, a, (w[0].cols - 1) * x[0].shape[1])


def _scan(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    return _texts(_scan_step, rows, x, w, a, a["heads"] * a["v_dim"] * a["k_dim"])


# -- records


def _check_conv(call: Call) -> None:
    x = call.args[0]
    call.expect_same(call.outs[0], x)
    call.expect_weight(0, x.width, call.weights[0].cols)
    call.expect_weight(1, 1, x.width)
    if call.weights[0].cols < 2:
        call.fail(f"{call.weights[0].name} has {call.weights[0].cols} taps; it must have 2 or more")


def _check_scan(call: Call) -> None:
    a = call.attrs
    if a["heads"] % a["groups"]:
        call.fail(f"{a['heads']} heads do not divide among {a['groups']} groups")
    shared, own = a["groups"] * a["k_dim"], a["heads"] * a["k_dim"]
    r, w, k, v, *update = call.args
    call.expect_width(r, shared, "groups * k_dim is")
    call.expect_width(k, shared, "groups * k_dim is")
    if w.width != a["heads"]:
        call.expect_width(w, own, "heads * k_dim is")
    call.expect_width(v, a["heads"] * a["v_dim"], "heads * v_dim is")
    call.expect_width(call.outs[0], a["heads"] * a["v_dim"], "heads * v_dim is")
    if len(update) == 1:
        call.fail("a and b come together or not at all")
    for value in update:
        call.expect_width(value, own, "heads * k_dim is")


def _scan_work(call: Call) -> int:
    a = call.attrs
    per_number = 5 if len(call.args) > 4 else 3
    return per_number * int(a["heads"] * a["v_dim"] * a["k_dim"])


OPERATIONS = (
    Operation(
        name="conv",
        weights=("w", "bias?"),
        attrs={"layer": whole()},
        check=_check_conv,
        meaning=_conv,
        multiply_adds=lambda call: call.weights[0].rows * call.weights[0].cols,
        memory=lambda call: Memory(
            "state", call.attrs["layer"], k_dim=(call.weights[0].cols - 1) * call.weights[0].rows
        ),
        step=_conv_step,
    ),
    Operation(
        name="scan",
        args=("r", "w", "k", "v", "a?", "b?"),
        attrs={
            "layer": whole(),
            "heads": whole(low=1),
            "groups": whole(low=1),
            "k_dim": whole(low=1),
            "v_dim": whole(low=1),
            "map": text("grouped", "tiled"),
        },
        check=_check_scan,
        meaning=_scan,
        multiply_adds=_scan_work,
        memory=lambda call: Memory(
            "state", call.attrs["layer"], v_dim=call.outs[0].width * call.attrs["k_dim"]
        ),
        step=_scan_step,
    ),
)
