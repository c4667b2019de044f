#pragma once

#include <string.h>

#define LLAMAY_LANES [[maybe_unused]] inline __attribute__((always_inline))

namespace llamay {
namespace {

struct f32x16 {
  float v[16];
};
struct i32x16 {
  int32_t v[16];
};
struct mask16 {
  bool v[16];
};

template <class F>
LLAMAY_LANES f32x16 each(F f) {
  f32x16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = f(i);
  return out;
}
template <class F>
LLAMAY_LANES mask16 each_mask(F f) {
  mask16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = f(i);
  return out;
}

LLAMAY_LANES uint32_t bits_of(float x) {
  uint32_t u;
  memcpy(&u, &x, sizeof u);
  return u;
}
LLAMAY_LANES float from_bits(uint32_t u) {
  float x;
  memcpy(&x, &u, sizeof x);
  return x;
}

LLAMAY_LANES mask16 first_lanes(int n) {
  return each_mask([=](int i) { return i < n; });
}
LLAMAY_LANES mask16 both(mask16 a, mask16 b) {
  return each_mask([&](int i) { return a.v[i] && b.v[i]; });
}

LLAMAY_LANES f32x16 splat(float x) {
  return each([=](int) { return x; });
}
LLAMAY_LANES i32x16 splat(int32_t x) {
  i32x16 out;
  for (int i = 0; i < 16; ++i) out.v[i] = x;
  return out;
}
LLAMAY_LANES f32x16 load(const float* p) {
  f32x16 out;
  memcpy(out.v, p, sizeof out.v);
  return out;
}
LLAMAY_LANES f32x16 load(const float* p, int n) {
  f32x16 out = {};
  memcpy(out.v, p, static_cast<size_t>(n) * sizeof(float));
  return out;
}
LLAMAY_LANES void store(float* p, f32x16 a) { memcpy(p, a.v, sizeof a.v); }
LLAMAY_LANES void store(float* p, f32x16 a, int n) { memcpy(p, a.v, static_cast<size_t>(n) * sizeof(float)); }

LLAMAY_LANES f32x16 operator+(f32x16 a, f32x16 b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
LLAMAY_LANES f32x16 operator-(f32x16 a, f32x16 b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
LLAMAY_LANES f32x16 operator*(f32x16 a, f32x16 b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
LLAMAY_LANES f32x16 operator/(f32x16 a, f32x16 b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
LLAMAY_LANES f32x16 fma(f32x16 a, f32x16 b, f32x16 c) {
  return each([&](int i) { return __builtin_fmaf(a.v[i], b.v[i], c.v[i]); });
}
LLAMAY_LANES f32x16 max(f32x16 a, f32x16 b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
LLAMAY_LANES f32x16 min(f32x16 a, f32x16 b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
LLAMAY_LANES f32x16 rint(f32x16 a) {
  return each([&](int i) { return __builtin_rintf(a.v[i]); });
}
LLAMAY_LANES f32x16 sqrt(f32x16 a) {
  return each([&](int i) { return __builtin_sqrtf(a.v[i]); });
}
LLAMAY_LANES f32x16 negate(f32x16 a) {
  return each([&](int i) { return -a.v[i]; });
}
LLAMAY_LANES f32x16 abs(f32x16 a) {
  return each([&](int i) { return __builtin_fabsf(a.v[i]); });
}
LLAMAY_LANES f32x16 copysign(f32x16 magnitude, f32x16 sign) {
  return each([&](int i) { return __builtin_copysignf(magnitude.v[i], sign.v[i]); });
}

LLAMAY_LANES mask16 less(f32x16 a, f32x16 b) {
  return each_mask([&](int i) { return a.v[i] < b.v[i]; });
}
LLAMAY_LANES mask16 is_nan(f32x16 a) {
  return each_mask([&](int i) { return a.v[i] != a.v[i]; });
}
LLAMAY_LANES f32x16 select(mask16 m, f32x16 yes, f32x16 no) {
  return each([&](int i) { return m.v[i] ? yes.v[i] : no.v[i]; });
}

LLAMAY_LANES float power2(int32_t n) { return from_bits(static_cast<uint32_t>(n + 127) << 23); }
/// a * 2^n, rounded once. n: whole numbers, -160..160; a: 0.5..2.
LLAMAY_LANES f32x16 scale2(f32x16 a, f32x16 n) {
  return each([&](int i) {
    // Two steps: the first is exact, so that a denormal result is rounded by the second alone.
    const int32_t whole = static_cast<int32_t>(n.v[i]), first = whole >> 1;
    return a.v[i] * power2(first) * power2(whole - first);
  });
}

/// The whole number n with 2^n <= a < 2^(n + 1), for a that is positive, finite and not denormal; undefined
/// for other values.
LLAMAY_LANES f32x16 exponent(f32x16 a) {
  return each([&](int i) { return static_cast<float>(static_cast<int32_t>(bits_of(a.v[i]) >> 23) - 127); });
}

/// Swaps lanes 0 and 1, 2 and 3, and so on.
LLAMAY_LANES f32x16 swap_pairs(f32x16 a) {
  return each([&](int i) { return a.v[i ^ 1]; });
}

LLAMAY_LANES float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, magnitude = h & 0x7fff;
  if (magnitude >= 0x7c00) return from_bits(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  // With the bits in a float's places the exponent is 112 too small: one exact product corrects that, for
  // denormals too.
  return from_bits(sign | bits_of(from_bits(magnitude << 13) * 0x1p112f));
}
LLAMAY_LANES uint16_t to_f16(float x) {
  const uint32_t bits = bits_of(x), magnitude = bits & 0x7fffffff;
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (magnitude < 0x38800000) {
    // The float adder rounds to multiples of 2^-24, the unit of a binary16 denormal.
    return static_cast<uint16_t>(sign | (bits_of(from_bits(magnitude) + 0.5f) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | ((rounded >> 13) - (112u << 10)));
}

LLAMAY_LANES f32x16 load_f16(const uint16_t* p) {
  return each([&](int i) { return from_f16(p[i]); });
}
LLAMAY_LANES f32x16 load_f16(const uint16_t* p, int n) {
  return each([&](int i) { return i < n ? from_f16(p[i]) : 0.0f; });
}
LLAMAY_LANES void store_f16(uint16_t* p, f32x16 a, int n) {
  for (int i = 0; i < n; ++i) p[i] = to_f16(a.v[i]);
}

}  // namespace
}  // namespace llamay
