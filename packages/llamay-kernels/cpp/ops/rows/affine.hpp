#pragma once

#include <stddef.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Factors or summands of a row: `count` values, where count divides the row's width; value i applies to the
/// i-th of `count` equal parts of the row. A count of the width means one value for each channel, a count of
/// 1 one value for all.
struct PartValues {
  const float* values;  // null: none
  size_t count;
};

struct AffineTable {
  /// One row: out = x * w + b, rounded once where both are there; x * w, or x + b, where only one is. out may
  /// be x. mul_heads is this with a computed w of one value for each head.
  void (*affine)(const float* x, PartValues w, PartValues b, size_t width, float* out);
};

}  // namespace llamay

LLAMAY_KERNEL_TABLES(AffineTable, affine);
