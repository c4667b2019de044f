#pragma once

#include <stddef.h>

namespace llamay {

/// Elementwise operations, one table a kernel set.
struct OpsTable {
  void (*add)(const float* a, const float* b, float* out, size_t n);
};

}  // namespace llamay
