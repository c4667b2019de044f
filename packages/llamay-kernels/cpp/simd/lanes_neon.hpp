#pragma once

#include <arm_neon.h>
#include <string.h>

#define LLAMAY_LANES [[maybe_unused]] inline __attribute__((always_inline))

namespace llamay {
namespace {

struct f32x16 {
  float32x4_t v[4];
};
struct i32x16 {
  int32x4_t v[4];
};
struct mask16 {
  uint32x4_t v[4];
};

template <class F>
LLAMAY_LANES f32x16 each(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}
template <class F>
LLAMAY_LANES mask16 each_mask(F f) {
  return {{f(0), f(1), f(2), f(3)}};
}

LLAMAY_LANES mask16 first_lanes(int n) {
  const int32x4_t at = {0, 1, 2, 3};
  return each_mask([=](int i) { return vcgtq_s32(vdupq_n_s32(n - 4 * i), at); });
}
LLAMAY_LANES mask16 both(mask16 a, mask16 b) {
  return each_mask([&](int i) { return vandq_u32(a.v[i], b.v[i]); });
}
/// Bit i: whether lane i is set.
LLAMAY_LANES uint32_t lane_bits(mask16 m) {
  const uint32x4_t weight = {1, 2, 4, 8};
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= vaddvq_u32(vandq_u32(m.v[i], weight)) << 4 * i;
  return bits;
}

LLAMAY_LANES f32x16 splat(float x) {
  return each([=](int) { return vdupq_n_f32(x); });
}
LLAMAY_LANES i32x16 splat(int32_t x) {
  return {{vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x), vdupq_n_s32(x)}};
}
LLAMAY_LANES f32x16 load(const float* p) {
  return each([=](int i) { return vld1q_f32(p + 4 * i); });
}
LLAMAY_LANES f32x16 load(const float* p, int n) {
  if (n == 16) return load(p);
  float lanes[16] = {};
  memcpy(lanes, p, static_cast<size_t>(n) * sizeof *lanes);
  return load(lanes);
}
LLAMAY_LANES void store(float* p, f32x16 a) {
  for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
}
LLAMAY_LANES void store(float* p, f32x16 a, int n) {
  if (n == 16) return store(p, a);
  float lanes[16];
  store(lanes, a);
  memcpy(p, lanes, static_cast<size_t>(n) * sizeof *lanes);
}

LLAMAY_LANES f32x16 operator+(f32x16 a, f32x16 b) {
  return each([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
}
LLAMAY_LANES f32x16 operator-(f32x16 a, f32x16 b) {
  return each([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
}
LLAMAY_LANES f32x16 operator*(f32x16 a, f32x16 b) {
  return each([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
}
LLAMAY_LANES f32x16 operator/(f32x16 a, f32x16 b) {
  return each([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
}
LLAMAY_LANES f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return each([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
}
/// a > b ? a : b: the processor's own maximum treats NaN otherwise.
LLAMAY_LANES f32x16 max(f32x16 a, f32x16 b) {
  return each([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
LLAMAY_LANES f32x16 min(f32x16 a, f32x16 b) {
  return each([&](int i) { return vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
}
LLAMAY_LANES f32x16 rint(f32x16 a) {
  return each([&](int i) { return vrndnq_f32(a.v[i]); });
}
LLAMAY_LANES f32x16 sqrt(f32x16 a) {
  return each([&](int i) { return vsqrtq_f32(a.v[i]); });
}
LLAMAY_LANES f32x16 negate(f32x16 a) {
  return each([&](int i) { return vnegq_f32(a.v[i]); });
}
LLAMAY_LANES f32x16 abs(f32x16 a) {
  return each([&](int i) { return vabsq_f32(a.v[i]); });
}
LLAMAY_LANES f32x16 copysign(f32x16 magnitude, f32x16 sign) {
  return each([&](int i) { return vbslq_f32(vdupq_n_u32(0x80000000u), sign.v[i], magnitude.v[i]); });
}

LLAMAY_LANES mask16 less(f32x16 a, f32x16 b) {
  return each_mask([&](int i) { return vcltq_f32(a.v[i], b.v[i]); });
}
LLAMAY_LANES mask16 is_nan(f32x16 a) {
  return each_mask([&](int i) { return vmvnq_u32(vceqq_f32(a.v[i], a.v[i])); });
}
LLAMAY_LANES f32x16 select(mask16 m, f32x16 yes, f32x16 no) {
  return each([&](int i) { return vbslq_f32(m.v[i], yes.v[i], no.v[i]); });
}

LLAMAY_LANES float32x4_t power2(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
/// a * 2^n, rounded once. n: whole numbers, -160..160; a: 0.5..2.
LLAMAY_LANES f32x16 scale2(f32x16 a, f32x16 n) {
  return each([&](int i) {
    // Two steps: the first is exact, so that a denormal result is rounded by the second alone.
    const int32x4_t whole = vcvtnq_s32_f32(n.v[i]), first = vshrq_n_s32(whole, 1);
    return vmulq_f32(vmulq_f32(a.v[i], power2(first)), power2(vsubq_s32(whole, first)));
  });
}

/// The whole number n with 2^n <= a < 2^(n + 1), for a that is positive, finite and not denormal; undefined
/// for other values.
LLAMAY_LANES f32x16 exponent(f32x16 a) {
  return each([&](int i) {
    const uint32x4_t biased = vshrq_n_u32(vreinterpretq_u32_f32(a.v[i]), 23);
    return vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(biased), vdupq_n_s32(127)));
  });
}

/// Swaps lanes 0 and 1, 2 and 3, and so on.
LLAMAY_LANES f32x16 swap_pairs(f32x16 a) {
  return each([&](int i) { return vrev64q_f32(a.v[i]); });
}

LLAMAY_LANES f32x16 load_f16(const uint16_t* p) {
  return each([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i))); });
}
LLAMAY_LANES f32x16 load_f16(const uint16_t* p, int n) {
  if (n == 16) return load_f16(p);
  uint16_t h[16] = {};
  memcpy(h, p, static_cast<size_t>(n) * sizeof *h);
  return load_f16(h);
}
LLAMAY_LANES void store_f16(uint16_t* p, f32x16 a, int n) {
  uint16_t h[16];
  for (int i = 0; i < 4; ++i) vst1_u16(h + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
  memcpy(p, h, static_cast<size_t>(n) * sizeof *h);
}

}  // namespace
}  // namespace llamay
