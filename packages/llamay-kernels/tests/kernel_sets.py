"""Helpers for tests of single kernels: hostile values, distances in units of the last place, every kernel set."""

import numpy as np
from plans import same_bits

import llamay_kernels as lk
from llamay_kernels import Threads

POOLS = {n: Threads(n, grain=0) for n in (1, 3)}

HOSTILE = np.array(
    [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1.1754942e-38,
        3e-39,
        1.0,
        -1.0,
        87.0,
        -87.0,
        88.72,
        89.0,
        -103.9,
        -104.1,
        10000.0,
        3.4028235e38,
        -3.4028235e38,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)


def on_every_set(compute):
    """compute() of each kernel set, an array or some, asserted equal; returns the portable one's."""
    lk.use_isa("portable")
    expected = compute()
    for isa in lk.runnable_isas():
        lk.use_isa(isa)
        computed = compute()
        if isinstance(expected, tuple):
            assert all(map(same_bits, expected, computed)), isa
        else:
            assert same_bits(expected, computed), isa
    return expected


def everywhere(compute):
    """compute(threads) with one thread and with three on every kernel set, asserted equal; the array."""

    def with_pools():
        alone = compute(POOLS[1])
        assert same_bits(compute(POOLS[3]), alone)
        return alone

    return on_every_set(with_pools)


def values(seed: int, rows: int, width: int, hostile: float, scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((rows, width)) * scale).astype(np.float32)
    return np.where(rng.random(x.shape) < hostile, rng.choice(HOSTILE, x.shape), x)


def ulps(computed: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Distance in units of the last place of the exact value's float32."""
    nearest = exact.astype(np.float32)
    return np.abs(computed.astype(np.float64) - exact) / np.spacing(np.abs(nearest)).astype(np.float64)


def sweep(low: float, high: float) -> np.ndarray:
    """Floats in [low, high]: evenly spread, and evenly by their bits, so that tiny ones are there too."""
    even = np.linspace(low, high, 200_001, dtype=np.float32)
    small = np.geomspace(1e-45, max(abs(low), abs(high)), 100_001).astype(np.float32)
    both = np.concatenate([even, small, -small, [np.float32(0), np.float32(-0.0)]])
    return both[(both >= low) & (both <= high)]
