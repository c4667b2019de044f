"""Attention alone: how fast rows read the keys and values of contexts, by precision, length and sharing.

    python benchmarks/attention.py [--heads 14,2,64] [--layers 24] [--depth 2048] [--threads N] [--json]

A plan of nothing but attentions runs over pages of random keys and values. One row is a decode step, 256 rows
are prefill;
branches of one context are measured beside as many contexts that hold the same in pages of their own. Rates
are of multiplications and additions with keys and values, minima of repeats.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import llamay_kernels
import llamay_kv

PRECISIONS = ("f32", "f16", "vq8", "q8")


class Bench:
    """A plan of attentions, and contexts for it."""

    def __init__(
        self, heads: int, kv_heads: int, dim: int, layers: int, precision: Any, threads: int, depth: int
    ) -> None:
        self.per_key = 4 * heads * dim * layers
        rng = np.random.default_rng(0)
        widths = [heads * dim, kv_heads * dim, kv_heads * dim]
        tables = [rng.standard_normal((512, w)).astype(np.float32) for w in widths]
        weights = [llamay_kernels.Weight(t, "F32", *t.shape) for t in tables]
        shape = {"heads": heads, "kv_heads": kv_heads, "k_dim": dim, "v_dim": dim}
        records: list[Any] = [("embed", (i,), (), (i,), {}) for i in range(3)]
        for layer in range(layers):
            attrs = {"layer": layer, **shape, "scale": dim**-0.5, "window": 0, "softcap": 0.0}
            records.append(("attention", (3 + layer,), (0, 1, 2), (), attrs))
            widths.append(heads * dim)
        self.width, self.layers = heads * dim, layers
        self.stored = [rng.standard_normal((depth, kv_heads, dim)).astype(np.float32) for _ in "kv"]
        self.plan = llamay_kernels.Plan(records, widths, weights, max_rows=512)
        layout = llamay_kv.Layout.uniform(layers, kv_heads, dim, precision=precision)
        self.pool = llamay_kv.Pool(layout, 64, budget_bytes=8 << 30)
        self.threads = llamay_kernels.Threads(threads, grain=0)

    def run(self, contexts: list[llamay_kv.Context], counts: list[int]) -> float:
        """Return the seconds of one step."""
        n = sum(counts)
        positions = [np.arange(len(c), len(c) + k) for c, k in zip(contexts, counts, strict=True)]
        tokens, rows = np.arange(n, dtype=np.int32) % 512, np.arange(n, dtype=np.int32)
        leases = [c.reserve(k) for c, k in zip(contexts, counts, strict=True)]
        out = np.empty((n, self.width), np.float32)
        began = time.perf_counter()
        self.plan.run(
            tokens, np.concatenate(positions).astype(np.int32), leases, counts, rows, out, self.threads
        )
        took = time.perf_counter() - began
        for lease in leases:
            lease.release()
        return took

    def context(self) -> llamay_kv.Context:
        """Return one of its own pages."""
        context = self.pool.context()
        with context.reserve(len(self.stored[0])) as lease:
            for layer in range(self.layers):
                lease.write(layer, *self.stored)
            lease.commit([1] * len(self.stored[0]))
        return context

    def rate(self, contexts: list[llamay_kv.Context], counts: list[int], repeat: int) -> dict[str, float]:
        """Return the fastest step, in milliseconds and operations a second."""
        took = min(self.run(contexts, counts) for _ in range(repeat))
        keys = sum(len(c) * k + k * (k + 1) // 2 for c, k in zip(contexts, counts, strict=True))
        return {"ms": took * 1e3, "gflops": keys * self.per_key / took * 1e-9}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--heads", default="14,2,64", help="query heads, key/value heads, dimensions of a head"
    )
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--depth", type=int, default=2048)
    parser.add_argument("--branches", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    heads, kv_heads, dim = map(int, options.heads.split(","))
    results: dict[str, dict[str, dict[str, float]]] = {}
    for precision in PRECISIONS:
        bench = Bench(heads, kv_heads, dim, options.layers, precision, options.threads, options.depth)
        context, n = bench.context(), options.branches
        rows = results[precision] = {}
        rows["1 row"] = bench.rate([context], [1], 4 * options.repeat)
        rows["256 rows"] = bench.rate([context], [256], options.repeat)
        rows[f"{n} branches"] = bench.rate([context.fork() for _ in range(n)], [1] * n, options.repeat)
        apart = [bench.context() for _ in range(n)]
        rows[f"{n} contexts"] = bench.rate(apart, [1] * n, options.repeat)
    if options.json:
        print(json.dumps(results))
        return
    for precision, rows in results.items():
        for name, figures in rows.items():
            print(f"{precision:5}{name:14}{figures['ms']:10.2f} ms{figures['gflops']:9.1f} Gop/s")


if __name__ == "__main__":
    main()
