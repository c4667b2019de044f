#pragma once

/// Lane functions applied to a row, and the sum of a row. Only for sources that are compiled once per kernel
/// set.

#include "simd/f32x16.hpp"

namespace llamay {
namespace {

/// out[i] = f(a[i]); out may be a.
template <class F>
void map(const float* a, float* out, size_t n, F f) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, f(load(a + i)));
  if (i < n) store(out + i, f(load(a + i, static_cast<int>(n - i))), static_cast<int>(n - i));
}

/// out[i] = f(a[i], b[i]); out may be a or b.
template <class F>
void map(const float* a, const float* b, float* out, size_t n, F f) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, f(load(a + i), load(b + i)));
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    store(out + i, f(load(a + i, rest), load(b + i, rest)), rest);
  }
}

/// Sum: element i goes to lane i % 16, in increasing i.
inline float sum_of(const float* x, size_t n) {
  f32x16 sum = zero();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) sum = sum + load(x + i);
  if (i < n) {
    const int rest = static_cast<int>(n - i);
    sum = select(first_lanes(rest), sum + load(x + i, rest), sum);
  }
  return tree16(sum);
}

}  // namespace
}  // namespace llamay
