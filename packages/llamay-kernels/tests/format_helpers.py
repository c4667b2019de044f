"""Blocks to try formats with."""

import gguf
import numpy as np
from hypothesis import strategies as st

from llamay_kernels._kernels import FORMATS

BLOCK_FORMATS = [name for name, (block, _) in FORMATS.items() if block > 1]
# Where a block keeps its f16 scales: random bytes there are NaN or infinity too often to see anything else.
SCALE_OFFSETS = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}
HOSTILE_HALVES = np.array(
    [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFE01],
    np.uint16,
)
HOSTILE_FLOATS = np.array(
    [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1.1754942e-38,
        3e-37,
        1e-30,
        1.0,
        -1.0,
        127.0,
        3.4028235e38,
        -3.4028235e38,
        np.inf,
        -np.inf,
        np.nan,
    ],
    np.float32,
)


def gguf_type(name: str) -> gguf.GGMLQuantizationType:
    return getattr(gguf.GGMLQuantizationType, name)


def random_data(rng: np.random.Generator, name: str, rows: int, cols: int, hostile: float = 0.0) -> bytes:
    """rows x cols values of the format: every integer possible, scales near 1e-2, a share of them hostile."""
    block, size = FORMATS[name]
    if block == 1:
        values = rng.standard_normal((rows, cols)).astype(np.float32)
        odd = rng.random(values.shape) < hostile
        if name == "F16":
            halves = values.astype(np.float16).view(np.uint16)
            halves[odd] = rng.choice(HOSTILE_HALVES, odd.sum())
            return halves.tobytes()
        values[odd] = rng.choice(HOSTILE_FLOATS, odd.sum())
        return (
            values.tobytes() if name == "F32" else (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        )
    blocks = rng.integers(0, 256, (rows * cols // block, size), np.uint8)
    for offset in SCALE_OFFSETS[name]:
        scales = (rng.standard_normal(len(blocks)) * 0.01).astype(np.float16).view(np.uint16)
        odd = rng.random(len(blocks)) < hostile
        scales[odd] = rng.choice(HOSTILE_HALVES, odd.sum())
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.tobytes()


def random_activations(rng: np.random.Generator, n: int, cols: int, hostile: float = 0.0) -> np.ndarray:
    """(n, cols), of sizes over many magnitudes from stretch to stretch."""
    x = rng.standard_normal((n, cols)).astype(np.float32)
    x *= (
        np.float32(10)
        ** rng.integers(-6, 6, (n, (cols + 31) // 32)).astype(np.float32).repeat(32, axis=1)[:, :cols]
    )
    odd = rng.random(x.shape) < hostile
    x[odd] = rng.choice(HOSTILE_FLOATS, odd.sum())
    return x


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to the bit, but for NaN, whose sign and payload mean nothing."""
    nan = np.isnan(a)
    return a.shape == b.shape and bool(
        np.array_equal(nan, np.isnan(b)) and np.array_equal(a.view(np.uint32)[~nan], b.view(np.uint32)[~nan])
    )


formats = st.sampled_from(list(FORMATS))
seeds = st.integers(0, 2**32 - 1)
