#pragma once

#include <stddef.h>
#include <stdint.h>

namespace llamay {

/// The lanes of simd/f32x16.hpp and the functions of simd/math.hpp, over arrays of 16 n values.
struct SimdTable {
  static constexpr int kFunctions = 35;
  /// out[...] of function number f; a, b, c: operands.
  void (*run)(int f, const float* a, const float* b, const float* c, size_t n, float* out);
};

}  // namespace llamay
