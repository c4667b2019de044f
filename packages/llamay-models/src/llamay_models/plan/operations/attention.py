"""Attention of a row over the keys and values that its layer keeps of the row's text."""

import numpy as np

from llamay_models import arguments
from llamay_models.errors import PlanError
from llamay_models.plan.attributes import real, text, whole
from llamay_models.plan.recorder import Recorder
from llamay_models.plan.records import Doubles, Value
from llamay_models.plan.rows import Rows
from llamay_models.plan.schema import Arrays, Attrs, Call, Kept, Memory, Operation, Tensors


class Attention(Recorder):
    """Attention."""

    def attention(
        self,
        layer: int,
        q: Value,
        k: Value,
        v: Value | None,
        *,
        heads: int,
        kv_heads: int,
        scale: float,
        window: int = 0,
        softcap: float = 0.0,
        mask: str = "causal",
        v_from_k: int = 0,
    ) -> Value:
        """Attention of this row over the rows of its context that `layer` has seen, this row included.

        Query head `h` reads key/value head `h // (heads / kv_heads)`. `window` is the number of
        positions that a row sees, its own included; 0 for all. `softcap` bounds the scores by `cap * tanh(s / cap)`; 0
        for none. With `mask` "full" a row sees all rows of its text, those after it too: nothing is kept, and the
        text must be one step. Without v the values are the first `v_from_k` numbers of each key.

        Vaswani et al. 2017, https://arxiv.org/abs/1706.03762; latent keys: DeepSeek-AI 2024,
        https://arxiv.org/abs/2405.04434.
        """
        self._counts("attention", heads=heads, kv_heads=kv_heads)
        arguments.whole("attention: v_from_k", v_from_k, 0, error=PlanError)
        if heads % kv_heads:
            raise PlanError(f"attention: {heads} query heads do not divide among {kv_heads} key/value heads")
        if (v is None) != (v_from_k > 0):
            raise PlanError("attention: values come either as v or as the first v_from_k numbers of the keys")
        for value, count in ((q, heads), (k, kv_heads), (v, kv_heads)):
            if value is not None:
                self._parts("attention", value, count)
        k_dim = k.width // kv_heads
        v_dim = v_from_k if v is None else v.width // kv_heads
        if q.width != heads * k_dim:
            raise PlanError(
                f"attention: a query head has {q.width // heads} values but a key head has {k_dim}"
            )
        return self._emit(
            "attention",
            heads * v_dim,
            f"blk.{layer}.attention",
            [q, k] if v is None else [q, k, v],
            layer=layer,
            heads=heads,
            kv_heads=kv_heads,
            k_dim=k_dim,
            v_dim=v_dim,
            scale=scale,
            window=window,
            softcap=softcap,
            mask=mask,
            v_from_k=v_from_k,
        )


# -- meanings


def _row(q: Doubles, keys: Doubles, values: Doubles, a: Attrs) -> Doubles:
    """Return the attention of one query row, (heads * v_dim,), over keys and values that the row sees all of.

    keys: (n, kv_heads, k_dim), values: (n, kv_heads, v_dim).
    """
    out = np.zeros((a["heads"], a["v_dim"]))
    for head, query in enumerate(q.reshape(a["heads"], a["k_dim"])):
        kv = head // (a["heads"] // a["kv_heads"])
        score = keys[:, kv] @ query * a["scale"]
        if a["softcap"]:
            score = a["softcap"] * np.tanh(score / a["softcap"])
        weight = np.exp(score - score.max())
        out[head] = weight @ values[:, kv] / weight.sum()
    return out.reshape(-1)


def _keys_and_values(x: Arrays, a: Attrs) -> tuple[Doubles, Doubles]:
    """Return keys (rows, kv_heads, k_dim) and values (rows, kv_heads, v_dim); latent rows have empty values."""
    keys = x[1].reshape(-1, a["kv_heads"], a["k_dim"])
    values = x[2].reshape(-1, a["kv_heads"], a["v_dim"]) if len(x) > 2 else keys[:, :, :0]
    return keys, values


def _step(kept: Kept, x: Arrays, w: Tensors, a: Attrs) -> tuple[Kept, tuple[Doubles]]:
    keys, values = kept
    first = max(0, len(keys) - a["window"]) if a["window"] else 0
    seen = keys[first:]
    out = _row(x[0], seen, seen[:, :, : a["v_from_k"]] if a["v_from_k"] else values[first:], a)
    return kept, (out[None],)


def _attention(rows: Rows, x: Arrays, w: Tensors, a: Attrs) -> tuple[Doubles]:
    keys, values = _keys_and_values(x, a)
    out = np.zeros((len(rows), a["heads"] * a["v_dim"]))
    for span in rows.spans:
        for row in span:
            end = span.stop if a["mask"] == "full" else row + 1
            kept = keys[span.start : end], values[span.start : end]
            out[row] = _step(kept, [x[0][row : row + 1]], w, a)[1][0]
    return (out,)


def _keep(x: Arrays, a: Attrs) -> tuple[Doubles, Doubles]:
    keys, values = _keys_and_values(x, a)
    return keys[0], values[0]


# -- records


def _check(call: Call) -> None:
    a, q, k = call.attrs, call.args[0], call.args[1]
    if a["heads"] % a["kv_heads"]:
        call.fail(f"{a['heads']} query heads do not divide among {a['kv_heads']} key/value heads")
    call.expect_width(q, a["heads"] * a["k_dim"], "heads * k_dim is")
    call.expect_width(k, a["kv_heads"] * a["k_dim"], "kv_heads * k_dim is")
    call.expect_width(call.outs[0], a["heads"] * a["v_dim"], "heads * v_dim is")
    if (len(call.args) < 3) != (a["v_from_k"] > 0):
        call.fail("values come either as a third argument or as the first v_from_k numbers of the keys")
    if len(call.args) > 2:
        call.expect_width(call.args[2], a["kv_heads"] * a["v_dim"], "kv_heads * v_dim is")
    elif a["v_from_k"] != a["v_dim"] or a["v_dim"] > a["k_dim"]:
        call.fail(f"{a['v_dim']} values cannot be the first {a['v_from_k']} of {a['k_dim']} numbers of a key")
    if a["mask"] == "full" and (a["window"] or a["v_from_k"]):
        what = "window" if a["window"] else "v_from_k"
        call.fail(f"a row that sees its whole text has no {what}, but {what} is {a[what]}")
    if a["v_from_k"] and a["window"]:
        call.fail(f"latent rows have no window, but window is {a['window']}")


def _memory(call: Call) -> Memory | None:
    a = call.attrs
    if a["mask"] == "full":
        return None
    shape = (a["layer"], a["kv_heads"], a["k_dim"])
    if a["v_from_k"]:
        return Memory("latent", *shape, 0)
    if a["window"]:
        return Memory("window", *shape, a["v_dim"], a["window"])
    return Memory("full", *shape, a["v_dim"])


def _is_full(a: Attrs) -> bool:
    return bool(a["mask"] == "full")


OPERATIONS = (
    Operation(
        name="attention",
        args=("q", "k", "v?"),
        attrs={
            "layer": whole(),
            "heads": whole(low=1),
            "kv_heads": whole(low=1),
            "k_dim": whole(low=1),
            "v_dim": whole(low=1),
            "scale": real(),
            "window": whole(),
            "softcap": real(low=0),
            "mask": text("causal", "full", default="causal"),
            "v_from_k": whole(default=0),
        },
        check=_check,
        meaning=_attention,
        memory=_memory,
        keep=_keep,
        step=_step,
        whole_text=_is_full,
    ),
)
