#pragma once

#include "formats/blocks.hpp"
#include "formats/half.hpp"

// The common parts of the searches for good scales. GGML fixes only how these formats are read. Quantizing is
// a choice of integers, here one with a small squared error of the values that will be read.

namespace llamay {
namespace {

[[maybe_unused]] int clamp(int v, int low, int high) { return v < low ? low : v > high ? high : v; }
/// To the nearest integer, for any float: values out of range and NaN are clamped first.
[[maybe_unused]] int nearest(float v, int low, int high) {
  if (!(v > static_cast<float>(low))) return low;
  if (v >= static_cast<float>(high)) return high;
  return static_cast<int>(v + (v < 0 ? -0.5f : 0.5f));
}

// Four lanes: every baseline has them, and the order of a sum is then the same everywhere.
using Four = float __attribute__((vector_size(16)));
using FourInts = int32_t __attribute__((vector_size(16)));

[[maybe_unused]] Four load(const float* at) {
  Four v;
  memcpy(&v, at, sizeof v);
  return v;
}
[[maybe_unused]] float total(Four v) { return (v[0] + v[2]) + (v[1] + v[3]); }

/// The nearest integers in low..high, as floats; NaN gives low.
[[maybe_unused]] Four levels(Four v, float low, float high) {
  const Four bottom = Four{} + low, top = Four{} + high;
  v = v > bottom ? v : bottom;
  v = v < top ? v : top;
  // Truncation rounds down values that are not negative.
  return __builtin_convertvector(__builtin_convertvector(v - low + 0.5f, FourInts), Four) + low;
}

/// The weight of a value's error: large values weigh more, because they dominate the products they enter.
[[maybe_unused]] void weigh(const float* x, int n, float* weight) {
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += x[i] * x[i];
  const float mean = __builtin_sqrtf(sum / static_cast<float>(n));
  for (int i = 0; i < n; ++i) weight[i] = mean + __builtin_fabsf(x[i]);
}

/// Stores a scale as binary16 and returns the value that will be read.
[[maybe_unused]] float read_back(float value, uint8_t* half) {
  const uint16_t bits = f32_to_f16(value);
  store_u16(half, bits);
  return f16_to_f32(bits);
}

}  // namespace
}  // namespace llamay
