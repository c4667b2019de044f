#include "ops/table.hpp"
#include "simd/isa.hpp"

namespace {
void add(const float* a, const float* b, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}
}  // namespace

extern "C" const llamay::OpsTable LLAMAY_TABLE(ops);
const llamay::OpsTable LLAMAY_TABLE(ops) = {add};
