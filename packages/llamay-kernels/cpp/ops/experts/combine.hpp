#pragma once

#include <stddef.h>

#include "kernel_tables.hpp"

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

struct CombineTable {
  /// out[i] = the sum over j < n of weights[j] * y[j][i], for i in [from, to): the first product, then fma
  /// for j = 1.. in order. n >= 1; the rows y[j] lie anywhere, out may be one of them.
  void (*combine)(const float* weights, const float* const* y, size_t n, size_t from, size_t to, float* out);
};

}  // namespace llamay

LLAMAY_KERNEL_TABLES(CombineTable, combine);
