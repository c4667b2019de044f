"""The stored precisions, in numpy: the values that must read back after a write."""

import numpy as np


def int8(x):
    """One scale for each vector over the last axis."""
    x = x.astype(np.float32)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        largest = np.abs(x).max(axis=-1, keepdims=True)
        scale = largest / np.float32(127)
        q = np.where(scale > 0, np.rint(x / scale), 0)
        back = np.nan_to_num(np.clip(q, -127, 127)).astype(np.int8).astype(np.float32) * scale
    return np.where(np.isfinite(largest), back, np.float32(np.nan))


def half(x):
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(np.float32)


def single(x):
    return x.astype(np.float32)


ROUND_TRIP = {"f32": (single, single), "f16": (half, half), "vq8": (half, int8), "q8": (int8, int8)}
