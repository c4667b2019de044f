#include "ops/experts/combine.hpp"
#include "simd/f32x16.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

/// Vectors of columns that are kept in registers while all rows are added.
constexpr size_t kVectors = 4;

template <size_t vectors, class Load>
LLAMAY_LANES void columns(const float* weights, const float* const* y, size_t n, size_t at,
                          f32x16 (&sum)[vectors], Load read) {
  const f32x16 first = splat(weights[0]);
  for (size_t v = 0; v < vectors; ++v) sum[v] = first * read(y[0] + at + 16 * v);
  for (size_t j = 1; j < n; ++j) {
    const f32x16 weight = splat(weights[j]);
    for (size_t v = 0; v < vectors; ++v) sum[v] = fma(weight, read(y[j] + at + 16 * v), sum[v]);
  }
}

void combine(const float* weights, const float* const* y, size_t n, size_t from, size_t to, float* out) {
  const auto whole = [](const float* p) { return load(p); };
  size_t i = from;
  for (; i + 16 * kVectors <= to; i += 16 * kVectors) {
    f32x16 sum[kVectors];
    columns(weights, y, n, i, sum, whole);
    for (size_t v = 0; v < kVectors; ++v) store(out + i + 16 * v, sum[v]);
  }
  for (; i < to; i += 16) {
    const int rest = to - i < 16 ? static_cast<int>(to - i) : 16;
    f32x16 sum[1];
    columns(weights, y, n, i, sum, [rest](const float* p) { return load(p, rest); });
    store(out + i, sum[0], rest);
  }
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::CombineTable LLAMAY_TABLE(combine);
const llamay::CombineTable LLAMAY_TABLE(combine) = {llamay::combine};
