#pragma once

#include <stddef.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Values that a row is multiplied by, or that are added to it: `count` of them, which divides the row's
/// width; value i stands for the i-th of as many equal parts. As many as the width: by channel; one: for
/// all.
struct PartValues {
  const float* values;  // null: none
  size_t count;
};

struct AffineTable {
  /// One row: out = x * w + b, rounded once where both are there; x * w, or x + b, where only one is. out may
  /// be x. w may be computed, a value for each head: that is mul_heads.
  void (*affine)(const float* x, PartValues w, PartValues b, size_t width, float* out);
};

}  // namespace llamay

LLAMAY_KERNEL_TABLES(AffineTable, affine);
