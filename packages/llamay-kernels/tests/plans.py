"""Plans of one operation: inputs come in as rows of F32 tables, which `embed` gives back exactly."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from llamay_kernels import Plan, Threads, Weight

ONE = Threads(1)
# Attention of four heads over two of keys and values, eight wide.
ATTENTION = {
    "layer": 0,
    "heads": 4,
    "kv_heads": 2,
    "k_dim": 8,
    "v_dim": 8,
    "scale": 0.3,
    "window": 0,
    "softcap": 0.0,
}


def weight(array: np.ndarray | Weight, name: str = "") -> Weight:
    if isinstance(array, Weight):
        return array
    a = np.ascontiguousarray(np.atleast_2d(array), np.float32)
    return Weight(a, "F32", *a.shape, name=name)


def evaluate(
    op: str,
    inputs: Sequence[np.ndarray],
    attrs: Mapping[str, Any] | None = None,
    weights: Sequence[np.ndarray | Weight] = (),
    out_widths: Sequence[int] | None = None,
    *,
    positions: Sequence[int] | None = None,
    threads: Threads = ONE,
    leases: Sequence[object] = (),
    counts: Sequence[int] = (),
    out: int = 0,
    select: bool = False,
) -> np.ndarray:
    """Output number `out` of the operation on float32 inputs of shape (rows, width).

    With `select` it works on the selected rows only, which are all rows, backwards.
    """
    n = len(inputs[0])
    tables = [weight(x) for x in inputs]
    tables += [weight(w) for w in weights]
    widths = [x.shape[1] for x in inputs]
    records = [("embed", (i,), (), (i,), {}) for i in range(len(inputs))]
    args = list(range(len(inputs)))
    if select:
        for a in args:
            records.append(("select", (len(widths),), (a,), (), {}))
            widths.append(widths[a])
        args = list(range(len(inputs), 2 * len(inputs)))
    first = len(widths)
    widths += out_widths or [inputs[0].shape[1]]
    numbers = tuple(range(len(inputs), len(tables)))
    outs = tuple(range(first, len(widths)))
    records.append((op, outs, tuple(args), numbers, dict(attrs or {})))
    if out != len(outs) - 1:  # the last record's last value is the output
        records.append(("scale", (len(widths),), (outs[out],), (), {"by": 1.0}))
        widths.append(widths[outs[out]])
    plan = Plan(records, widths, tables, max_rows=n)
    rows = np.arange(n, dtype=np.int32)
    result = np.full((n, widths[-1]), np.nan, np.float32)
    at = np.asarray(rows if positions is None else positions, np.int32)
    plan.run(rows, at, list(leases), list(counts), rows[::-1].copy() if select else rows, result, threads)
    return result[::-1] if select else result


def run_rows(plan: Plan, texts: Sequence[tuple[Any, ...]], threads: Threads = ONE) -> np.ndarray:
    """The outputs of (lease, tokens, position, wanted[, inputs]) of each text."""
    out = np.full((sum(text[3] for text in texts), plan.output_width), np.nan, np.float32)
    plan.run_rows(list(texts), out, threads)
    return out


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to the bit; NaNs are equal whatever their payload."""
    a, b = np.asarray(a), np.asarray(b)
    nan = np.isnan(a)
    same = np.array_equal(nan, np.isnan(b))
    return same and bool((a.view(np.uint32)[~nan] == b.view(np.uint32)[~nan]).all())
