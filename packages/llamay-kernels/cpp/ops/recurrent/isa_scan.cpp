#include <string.h>

#include "ops/recurrent/scan.hpp"
#include "simd/f32x16.hpp"
#include "simd/isa.hpp"

namespace llamay {
namespace {

/// Rows of the state that are computed together: they share the values that all of them read, and while the
/// sum of one row, a dependency chain, waits for its last addition, the others go on.
constexpr size_t kTile = 4;
/// Rows of the state do not depend on one another: a block of this many floats passes through all rows of the
/// text, in the first-level cache, before the next block begins.
constexpr size_t kBlockFloats = 4096;
constexpr size_t kBlockRows = 64;
size_t block_rows(size_t k_dim) {
  const size_t fit = kBlockFloats / k_dim / kTile * kTile;
  return fit == 0 ? kTile : fit < kBlockRows ? fit : kBlockRows;
}

/// A whole vector of elements, or the last few.
struct Whole {
  f32x16 get(const float* p) const { return load(p); }
  void put(float* p, f32x16 v) const { store(p, v); }
  f32x16 keep(f32x16 fresh, f32x16) const { return fresh; }
};
struct Rest {
  int n;
  f32x16 get(const float* p) const { return load(p, n); }
  void put(float* p, f32x16 v) const { store(p, v, n); }
  /// Lanes without an element stay as they are.
  f32x16 keep(f32x16 fresh, f32x16 old) const { return select(first_lanes(n), fresh, old); }
};
template <class F>
LLAMAY_LANES void each_vector(size_t n, F f) {
  size_t j = 0;
  for (; j + 16 <= n; j += 16) f(j, Whole{});
  if (j < n) f(j, Rest{static_cast<int>(n - j)});
}

/// out[i] = the sum of s[i][j] a[j], for some rows of the state.
template <size_t rows>
void sums(const float* s, size_t k_dim, const float* a, float* out) {
  f32x16 sum[rows];
  for (size_t i = 0; i < rows; ++i) sum[i] = zero();
  each_vector(k_dim, [&](size_t j, auto lanes) LLAMAY_LAMBDA {
    const f32x16 by = lanes.get(a + j);
    for (size_t i = 0; i < rows; ++i)
      sum[i] = lanes.keep(fma(lanes.get(s + i * k_dim + j), by, sum[i]), sum[i]);
  });
  for (size_t i = 0; i < rows; ++i) out[i] = tree16(sum[i]);
}

/// One row of the text, at this head.
struct TextRow {
  const float *r, *w, *k, *v, *a, *b;
  float* y;
};

/// Advances rows of the state, from s on, by one row of the text; corrections: S_old a of each row.
template <bool w_by_column, bool corrected, size_t rows>
void advance(float* s, size_t k_dim, const TextRow& row, const float* v, const float* corrections, float* y) {
  f32x16 sum[rows], value[rows], correction[rows];
  for (size_t i = 0; i < rows; ++i) {
    sum[i] = zero();
    value[i] = splat(v[i]);
    if constexpr (corrected) correction[i] = splat(corrections[i]);
  }
  const f32x16 decay = splat(*row.w);
  each_vector(k_dim, [&](size_t j, auto lanes) LLAMAY_LAMBDA {
    f32x16 w = decay, b = zero();
    if constexpr (w_by_column) w = lanes.get(row.w + j);
    if constexpr (corrected) b = lanes.get(row.b + j);
    const f32x16 k = lanes.get(row.k + j), r = lanes.get(row.r + j);
    for (size_t i = 0; i < rows; ++i) {
      float* at = s + i * k_dim + j;
      f32x16 x = fma(value[i], k, lanes.get(at) * w);
      if constexpr (corrected) x = fma(correction[i], b, x);
      lanes.put(at, x);
      sum[i] = lanes.keep(fma(x, r, sum[i]), sum[i]);
    }
  });
  for (size_t i = 0; i < rows; ++i) y[i] = tree16(sum[i]);
}

/// Advances `count` rows of the state, from number `first` on, by one row of the text.
template <bool w_by_column, bool corrected>
void step(float* s, size_t k_dim, const TextRow& row, size_t first, size_t count) {
  float corrections[kBlockRows];
  size_t i = 0;
  if constexpr (corrected) {
    for (; i + kTile <= count; i += kTile) sums<kTile>(s + i * k_dim, k_dim, row.a, corrections + i);
    for (; i < count; ++i) sums<1>(s + i * k_dim, k_dim, row.a, corrections + i);
  }
  const float* v = row.v + first;
  float* y = row.y + first;
  for (i = 0; i + kTile <= count; i += kTile)
    advance<w_by_column, corrected, kTile>(s + i * k_dim, k_dim, row, v + i, corrections + i, y + i);
  for (; i < count; ++i)
    advance<w_by_column, corrected, 1>(s + i * k_dim, k_dim, row, v + i, corrections + i, y + i);
}

template <bool w_by_column, bool corrected>
void scan_rows(const Scan& scan, size_t n, size_t v_from, size_t v_to) {
  const size_t block = block_rows(scan.k_dim);
  for (size_t i = v_from; i < v_to; i += block) {
    const size_t count = v_to - i < block ? v_to - i : block, at = i * scan.k_dim;
    float* s = scan.state_out + at;
    if (!scan.state_in)
      memset(s, 0, count * scan.k_dim * sizeof *s);
    else if (scan.state_in != scan.state_out)
      memcpy(s, scan.state_in + at, count * scan.k_dim * sizeof *s);
    for (size_t t = 0; t < n; ++t) {
      TextRow row{scan.r.row(t),
                  scan.w.row(t),
                  scan.k.row(t),
                  scan.v.row(t),
                  nullptr,
                  nullptr,
                  scan.out + t * scan.out_stride};
      if constexpr (corrected) {
        row.a = scan.a.row(t);
        row.b = scan.b.row(t);
      }
      step<w_by_column, corrected>(s, scan.k_dim, row, i, count);
    }
  }
}

void rows(const Scan& scan, size_t n, size_t v_from, size_t v_to) {
  if (scan.a.first)
    scan.w_by_column ? scan_rows<true, true>(scan, n, v_from, v_to)
                     : scan_rows<false, true>(scan, n, v_from, v_to);
  else
    scan.w_by_column ? scan_rows<true, false>(scan, n, v_from, v_to)
                     : scan_rows<false, false>(scan, n, v_from, v_to);
}

}  // namespace
}  // namespace llamay

extern "C" const llamay::ScanTable LLAMAY_TABLE(scan);
const llamay::ScanTable LLAMAY_TABLE(scan) = {llamay::rows};
