#pragma once

#include <immintrin.h>
#include <string.h>

#define LLAMAY_LANES [[maybe_unused]] inline __attribute__((always_inline))

namespace llamay {
namespace {

struct f32x16 {
  __m256 lo, hi;
};
struct i32x16 {
  __m256i lo, hi;
};
struct mask16 {
  __m256 lo, hi;
};

LLAMAY_LANES mask16 first_lanes(int n) {
  const __m256i at = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n), at)),
          _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), at))};
}
LLAMAY_LANES mask16 both(mask16 a, mask16 b) {
  return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}

LLAMAY_LANES f32x16 splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LLAMAY_LANES i32x16 splat(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
LLAMAY_LANES f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LLAMAY_LANES f32x16 load(const float* p, int n) {
  const mask16 m = first_lanes(n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.lo)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.hi))};
}
LLAMAY_LANES void store(float* p, f32x16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
LLAMAY_LANES void store(float* p, f32x16 a, int n) {
  if (n == 16) return store(p, a);  // several times as fast as under a mask
  const mask16 m = first_lanes(n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.lo), a.lo);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.hi), a.hi);
}

LLAMAY_LANES f32x16 operator+(f32x16 a, f32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
LLAMAY_LANES f32x16 operator-(f32x16 a, f32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
LLAMAY_LANES f32x16 operator*(f32x16 a, f32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
LLAMAY_LANES f32x16 operator/(f32x16 a, f32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
LLAMAY_LANES f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
LLAMAY_LANES f32x16 max(f32x16 a, f32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
LLAMAY_LANES f32x16 min(f32x16 a, f32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
LLAMAY_LANES f32x16 rint(f32x16 a) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, nearest), _mm256_round_ps(a.hi, nearest)};
}
LLAMAY_LANES f32x16 sqrt(f32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
LLAMAY_LANES f32x16 negate(f32x16 a) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, bit), _mm256_xor_ps(a.hi, bit)};
}
LLAMAY_LANES f32x16 abs(f32x16 a) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(bit, a.lo), _mm256_andnot_ps(bit, a.hi)};
}
LLAMAY_LANES f32x16 copysign(f32x16 magnitude, f32x16 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.lo), _mm256_and_ps(bit, sign.lo)),
          _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.hi), _mm256_and_ps(bit, sign.hi))};
}

LLAMAY_LANES mask16 less(f32x16 a, f32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
LLAMAY_LANES mask16 is_nan(f32x16 a) {
  return {_mm256_cmp_ps(a.lo, a.lo, _CMP_UNORD_Q), _mm256_cmp_ps(a.hi, a.hi, _CMP_UNORD_Q)};
}
LLAMAY_LANES f32x16 select(mask16 m, f32x16 yes, f32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

LLAMAY_LANES __m256 power2(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
LLAMAY_LANES __m256 scale2_half(__m256 a, __m256 n) {
  // Two steps: the first is exact, so that a denormal result is rounded by the second alone.
  const __m256i whole = _mm256_cvtps_epi32(n), first = _mm256_srai_epi32(whole, 1);
  return _mm256_mul_ps(_mm256_mul_ps(a, power2(first)), power2(_mm256_sub_epi32(whole, first)));
}
/// a * 2^n, rounded once. n: whole numbers, -160..160; a: 0.5..2.
LLAMAY_LANES f32x16 scale2(f32x16 a, f32x16 n) { return {scale2_half(a.lo, n.lo), scale2_half(a.hi, n.hi)}; }

/// The whole number n with 2^n <= a < 2^(n + 1), for a that is positive, finite and not denormal; undefined
/// for other values.
LLAMAY_LANES f32x16 exponent(f32x16 a) {
  const __m256i bias = _mm256_set1_epi32(127);
  const auto half = [bias](__m256 v) {
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_srli_epi32(_mm256_castps_si256(v), 23), bias));
  };
  return {half(a.lo), half(a.hi)};
}

/// Swaps lanes 0 and 1, 2 and 3, and so on.
LLAMAY_LANES f32x16 swap_pairs(f32x16 a) {
  return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
}

LLAMAY_LANES f32x16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
LLAMAY_LANES f32x16 load_f16(const uint16_t* p, int n) {
  uint16_t h[16] = {};
  memcpy(h, p, static_cast<size_t>(n) * sizeof *h);
  return load_f16(h);
}
LLAMAY_LANES void store_f16(uint16_t* p, f32x16 a, int n) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m128i lo = _mm256_cvtps_ph(a.lo, nearest), hi = _mm256_cvtps_ph(a.hi, nearest);
  if (n == 16) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), lo);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), hi);
    return;
  }
  uint16_t h[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h), lo);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(h + 8), hi);
  memcpy(p, h, static_cast<size_t>(n) * sizeof *h);
}

LLAMAY_LANES __m256 low8(f32x16 v) { return v.lo; }
LLAMAY_LANES __m256 high8(f32x16 v) { return v.hi; }

}  // namespace
}  // namespace llamay
