#pragma once

#include <immintrin.h>
#include <string.h>

#define LLAMAY_LANES [[maybe_unused]] inline __attribute__((always_inline))

namespace llamay {
namespace {

struct f32x16 {
  __m512 v;
};
struct i32x16 {
  __m512i v;
};
using mask16 = __mmask16;

LLAMAY_LANES mask16 first_lanes(int n) { return static_cast<mask16>((1u << n) - 1); }
LLAMAY_LANES mask16 both(mask16 a, mask16 b) { return a & b; }

LLAMAY_LANES f32x16 splat(float x) { return {_mm512_set1_ps(x)}; }
LLAMAY_LANES i32x16 splat(int32_t x) { return {_mm512_set1_epi32(x)}; }
LLAMAY_LANES f32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
LLAMAY_LANES f32x16 load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
LLAMAY_LANES void store(float* p, f32x16 a) { _mm512_storeu_ps(p, a.v); }
/// A store under a mask takes several times as long as a whole one, and a load of the stored values has to
/// wait until they have reached the cache.
LLAMAY_LANES void store(float* p, f32x16 a, int n) {
  if (n == 16)
    _mm512_storeu_ps(p, a.v);
  else
    _mm512_mask_storeu_ps(p, first_lanes(n), a.v);
}

LLAMAY_LANES f32x16 operator+(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
LLAMAY_LANES f32x16 operator-(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
LLAMAY_LANES f32x16 operator*(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
LLAMAY_LANES f32x16 operator/(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
LLAMAY_LANES f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LLAMAY_LANES f32x16 max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
LLAMAY_LANES f32x16 min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
LLAMAY_LANES f32x16 rint(f32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
LLAMAY_LANES f32x16 sqrt(f32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
LLAMAY_LANES f32x16 negate(f32x16 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
LLAMAY_LANES f32x16 abs(f32x16 a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
LLAMAY_LANES f32x16 copysign(f32x16 magnitude, f32x16 sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}

LLAMAY_LANES mask16 less(f32x16 a, f32x16 b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
LLAMAY_LANES mask16 is_nan(f32x16 a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q); }
LLAMAY_LANES f32x16 select(mask16 m, f32x16 yes, f32x16 no) { return {_mm512_mask_blend_ps(m, no.v, yes.v)}; }

/// a * 2^n, rounded once. n: whole numbers, -160..160; a: 0.5..2.
LLAMAY_LANES f32x16 scale2(f32x16 a, f32x16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }

/// The whole number n with 2^n <= a < 2^(n + 1), for a that is positive, finite and not denormal; undefined
/// for other values.
LLAMAY_LANES f32x16 exponent(f32x16 a) { return {_mm512_getexp_ps(a.v)}; }

/// Swaps lanes 0 and 1, 2 and 3, and so on.
LLAMAY_LANES f32x16 swap_pairs(f32x16 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }

LLAMAY_LANES f32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
LLAMAY_LANES f32x16 load_f16(const uint16_t* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
LLAMAY_LANES void store_f16(uint16_t* p, f32x16 a, int n) {
  const __m256i h = _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  if (n == 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), h);
  else
    _mm256_mask_storeu_epi16(p, first_lanes(n), h);
}

/// Not _mm512_castps512_ps256, for whose undefined operand GCC 12 warns wherever it is inlined into a loop.
LLAMAY_LANES __m256 low8(f32x16 v) {
  __m256 low;
  memcpy(&low, &v.v, sizeof low);
  return low;
}
LLAMAY_LANES __m256 high8(f32x16 v) { return _mm512_extractf32x8_ps(v.v, 1); }

}  // namespace
}  // namespace llamay
