"""The arithmetic's building blocks in numpy, to the bit: docs/arithmetic.md."""

import numpy as np


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c of float32 values, rounded once.

    In float64 the product is exact; the sum is rounded to odd, from which rounding to float32 gives what rounding
    the exact sum would.
    """
    with np.errstate(all="ignore"):
        product = np.multiply(a, b, dtype=np.float64)
        added = np.broadcast_to(np.asarray(c, np.float64), np.broadcast_shapes(product.shape, np.shape(c)))
        total = product + added
        other = total - product
        left = (product - (total - other)) + (added - other)
        even = (total.view(np.int64) & 1) == 0
        inexact = np.isfinite(left) & (left != 0) & even
        odd = np.where(inexact, np.nextafter(total, np.copysign(np.inf, left)), total)
        return odd.astype(np.float32)


def tree16(lanes: np.ndarray) -> np.ndarray:
    """The sum across the sixteen lanes of the last axis."""
    with np.errstate(all="ignore"):
        for width in (8, 4, 2, 1):
            lanes = lanes[..., :width] + lanes[..., width : 2 * width]
    return lanes[..., 0]


def dot(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sums of products over the last axis: element i to lane i % 16, in increasing i, by fma."""
    x, y = np.broadcast_arrays(x, y)
    lanes = np.zeros((*x.shape[:-1], 16), np.float32)
    for at in range(0, x.shape[-1], 16):
        part = x[..., at : at + 16], y[..., at : at + 16]
        n = part[0].shape[-1]
        lanes[..., :n] = fma(*part, lanes[..., :n])
    return tree16(lanes)


def total(x: np.ndarray) -> np.ndarray:
    """Sums over the last axis: element i to lane i % 16, in increasing i."""
    lanes = np.zeros((*x.shape[:-1], 16), np.float32)
    for at in range(0, x.shape[-1], 16):
        part = x[..., at : at + 16]
        with np.errstate(all="ignore"):
            lanes[..., : part.shape[-1]] += part
    return tree16(lanes)
