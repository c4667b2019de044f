#pragma once

#include <arm_neon.h>

// vector.hpp for NEON. One type serves for bytes and for integers of 16 and 32 bits, as on x86.

namespace llamay {
namespace {

using Bytes = int32x4_t;     // 16 bytes, or 8 integers of 16 bits
using Ints = int32x4_t;      // 4 integers of 32 bits
using Floats = float32x4_t;  // 4 floats
constexpr int kLanes = 4;

LLAMAY_INLINE uint8x16_t as_u8(Bytes v) { return vreinterpretq_u8_s32(v); }
LLAMAY_INLINE int8x16_t as_s8(Bytes v) { return vreinterpretq_s8_s32(v); }
LLAMAY_INLINE uint16x8_t as_u16(Bytes v) { return vreinterpretq_u16_s32(v); }
LLAMAY_INLINE int16x8_t as_s16(Bytes v) { return vreinterpretq_s16_s32(v); }

LLAMAY_INLINE Bytes load_bytes(const void* at) {
  return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t*>(at)));
}
/// The same as load_bytes: no NEON instruction that computes reads memory.
LLAMAY_INLINE Bytes load_once(const void* at) { return load_bytes(at); }
LLAMAY_INLINE Bytes repeat4(const void* four_bytes) { return vdupq_n_s32(load_i32(four_bytes)); }
LLAMAY_INLINE Bytes repeat_byte(int value) {
  return vreinterpretq_s32_u8(vdupq_n_u8(static_cast<uint8_t>(value)));
}
LLAMAY_INLINE Bytes repeat_i16(int value) {
  return vreinterpretq_s32_s16(vdupq_n_s16(static_cast<int16_t>(value)));
}
LLAMAY_INLINE Bytes and_(Bytes a, Bytes b) { return vandq_s32(a, b); }
LLAMAY_INLINE Bytes xor_(Bytes a, Bytes b) { return veorq_s32(a, b); }
/// a | (b & mask)
LLAMAY_INLINE Bytes or_masked(Bytes a, Bytes b, Bytes mask) { return vorrq_s32(a, vandq_s32(b, mask)); }
LLAMAY_INLINE Bytes look_up(const uint8_t* table, Bytes codes) {
  return vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table), as_u8(codes)));
}
template <int n>
LLAMAY_INLINE Bytes shift_left16(Bytes a) {
  return vreinterpretq_s32_u16(vshlq_n_u16(as_u16(a), n));
}
template <int n>
LLAMAY_INLINE Bytes shift_right16(Bytes a) {
  if constexpr (n == 0)
    return a;
  else
    return vreinterpretq_s32_u16(vshrq_n_u16(as_u16(a), n));
}
template <int n>
LLAMAY_INLINE Ints shift_left32(Ints a) {
  return vshlq_n_s32(a, n);
}
/// An arithmetic shift: copies of the sign are shifted in.
template <int n>
LLAMAY_INLINE Ints shift_right32(Ints a) {
  return vshrq_n_s32(a, n);
}
LLAMAY_INLINE Ints zero() { return vdupq_n_s32(0); }
LLAMAY_INLINE Ints add32(Ints a, Ints b) { return vaddq_s32(a, b); }
LLAMAY_INLINE Ints sub32(Ints a, Ints b) { return vsubq_s32(a, b); }
LLAMAY_INLINE Ints mul32(Ints a, Ints b) { return vmulq_s32(a, b); }
/// 16-bit products, neighbours added in 32 bits.
LLAMAY_INLINE Ints mul_pairs(Bytes a, Bytes b) {
  return vpaddq_s32(vmull_s16(vget_low_s16(as_s16(a)), vget_low_s16(as_s16(b))),
                    vmull_high_s16(as_s16(a), as_s16(b)));
}
LLAMAY_INLINE uint16x8_t widen_four_u8(const void* at) {
  return vmovl_u8(vreinterpret_u8_s32(vdup_n_s32(load_i32(at))));
}
LLAMAY_INLINE int16x8_t widen_four_i8(const void* at) {
  return vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(load_i32(at))));
}
LLAMAY_INLINE Ints widen_u8(const uint8_t* at) {
  return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(widen_four_u8(at))));
}
LLAMAY_INLINE Ints widen_i8(const int8_t* at) { return vmovl_s16(vget_low_s16(widen_four_i8(at))); }
LLAMAY_INLINE Bytes widen_u8_pairs(const uint8_t* at) { return vreinterpretq_s32_u16(vmovl_u8(vld1_u8(at))); }
LLAMAY_INLINE Bytes widen_i8_pairs(const int8_t* at) { return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(at))); }
LLAMAY_INLINE Floats widen_f16(const uint16_t* at) {
  return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(at)));
}
LLAMAY_INLINE Floats widen_bf16(const uint16_t* at) {
  return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at), 16));
}
LLAMAY_INLINE Floats load_floats(const float* at) { return vld1q_f32(at); }
LLAMAY_INLINE Floats repeat(float value) { return vdupq_n_f32(value); }
LLAMAY_INLINE Floats to_float(Ints a) { return vcvtq_f32_s32(a); }
LLAMAY_INLINE Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
LLAMAY_INLINE Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
LLAMAY_INLINE Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
/// -(a * b) + c, rounded once
LLAMAY_INLINE Floats fnma(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }
LLAMAY_INLINE Floats zero_floats() { return vdupq_n_f32(0); }

/// The first n lanes, 1 <= n <= kLanes; nothing beyond them is touched.
LLAMAY_INLINE Floats load_some(const float* at, int n) {
  if (n >= kLanes) return vld1q_f32(at);
  float lanes[kLanes] = {};
  for (int i = 0; i < n; ++i) lanes[i] = at[i];
  return vld1q_f32(lanes);
}
LLAMAY_INLINE void store_some(float* at, Floats a, int n) {
  if (n >= kLanes) return vst1q_f32(at, a);
  float lanes[kLanes];
  vst1q_f32(lanes, a);
  for (int i = 0; i < n; ++i) at[i] = lanes[i];
}

}  // namespace
}  // namespace llamay
