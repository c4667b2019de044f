#pragma once

/// Parts of attention over blocks of keys that keep no state: how rows and keys are cut into tiles and pages,
/// visibility as lanes, and transposed keys. Only for sources that are compiled once per kernel set.

#include "ops/attention/attention.hpp"
#include "ops/attention/kv_elements.hpp"
#include "simd/f32x16.hpp"
#include "simd/product.hpp"
#include "simd/transpose.hpp"

namespace llamay {
namespace {

// Vector units convert to float32 beside their multiplications: there a converted copy of the block would
// only take room in the first-level cache.
#if defined(__AVX2__) || defined(__ARM_NEON)
constexpr bool kWidensFree = true;
#else
constexpr bool kWidensFree = false;
#endif

void write(const KvPages& pages, const AttentionShape& shape, uint32_t head, uint32_t first, uint32_t tokens,
           const float* k, size_t k_stride, const float* v, size_t v_stride) {
  with_stored(pages.dtype, [&]<class S>(S) {
    write_keys<typename S::K>(pages, shape, head, first, tokens, k, k_stride);
    if (!shape.v_from_k) write_values<typename S::V>(pages, shape, head, first, tokens, v, v_stride);
  });
}

/// Runs f(row, end) for tiles of rows of about one size: a last tile of a single row would cost nearly as
/// much as a full one.
template <class F>
void each_tile(uint32_t from, uint32_t to, F f) {
  for (uint32_t row = from, left = (to - from + kTileRows - 1) / kTileRows; left; --left) {
    const uint32_t n = (to - row) / left;
    f(row, row + n);
    row += n;
  }
}

/// Runs f(first key, one past the last) for the parts of [from, to) that lie in one page of 2^page_shift
/// positions each, where key 0 has the position `start`.
template <class F>
void each_part(uint32_t page_shift, uint32_t start, uint32_t from, uint32_t to, F f) {
  const uint32_t page = 1u << page_shift;
  while (from < to) {
    const uint32_t next = least(to, ((start + from) / page + 1) * page - start);
    f(from, next);
    from = next;
  }
}

/// yes in the lanes of [low, high) of sixteen keys from `at` on, no in the others.
inline f32x16 visible(uint32_t at, uint32_t low, uint32_t high, f32x16 yes, f32x16 no) {
  const f32x16 seen = select(first_lanes(static_cast<int>(least(16, high - at))), yes, no);
  return low > at ? select(first_lanes(static_cast<int>(least(16, low - at))), no, seen) : seen;
}

/// Transposes dimensions [d, end) of the converted keys [from, to), at most sixteen, into values:
/// position-major, so that each lane holds a dimension of the output, as where pages hold values.
inline void turn_keys(const float* all_keys, float* all_values, size_t stride, uint32_t d, uint32_t end,
                      uint32_t from, uint32_t to) {
  for (uint32_t j = from; j < to; j += 8) {
    const float* keys = all_keys + j;
    float* values = all_values + j * stride;
    uint32_t e = d;
    for (; e + 8 <= end; e += 8) transpose8(keys + e * kAttentionBlock, kAttentionBlock, values + e, stride);
    for (; e < end; ++e)
      for (uint32_t i = 0; i < 8; ++i) values[i * stride + e] = keys[e * kAttentionBlock + i];
  }
}

}  // namespace
}  // namespace llamay
