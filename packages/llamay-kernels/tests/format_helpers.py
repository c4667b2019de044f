"""Blocks to try formats with."""

import gguf
import numpy as np
from hypothesis import strategies as st

from llamay_kernels._kernels import FORMATS

BLOCK_FORMATS = [name for name, (block, _) in FORMATS.items() if block > 1]
# That name eight weights, or four, at once.
GRIDS = ["IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
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
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ1_S": [0],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
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
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(115, 125, len(blocks))
        odd = rng.random(len(blocks)) < hostile
        blocks[odd, 0] = rng.choice(np.uint8([0, 1, 2, 3, 30, 250, 254, 255]), odd.sum())
        return blocks.tobytes()
    for offset in SCALE_OFFSETS.get(name, [None]):
        scales = (rng.standard_normal(len(blocks)) * 0.01).astype(np.float16).view(np.uint16)
        odd = rng.random(len(blocks)) < hostile
        scales[odd] = rng.choice(HOSTILE_HALVES, odd.sum())
        put_scales(name, blocks, offset, scales)
    return blocks.tobytes()


def put_scales(name: str, blocks: np.ndarray, offset: int | None, scales: np.ndarray) -> None:
    """Write a half for each block (n, bytes) in place; IQ1_M keeps it in the upper nibbles of four of its bytes."""
    if name == "IQ1_M":
        for i in range(4):
            nibble = (scales >> 4 * i & 15).astype(np.uint8)
            blocks[:, 49 + 2 * i] = blocks[:, 49 + 2 * i] & 15 | nibble << 4
    else:
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)


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
