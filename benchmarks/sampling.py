"""Time of one choice over a large vocabulary: `python benchmarks/sampling.py [--vocab N] [--json]`.

Minimum of many, in microseconds, one thread; the last lines are a step of 8 rows in one call.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import llamay_kernels as kernels

OFF: dict[str, object] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
CASES: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0.0},
    "top-k 40, top-p 0.95, min-p 0.05, temperature": {},
    "no cuts": OFF,
    "top-p 0.95 alone": {**OFF, "top_p": 0.95},
    "min-p 0.05 alone": {**OFF, "min_p": 0.05},
    "top-n-sigma 1, then the defaults": {"top_n_sigma": 1.0},
    "typical 0.9 after top-k": {"typical_p": 0.9},
    "xtc after top-k": {"xtc_probability": 1.0},
    "dynamic temperature after top-k": {"dynatemp_range": 0.5},
    "mirostat 1": {"mirostat": 1},
    "mirostat 2": {"mirostat": 2},
    "penalties over 64": {"repeat_penalty": 1.1},
    "penalties over 4096": {"repeat_penalty": 1.1, "repeat_last_n": 4096},
    "dry over 4096": {"dry_multiplier": 0.8, "dry_penalty_last_n": 4096},
}


def least(function: Callable[[], object], repeats: int = 60) -> float:
    """Microseconds."""
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
    return best * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocab", type=int, default=262_144)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    # As a language model's: a bulk, and a tail of likely tokens.
    logits = (rng.standard_normal((8, args.vocab)) * 2.5).astype(np.float32)
    logits[:, rng.integers(0, args.vocab, 200)] += 12
    history = rng.integers(0, args.vocab, 8192).astype(np.int32)
    out: dict[str, float] = {}
    for name, options in CASES.items():
        sampler = kernels.Sampler(1, **options)  # type: ignore[arg-type]
        out[name] = least(partial(sampler.sample, logits[0], 5, history))
    rows = [(kernels.Sampler(i), logits[i], 5, history, None) for i in range(8)]
    out["8 rows of the defaults, one thread"] = least(lambda: kernels.sample_batch(rows))
    pool = kernels.Threads(args.threads)
    out[f"8 rows of the defaults, {args.threads} threads"] = least(lambda: kernels.sample_batch(rows, pool))
    out["logprobs, top 20"] = least(lambda: kernels.logprobs(logits[0], 3, 20))
    if args.json:
        print(json.dumps({"vocab": args.vocab, "microseconds": out}))
        return
    print(f"vocabulary of {args.vocab}, {kernels.isa()}")
    for name, value in out.items():
        print(f"{value:9.1f} us  {name}")


if __name__ == "__main__":
    main()
