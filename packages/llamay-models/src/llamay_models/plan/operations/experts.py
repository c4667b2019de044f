"""Mixtures of experts: the routing of a row to some of many small networks, and their outputs."""

import numpy as np

from llamay_models import arguments
from llamay_models.errors import PlanError
from llamay_models.plan.attributes import real, text, whole
from llamay_models.plan.operations.elementwise import ACT, UNARY, sigmoid, softplus
from llamay_models.plan.recorder import Recorder, stem
from llamay_models.plan.records import Doubles, Tensor, Value, matrix, vector
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Operation, Tensors

SMALLEST_SUM = 6.103515625e-5
"""2^-14: weights are divided by their sum, or by this number where the sum is smaller, as in llama.cpp."""


class Experts(Recorder):
    """Routing, and the experts that rows are routed to."""

    def route(
        self,
        logits: Value,
        k: int,
        bias: Tensor | None = None,
        *,
        kind: str = "softmax",
        groups: int = 1,
        groups_used: int = 1,
        norm: bool = True,
        scale: float = 1.0,
    ) -> tuple[Value, Value]:
        """Return the numbers of the k experts with the largest scores, largest first, and their weights.

        A score is `softmax(logits)`, `sigmoid(logits)` or `sqrt(softplus(logits))`, or with "softmax_chosen" the logit
        itself; there the weights are the softmax of the chosen logits. `bias`, (experts,), is added to the scores for
        the choice, and not to the weights. With several groups, experts are chosen from the `groups_used` groups in
        which the two largest scores have the largest sum. Of equal scores the lower number comes first. With `norm`
        the weights are divided by their sum; then they are multiplied by `scale`.

        Shazeer et al. 2017, https://arxiv.org/abs/1701.06538; groups and bias: DeepSeek-AI 2024,
        https://arxiv.org/abs/2412.19437.
        """
        weights = [] if bias is None else [self._weight("route", bias, 1, logits.width)]
        ids, shares = self._record(
            "route",
            [(k, f"{logits.name}.ids"), (k, f"{logits.name}.weights")],
            [logits],
            weights,
            kind=kind,
            k=k,
            groups=groups,
            groups_used=groups_used,
            norm=int(arguments.flag("route: norm", norm, error=PlanError)),
            scale=scale,
        )
        return ids, shares

    def experts(
        self,
        x: Value,
        ids: Value,
        weights: Value,
        gate: Tensor | None,
        up: Tensor,
        down: Tensor,
        *,
        experts: int,
        hidden: int,
        act: str = "silu",
    ) -> Value:
        """Sum over the chosen experts e, in their order, `weight * down[e] @ (act(gate[e] @ x) * (up[e] @ x))`.

        Without a gate the hidden values are `act(up[e] @ x)`. `gate`, `up`: (experts, hidden, x's width) and `down`:
        (experts, x's width, hidden); the matrices of all experts are stacked in one.
        """
        self._counts("experts", experts=experts, hidden=hidden)
        matrices = [] if gate is None else [self._stacked("experts", gate, experts, hidden, x.width)]
        matrices.append(self._stacked("experts", up, experts, hidden, x.width))
        matrices.append(self._stacked("experts", down, experts, x.width, hidden))
        name = stem(down.name)
        return self._emit("experts", x.width, name, [x, ids, weights], matrices, act=act, experts=experts)


# -- meanings


def _softmax(x: Doubles) -> Doubles:
    y: Doubles = np.exp(x - x.max(-1, keepdims=True))
    y /= y.sum(-1, keepdims=True)
    return y


def _largest(scores: Doubles, k: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """Return the numbers of the k largest scores, largest first; of equal scores the lower number comes first."""
    return np.argsort(-scores, kind="stable")[:k]


def _route(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles, Doubles]:
    logits, k, kind = x[0], a["k"], a["kind"]
    if kind == "softmax":
        score = _softmax(logits)
    elif kind == "sigmoid":
        score = sigmoid(logits)
    elif kind == "sqrt_softplus":
        score = np.sqrt(softplus(logits))
    else:
        score = logits
    ids, weights = np.zeros((len(logits), k)), np.zeros((len(logits), k))
    for row, own in enumerate(score):
        choice = own + vector(w[0]) if w else own
        if a["groups"] > 1:
            parts = choice.reshape(a["groups"], -1)
            best = np.sort(parts, axis=1)[:, -2:].sum(1)
            kept = np.full(parts.shape, -np.inf)
            for group in _largest(best, a["groups_used"]):
                kept[group] = parts[group]
            choice = kept.reshape(-1)
        chosen = _largest(choice, k)
        share = _softmax(own[chosen]) if kind == "softmax_chosen" else own[chosen]
        if a["norm"]:
            share = share / max(share.sum(), SMALLEST_SUM)
        ids[row], weights[row] = chosen, share * a["scale"]
    return ids, weights


def _experts(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    *gates, up, down = (matrix(each).reshape(a["experts"], -1, each.cols) for each in w)
    act, out = UNARY[a["act"]], np.zeros_like(x[0])
    for row, (value, ids, weights) in enumerate(zip(*x, strict=True)):
        for expert, weight in zip(ids.astype(int), weights, strict=True):
            hidden = up[expert] @ value
            hidden = act(gates[0][expert] @ value) * hidden if gates else act(hidden)
            out[row] += weight * (down[expert] @ hidden)
    return (out,)


# -- records


def _check_route(call: Call) -> None:
    a, logits = call.attrs, call.args[0]
    for out in call.outs:
        call.expect_width(out, a["k"], "k is")
    call.expect_weight(0, 1, logits.width)
    call.expect_parts(logits, a["groups"], "groups")
    if a["groups_used"] > a["groups"]:
        call.fail(f"{a['groups_used']} of {a['groups']} groups cannot be used")
    if a["k"] > logits.width // a["groups"] * a["groups_used"]:
        call.fail(f"{a['k']} experts cannot be chosen from the {logits.width} of {logits.name}")
    if a["norm"] not in (0, 1):
        call.fail(f"norm must be 0 or 1, not {a['norm']}")


def _check_experts(call: Call) -> None:
    x, ids, weights = call.args
    experts, hidden = call.attrs["experts"], call.weights[-1].cols
    call.expect_same(call.outs[0], x)
    call.expect_same(ids, weights)
    for index in range(len(call.weights) - 1):
        call.expect_weight(index, experts * hidden, x.width)
    call.expect_weight(len(call.weights) - 1, experts * x.width, hidden)
    if call.attrs["weigh_input"]:
        call.fail("weights of the input are not supported; weigh_input must be 0")


def _work(call: Call) -> int:
    one = sum(w.rows * w.cols for w in call.weights) // int(call.attrs["experts"])
    return one * call.args[1].width


OPERATIONS = (
    Operation(
        name="route",
        args=("logits",),
        weights=("bias?",),
        outs=("ids", "weights"),
        attrs={
            "kind": text("softmax", "sigmoid", "softmax_chosen", "sqrt_softplus"),
            "k": whole(low=1),
            "groups": whole(default=1, low=1),
            "groups_used": whole(default=1, low=1),
            "norm": whole(),
            "scale": real(),
        },
        check=_check_route,
        meaning=_route,
        row_by_row=True,
    ),
    Operation(
        name="experts",
        args=("x", "ids", "weights"),
        weights=("gate?", "up", "down"),
        attrs={"act": ACT, "experts": whole(low=1), "weigh_input": whole(default=0)},
        check=_check_experts,
        meaning=_experts,
        row_by_row=True,
        multiply_adds=_work,
    ),
)
