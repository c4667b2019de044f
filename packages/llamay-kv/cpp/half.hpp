#pragma once
#include <bit>
#include <cstdint>

namespace llamay::kv {

/// IEEE 754 binary16 to binary32. Exact; a signalling NaN becomes quiet, as the conversion instructions do
/// it.
inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  uint32_t bits;
  if (exponent == 31)
    bits = 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0);
  else if (exponent)
    bits = (exponent + 112) << 23 | mantissa << 13;
  else  // a subnormal is a whole number of 2^-24
    bits = std::bit_cast<uint32_t>(float(mantissa) * 0x1p-24f);
  return std::bit_cast<float>(sign | bits);
}

/// binary32 to binary16, to nearest, ties to even; too large becomes infinity, a NaN stays a (quiet) NaN.
inline uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    // Adding 1/2 makes the float unit round to a multiple of 2^-24 for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return uint16_t(sign | ((rounded >> 13) - (112 << 10)));
}

}  // namespace llamay::kv
