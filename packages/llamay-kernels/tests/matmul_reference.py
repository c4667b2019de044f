"""docs/arithmetic.md for matrix products, slowly: Python integers, and float64 steps rounded once to float32.

Shares no line with the kernels: it reads the blocks as they are in a file, formats with codebooks and grids with the
help of the gguf package.
"""

from __future__ import annotations

from fractions import Fraction

import gguf
import numpy as np
from format_helpers import FORMATS, SCALE_OFFSETS, gguf_type, put_scales

F32 = np.float32


def _round_f32(exact: Fraction) -> np.float32:
    """The float32 nearest to an exact value, ties to even, denormals kept."""
    if exact == 0:
        return F32(0)
    magnitude = abs(exact)
    # The exponent of the leading bit, then the unit of the last of 24 bits (or of a denormal).
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** max(exponent - 23, -149)
    scaled = magnitude / unit
    whole, rest = divmod(scaled.numerator, scaled.denominator)
    twice = 2 * rest
    if twice > scaled.denominator or (twice == scaled.denominator and whole % 2):
        whole += 1
    value = whole * unit
    if value >= Fraction(2) ** 128:
        return F32(-np.inf if exact < 0 else np.inf)
    return F32(-float(value) if exact < 0 else float(value))


def fma(a: np.float32, b: np.float32, c: np.float32) -> np.float32:
    """a * b + c with one rounding."""
    if not (np.isfinite(a) and np.isfinite(b) and np.isfinite(c)):
        # Infinities and NaN follow the unfused operations, but the product must not overflow on the way.
        product = np.float64(a) * np.float64(b)
        return F32(product + np.float64(c))
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0:
        product_sign = np.signbit(a) != np.signbit(b)
        if Fraction(float(a)) * Fraction(float(b)) == 0 and c == 0:
            return F32(-0.0) if product_sign and np.signbit(c) else F32(0)
        return F32(0)
    return _round_f32(exact)


def quantize(x: np.ndarray, n: int) -> tuple[list[list[int]], list[np.float32]]:
    """Integers and scale of each block of n."""
    integers, scales = [], []
    for block in x.reshape(-1, n):
        bits = block.view(np.uint32) & 0x7FFFFFFF
        amax = bits.max()
        value = amax.view(F32)
        if amax >= 0x7F800000:
            scales.append(F32(np.nan))
            integers.append([0] * n)
            continue
        inverse = F32(127) / value
        if value == 0 or not np.isfinite(inverse):
            scales.append(F32(0))
            integers.append([0] * n)
            continue
        scales.append(value / F32(127))
        integers.append([int(np.rint(v * inverse)) for v in block])
    return integers, scales


def _half(raw: bytes) -> np.float32:
    return F32(np.frombuffer(raw, np.float16)[0])


def _nibbles(qs: bytes) -> list[int]:
    return [b & 15 for b in qs] + [b >> 4 for b in qs]


def _fifth(qh: bytes, q: list[int]) -> list[int]:
    bits = int.from_bytes(qh, "little")
    return [v | (bits >> i & 1) << 4 for i, v in enumerate(q)]


def block_of_32(name: str, raw: bytes) -> tuple[list[int], np.float32, np.float32 | None]:
    """Weight integers, d, and m where the format has it."""
    d = _half(raw[:2])
    if name == "Q4_0":
        return [v - 8 for v in _nibbles(raw[2:])], d, None
    if name == "Q4_1":
        return _nibbles(raw[4:]), d, _half(raw[2:4])
    if name == "Q5_0":
        return [v - 16 for v in _fifth(raw[2:6], _nibbles(raw[6:]))], d, None
    if name == "Q5_1":
        return _fifth(raw[4:8], _nibbles(raw[8:])), d, _half(raw[2:4])
    assert name == "Q8_0"
    return [int(v) for v in np.frombuffer(raw[2:], np.int8)], d, None


def _scales_and_minima(raw: bytes) -> tuple[list[int], list[int]]:
    sc = [raw[i] & 63 for i in range(4)] + [raw[8 + i] & 15 | raw[i] >> 6 << 4 for i in range(4)]
    mn = [raw[4 + i] & 63 for i in range(4)] + [raw[8 + i] >> 4 | raw[4 + i] >> 6 << 4 for i in range(4)]
    return sc, mn


def super_block(
    name: str, raw: bytes
) -> tuple[list[int], list[int], np.float32, list[int], np.float32 | None]:
    """Weight integers, a scale for each sub-block, d, minima, dmin."""
    if name == "Q6_K":
        ql, qh, sc = raw[:128], raw[128:192], np.frombuffer(raw[192:208], np.int8)
        q = []
        for half in range(2):
            low, high = ql[64 * half : 64 * half + 64], qh[32 * half : 32 * half + 32]
            for part in range(4):
                for i in range(32):
                    nibble = low[32 * (part % 2) + i] >> (4 * (part // 2)) & 15
                    q.append((nibble | (high[i] >> 2 * part & 3) << 4) - 32)
        return q, [int(v) for v in sc], _half(raw[208:210]), [], None
    sc, mn = _scales_and_minima(raw[4:16])
    qs = raw[16:144] if name == "Q4_K" else raw[48:176]
    q = []
    for s in range(8):
        for i in range(32):
            v = qs[32 * (s // 2) + i] >> 4 * (s % 2) & 15
            if name == "Q5_K":
                v |= (raw[16 + i] >> s & 1) << 4
            q.append(v)
    return q, sc, _half(raw[:2]), mn, _half(raw[2:4])


def _row_of_blocks(name: str, row: bytes, size: int, x: np.ndarray) -> np.float32:
    acc = F32(0)
    integers, scales = quantize(x, 32)
    for b, (a, d_a) in enumerate(zip(integers, scales, strict=True)):
        q, d, m = block_of_32(name, row[b * size : (b + 1) * size])
        isum = sum(w * v for w, v in zip(q, a, strict=True))
        acc = fma(d * d_a, F32(isum), acc)
        if m is not None:
            acc = fma(m, d_a * F32(sum(a)), acc)
    return acc


def _row_of_super_blocks(name: str, row: bytes, size: int, x: np.ndarray) -> np.float32:
    acc = F32(0)
    integers, scales = quantize(x, 256)
    for b, (a, d_a) in enumerate(zip(integers, scales, strict=True)):
        q, sc, d, mn, dmin = super_block(name, row[b * size : (b + 1) * size])
        n = 256 // len(sc)
        parts = [sum(q[k] * a[k] for k in range(n * s, n * s + n)) for s in range(len(sc))]
        acc = fma(d * d_a, F32(sum(c * p for c, p in zip(sc, parts, strict=True))), acc)
        if dmin is not None:
            imin = sum(mn[s] * sum(a[n * s : n * s + n]) for s in range(len(sc)))
            acc = fma(-(dmin * d_a), F32(imin), acc)
    return acc


# The factor beside d in the formats that count in fractions.
UNITS = {"IQ2_XXS": 8, "IQ2_XS": 8, "IQ2_S": 8, "IQ1_S": 8, "IQ1_M": 8, "IQ3_XXS": 4}


def scale_of(name: str, block: bytes) -> np.float32:
    """d of a block with a codebook, its unit in it."""
    if name == "MXFP4":
        return F32(2.0 ** (block[0] - 128))
    if name == "IQ1_M":
        d = np.uint16(sum((block[49 + 2 * i] >> 4) << 4 * i for i in range(4))).view(np.float16).astype(F32)
    else:
        offset = SCALE_OFFSETS[name][0]
        d = _half(block[offset : offset + 2])
    return d / F32(UNITS.get(name, 1))


def scaled_integers(name: str, block: bytes) -> list[int]:
    """Scale times integer of each element, as the reference reads it where d is one unit."""
    blocks = np.frombuffer(block, np.uint8).copy().reshape(1, -1)
    if name == "MXFP4":
        blocks[:, 0] = 128
    else:
        put_scales(
            name, blocks, SCALE_OFFSETS.get(name, [None])[0], np.float16([UNITS.get(name, 1)]).view(np.uint16)
        )
    if name == "Q2_K":
        put_scales(name, blocks, 82, np.zeros(1, np.uint16))
    return [int(v) for v in gguf.dequantize(blocks, gguf_type(name)).ravel()]


def minima(block: bytes) -> list[int]:
    """The minimum of each element of a Q2_K block."""
    return [block[k // 16] >> 4 for k in range(256)]


def _row_of_codes(name: str, row: bytes, size: int, x: np.ndarray) -> np.float32:
    acc = F32(0)
    integers, scales = quantize(x, FORMATS[name][0])
    for b, (a, d_a) in enumerate(zip(integers, scales, strict=True)):
        block = row[b * size : (b + 1) * size]
        isum = sum(w * v for w, v in zip(scaled_integers(name, block), a, strict=True))
        acc = fma(scale_of(name, block) * d_a, F32(isum), acc)
        if name == "Q2_K":
            imin = sum(m * v for m, v in zip(minima(block), a, strict=True))
            acc = fma(-(_half(block[82:84]) * d_a), F32(imin), acc)
    return acc


def _row_of_floats(name: str, row: bytes, x: np.ndarray) -> np.float32:
    if name == "F32":
        w = np.frombuffer(row, F32)
    elif name == "F16":
        w = np.frombuffer(row, np.float16).astype(F32)
    else:
        w = (np.frombuffer(row, np.uint16).astype(np.uint32) << 16).view(F32)
    acc = F32(0)
    for weight, value in zip(w, x, strict=True):
        acc = fma(weight, value, acc)
    return acc


def matmul(
    data: bytes,
    name: str,
    rows: int,
    x: np.ndarray,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
) -> np.ndarray:
    """x (n, cols) times the weight, transposed: float32 (n, rows)."""
    size = FORMATS[name][1]
    stride = len(data) // rows
    out = np.empty((len(x), rows), F32)
    with np.errstate(all="ignore"):
        for t, one in enumerate(x):
            for r in range(rows):
                row = data[r * stride : (r + 1) * stride]
                if name in ("Q4_K", "Q5_K", "Q6_K"):
                    y = _row_of_super_blocks(name, row, size, one)
                elif name in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"):
                    y = _row_of_blocks(name, row, size, one)
                elif FORMATS[name][0] == 1:
                    y = _row_of_floats(name, row, one)
                else:
                    y = _row_of_codes(name, row, size, one)
                if bias is not None:
                    y = y + bias[r]
                if residual is not None:
                    y = residual[t, r] + y
                out[t, r] = y
    return out
