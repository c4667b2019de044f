"""The time of a step by operation: one row, a prompt, 32 contexts, 32 branches.

    python benchmarks/step.py MODEL [--depth 2048] [--branches 32] [--threads N] [--repeat 8] [--json]

Times are measured on the calling thread, minima of repeats, in milliseconds. At the end stand the peaks that bound
them: of 8-bit dot products, for matrix products, and of F32 multiplications, for attention, which on x86 processors
with VNNI are a quarter of it.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

import llamay
import llamay_kernels
import llamay_kv


class Bench:
    """A model's plan, run without its engine."""

    def __init__(self, path: str, threads: int, depth: int, most: int) -> None:
        self.model = llamay.load(path, threads=threads, ctx_size=2 * depth, prefix_cache=0, speculation=False)
        self.plan, self.pool = self.model._parts.plan, self.model.pool
        self.threads = llamay_kernels.Threads(threads)
        self.ids = np.random.default_rng(0).integers(3, 2000, max(512, depth)).astype(np.int32)
        self.out = np.zeros((most, self.plan.output_width), np.float32)

    def step(
        self, contexts: list[llamay_kv.Context], rows: int, commit: bool = False, logits: bool = True
    ) -> dict[str, float]:
        """Run so many rows of each context; return seconds by operation."""
        positions = np.concatenate([np.arange(len(c), len(c) + rows) for c in contexts]).astype(np.int32)
        tokens = np.tile(self.ids[:rows], len(contexts))
        wanted = np.arange(rows - 1, len(tokens), rows, dtype=np.int32)[: len(contexts) if logits else 0]
        leases = [c.reserve(rows) for c in contexts]
        self.plan.measure(True)
        self.plan.run(
            tokens,
            positions,
            leases,
            [rows] * len(contexts),
            wanted,
            self.out[: len(wanted)],
            self.threads,
        )
        profile = self.plan.profile()
        self.plan.measure(False)
        for lease in leases:
            if commit:
                lease.commit(tokens[:rows].tolist())
            lease.release()
        return {"total": profile["total"], "wait": profile["wait"], **profile["operations"]}

    def context(self, depth: int) -> llamay_kv.Context:
        """Return one that has read so many tokens."""
        context = self.pool.context()
        while len(context) < depth:
            self.step([context], min(512, depth - len(context)), commit=True, logits=False)
        return context

    def best(
        self, contexts: list[llamay_kv.Context], rows: int, repeat: int, logits: bool = True
    ) -> dict[str, float]:
        """Return the least of each operation, in milliseconds."""
        runs = [self.step(contexts, rows, logits=logits) for _ in range(repeat)]
        return {name: 1e3 * min(run[name] for run in runs) for name in runs[0]}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--depth", type=int, default=2048)
    parser.add_argument("--branches", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    n, repeat = options.branches, options.repeat
    bench = Bench(options.model, options.threads, options.depth, n)
    short, deep = bench.context(8), bench.context(options.depth)
    results: dict[str, Any] = {
        "1 row": bench.best([short], 1, 2 * repeat),
        f"1 row at {options.depth}": bench.best([deep], 1, 2 * repeat),
        "512 rows": bench.best([bench.pool.context()], 512, max(2, repeat // 4), logits=False),
        f"512 rows at {options.depth}": bench.best([deep], 512, max(2, repeat // 4), logits=False),
        f"{n} contexts": bench.best([short.fork() for _ in range(n)], 1, repeat),
        f"{n} branches at {options.depth}": bench.best([deep.fork() for _ in range(n)], 1, repeat),
    }
    peak = llamay_kernels.limits(bench.threads).int8_ops
    if options.json:
        print(json.dumps({"steps_ms": results, "int8_ops": peak}))
        return
    for name, times in results.items():
        parts = sorted(
            ((v, k) for k, v in times.items() if k != "total" and v > times["total"] / 100), reverse=True
        )
        print(f"{name:22}{times['total']:9.2f} ms: " + ", ".join(f"{k} {v:.2f}" for v, k in parts))
    print(f"8-bit dot products: {peak * 1e-9:.0f} Gop/s, F32: about {peak * 1e-9 / 4:.0f} Gop/s")


if __name__ == "__main__":
    main()
