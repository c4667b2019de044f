#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace llamay::kv {

/// IEEE 754 binary16 to binary32. Exact; a signalling NaN becomes quiet, as the conversion instructions do
/// it.
inline float half_to_float(uint16_t h) {
  // Every case is computed and one is chosen, without a branch, so that loops over it become vector
  // code.
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 0x3ff;
  const uint32_t special = 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0);
  const uint32_t normal = (exponent + 112) << 23 | mantissa << 13;
  // A subnormal is a whole number of 2^-24.
  const uint32_t subnormal = std::bit_cast<uint32_t>(float(int32_t(mantissa)) * 0x1p-24f);
  return std::bit_cast<float>(sign | (exponent == 31 ? special : exponent ? normal : subnormal));
}

/// binary32 to binary16, to nearest, ties to even; too large becomes infinity, a NaN stays a (quiet) NaN.
inline uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  const uint32_t nan = 0x7e00 | (magnitude >> 13 & 0x3ff);
  // Adding 1/2 makes the float unit round to a multiple of 2^-24 for us.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  const uint32_t normal = ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112 << 10);
  const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
  const uint32_t number = magnitude >= 0x477ff000 ? 0x7c00 : finite;
  return uint16_t(sign | (magnitude > 0x7f800000 ? nan : number));
}

/// The same for n numbers, with the processor's instructions where it has them.
void halves_to_floats(const uint16_t* in, size_t n, float* out);
void floats_to_halves(const float* in, size_t n, uint16_t* out);

}  // namespace llamay::kv
