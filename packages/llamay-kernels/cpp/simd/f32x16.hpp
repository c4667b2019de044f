#pragma once

/// Sixteen lanes, the same in every kernel set: f32x16, i32x16 and a mask. An operation written once over
/// them gives the same bits everywhere, because each function here is the same IEEE operation in each set
/// (docs/arithmetic.md).
///
/// Only for sources that are compiled once per kernel set. Lanes beyond n of a partial load are zero, and
/// memory beyond n is neither read nor written.

#include <stddef.h>
#include <stdint.h>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)
#include "simd/lanes_avx512.hpp"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "simd/lanes_avx2.hpp"
#elif defined(LLAMAY_NEON)
#include "simd/lanes_neon.hpp"
#else
#include "simd/lanes_portable.hpp"
#endif

/// Stands after a lambda's parameters, and inlines the lambda into the loop that calls it.
#define LLAMAY_LAMBDA __attribute__((always_inline))

namespace llamay {
namespace {

/// A float or, stored as its bits, an IEEE binary16.
struct half {
  uint16_t bits;
};

LLAMAY_LANES f32x16 zero() { return splat(0.0f); }

#ifdef __AVX2__

/// The first lane plus the ninth and so on, halving: the one sum across lanes.
LLAMAY_LANES float tree16(f32x16 v) {
  const __m256 eight = _mm256_add_ps(low8(v), high8(v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// The largest lane, in the same tree, by a > b ? a : b.
LLAMAY_LANES float max16(f32x16 v) {
  const __m256 eight = _mm256_max_ps(low8(v), high8(v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

#elif defined(LLAMAY_NEON)

LLAMAY_LANES float tree16(f32x16 v) {
  const float32x4_t four = vaddq_f32(vaddq_f32(v.v[0], v.v[2]), vaddq_f32(v.v[1], v.v[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
LLAMAY_LANES float max16(f32x16 v) {
  const auto larger = [](float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); };
  const float32x4_t four = larger(larger(v.v[0], v.v[2]), larger(v.v[1], v.v[3]));
  const float32x4_t two = larger(four, vextq_f32(four, four, 2));
  const float a = vgetq_lane_f32(two, 0), b = vgetq_lane_f32(two, 1);
  return a > b ? a : b;
}

#else

LLAMAY_LANES float tree16(f32x16 v) {
  for (int width = 8; width; width /= 2)
    for (int i = 0; i < width; ++i) v.v[i] = v.v[i] + v.v[i + width];
  return v.v[0];
}
LLAMAY_LANES float max16(f32x16 v) {
  for (int width = 8; width; width /= 2)
    for (int i = 0; i < width; ++i) v.v[i] = v.v[i] > v.v[i + width] ? v.v[i] : v.v[i + width];
  return v.v[0];
}

#endif

LLAMAY_LANES f32x16 load_lanes(const float* p) { return load(p); }
LLAMAY_LANES f32x16 load_lanes(const half* p) { return load_f16(&p->bits); }
LLAMAY_LANES f32x16 load_lanes(const float* p, int n) { return load(p, n); }
LLAMAY_LANES f32x16 load_lanes(const half* p, int n) { return load_f16(&p->bits, n); }
LLAMAY_LANES void store_lanes(float* p, f32x16 v, int n) { store(p, v, n); }
LLAMAY_LANES void store_lanes(half* p, f32x16 v, int n) { store_f16(&p->bits, v, n); }

}  // namespace
}  // namespace llamay
