#pragma once

#include <stdint.h>

// Exact conversions between F32 and its 16-bit relatives, for every CPU. Internal linkage: kernel sets
// include this.

namespace llamay {
namespace {

inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t bits_of(float value) { return __builtin_bit_cast(uint32_t, value); }

inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  // Placed as F32 bits the exponent is 112 too small; multiplying is exact and turns subnormals into normals.
  uint32_t bits = bits_of(float_of(magnitude << 13) * 0x1p112f);
  if (magnitude >= 0x7c00) bits = 0x7f800000u | magnitude << 13;
  return float_of(bits | sign);
}

/// To nearest even; beyond the largest half is infinity; NaN stays NaN.
inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = bits_of(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t half;
  if (magnitude > 0x7f800000u)
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  else if (magnitude >= 0x477ff000u)
    half = 0x7c00u;
  else if (magnitude >= 0x38800000u)
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
  else  // adding 0.5 leaves 24 fraction bits: the unit of a subnormal half
    half = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
  return static_cast<uint16_t>(sign | half);
}

inline float bf16_to_f32(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

/// To nearest even; NaN stays NaN and becomes quiet.
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 64);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

}  // namespace
}  // namespace llamay
