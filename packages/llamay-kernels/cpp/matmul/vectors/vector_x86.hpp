#pragma once

// vector.hpp for AVX-512 and for AVX2.

// GCC 12 takes the "undefined" operands inside its own intrinsics for uninitialised variables.
#pragma GCC diagnostic push
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop

namespace llamay {
namespace {

#if defined(__AVX512BW__)

using Bytes = __m512i;  // 64 bytes, or 32 integers of 16 bits
using Ints = __m512i;   // 16 integers of 32 bits
using Floats = __m512;  // 16 floats
constexpr int kLanes = 16;

LLAMAY_INLINE Bytes load_bytes(const void* at) { return _mm512_load_si512(at); }
/// Loaded once: the compiler would rather read memory again in every instruction that uses it, and loads are
/// scarce.
LLAMAY_INLINE Bytes load_once(const void* at) {
  Bytes v = load_bytes(at);
  __asm__("" : "+v"(v));
  return v;
}
LLAMAY_INLINE Bytes repeat4(const void* four_bytes) { return _mm512_set1_epi32(load_i32(four_bytes)); }
LLAMAY_INLINE Bytes repeat_byte(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
LLAMAY_INLINE Bytes repeat_i16(int value) { return _mm512_set1_epi16(static_cast<int16_t>(value)); }
LLAMAY_INLINE Bytes and_(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
LLAMAY_INLINE Bytes xor_(Bytes a, Bytes b) { return _mm512_xor_si512(a, b); }
/// a | (b & mask)
LLAMAY_INLINE Bytes or_masked(Bytes a, Bytes b, Bytes mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}
/// table[code] for each byte; codes are below 16.
LLAMAY_INLINE Bytes look_up(const uint8_t* table, Bytes codes) {
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(table))),
                             codes);
}
template <int n>
LLAMAY_INLINE Bytes shift_left16(Bytes a) {
  return _mm512_slli_epi16(a, n);
}
template <int n>
LLAMAY_INLINE Bytes shift_right16(Bytes a) {
  return _mm512_srli_epi16(a, n);
}
template <int n>
LLAMAY_INLINE Ints shift_left32(Ints a) {
  return _mm512_slli_epi32(a, n);
}
/// An arithmetic shift: copies of the sign are shifted in.
template <int n>
LLAMAY_INLINE Ints shift_right32(Ints a) {
  return _mm512_srai_epi32(a, n);
}
LLAMAY_INLINE Ints zero() { return _mm512_setzero_si512(); }
LLAMAY_INLINE Ints add32(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
LLAMAY_INLINE Ints sub32(Ints a, Ints b) { return _mm512_sub_epi32(a, b); }
/// Adds at once: the compiler would rather collect many products and add them as a tree, for which there are
/// too few registers.
LLAMAY_INLINE Bytes add16(Bytes sum, Bytes v) {
  sum = _mm512_add_epi16(sum, v);
  __asm__("" : "+v"(sum));
  return sum;
}
LLAMAY_INLINE Ints mul32(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
/// Unsigned bytes times signed bytes, neighbours added in 16 bits with saturation; dot.hpp says why the sums
/// never reach the limit.
LLAMAY_INLINE Bytes mul_bytes(Bytes u, Bytes s) { return _mm512_maddubs_epi16(u, s); }
/// 16-bit products, neighbours added in 32 bits.
LLAMAY_INLINE Ints mul_pairs(Bytes a, Bytes b) { return _mm512_madd_epi16(a, b); }
LLAMAY_INLINE Ints widen_u8(const uint8_t* at) {
  return _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}
LLAMAY_INLINE Ints widen_i8(const int8_t* at) {
  return _mm512_cvtepi8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}
LLAMAY_INLINE Bytes widen_u8_pairs(const uint8_t* at) {
  return _mm512_cvtepu8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}
LLAMAY_INLINE Bytes widen_i8_pairs(const int8_t* at) {
  return _mm512_cvtepi8_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}
LLAMAY_INLINE Floats widen_f16(const uint16_t* at) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
}
LLAMAY_INLINE Floats widen_bf16(const uint16_t* at) {
  const __m512i bits = _mm512_cvtepu16_epi32(_mm256_load_si256(reinterpret_cast<const __m256i*>(at)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
LLAMAY_INLINE Floats load_floats(const float* at) { return _mm512_load_ps(at); }
LLAMAY_INLINE Floats repeat(float value) { return _mm512_set1_ps(value); }
LLAMAY_INLINE Floats to_float(Ints a) { return _mm512_cvtepi32_ps(a); }
LLAMAY_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
LLAMAY_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
LLAMAY_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
/// -(a * b) + c, rounded once
LLAMAY_INLINE Floats fnma(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
LLAMAY_INLINE Floats zero_floats() { return _mm512_setzero_ps(); }

/// The first n lanes, 1 <= n <= kLanes; nothing beyond them is touched.
LLAMAY_INLINE Floats load_some(const float* at, int n) {
  return n >= kLanes ? _mm512_loadu_ps(at) : _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), at);
}
LLAMAY_INLINE void store_some(float* at, Floats a, int n) {
  if (n >= kLanes)
    _mm512_storeu_ps(at, a);
  else
    _mm512_mask_storeu_ps(at, static_cast<__mmask16>((1u << n) - 1), a);
}

#else

using Bytes = __m256i;
using Ints = __m256i;
using Floats = __m256;
constexpr int kLanes = 8;

LLAMAY_INLINE Bytes load_bytes(const void* at) { return _mm256_load_si256(static_cast<const __m256i*>(at)); }
/// With only sixteen registers, registers are scarcer than loads.
LLAMAY_INLINE Bytes load_once(const void* at) { return load_bytes(at); }
LLAMAY_INLINE Bytes repeat4(const void* four_bytes) { return _mm256_set1_epi32(load_i32(four_bytes)); }
LLAMAY_INLINE Bytes repeat_byte(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
LLAMAY_INLINE Bytes repeat_i16(int value) { return _mm256_set1_epi16(static_cast<int16_t>(value)); }
LLAMAY_INLINE Bytes and_(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
LLAMAY_INLINE Bytes xor_(Bytes a, Bytes b) { return _mm256_xor_si256(a, b); }
LLAMAY_INLINE Bytes or_masked(Bytes a, Bytes b, Bytes mask) {
  return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}
LLAMAY_INLINE Bytes look_up(const uint8_t* table, Bytes codes) {
  return _mm256_shuffle_epi8(
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(table))), codes);
}
template <int n>
LLAMAY_INLINE Bytes shift_left16(Bytes a) {
  return _mm256_slli_epi16(a, n);
}
template <int n>
LLAMAY_INLINE Bytes shift_right16(Bytes a) {
  return _mm256_srli_epi16(a, n);
}
template <int n>
LLAMAY_INLINE Ints shift_left32(Ints a) {
  return _mm256_slli_epi32(a, n);
}
/// An arithmetic shift: copies of the sign are shifted in.
template <int n>
LLAMAY_INLINE Ints shift_right32(Ints a) {
  return _mm256_srai_epi32(a, n);
}
LLAMAY_INLINE Ints zero() { return _mm256_setzero_si256(); }
LLAMAY_INLINE Ints add32(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
LLAMAY_INLINE Ints sub32(Ints a, Ints b) { return _mm256_sub_epi32(a, b); }
LLAMAY_INLINE Bytes add16(Bytes sum, Bytes v) {
  sum = _mm256_add_epi16(sum, v);
  __asm__("" : "+x"(sum));
  return sum;
}
LLAMAY_INLINE Ints mul32(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
LLAMAY_INLINE Bytes mul_bytes(Bytes u, Bytes s) { return _mm256_maddubs_epi16(u, s); }
LLAMAY_INLINE Ints mul_pairs(Bytes a, Bytes b) { return _mm256_madd_epi16(a, b); }
LLAMAY_INLINE Ints widen_u8(const uint8_t* at) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
LLAMAY_INLINE Ints widen_i8(const int8_t* at) {
  return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
LLAMAY_INLINE Bytes widen_u8_pairs(const uint8_t* at) {
  return _mm256_cvtepu8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}
LLAMAY_INLINE Bytes widen_i8_pairs(const int8_t* at) {
  return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}
LLAMAY_INLINE Floats widen_f16(const uint16_t* at) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
}
LLAMAY_INLINE Floats widen_bf16(const uint16_t* at) {
  const __m256i bits = _mm256_cvtepu16_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}
LLAMAY_INLINE Floats load_floats(const float* at) { return _mm256_load_ps(at); }
LLAMAY_INLINE Floats repeat(float value) { return _mm256_set1_ps(value); }
LLAMAY_INLINE Floats to_float(Ints a) { return _mm256_cvtepi32_ps(a); }
LLAMAY_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
LLAMAY_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
LLAMAY_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
LLAMAY_INLINE Floats fnma(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
LLAMAY_INLINE Floats zero_floats() { return _mm256_setzero_ps(); }

LLAMAY_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LLAMAY_INLINE Floats load_some(const float* at, int n) {
  return n >= kLanes ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first_lanes(n));
}
LLAMAY_INLINE void store_some(float* at, Floats a, int n) {
  if (n >= kLanes)
    _mm256_storeu_ps(at, a);
  else
    _mm256_maskstore_ps(at, first_lanes(n), a);
}

#endif

/// A lane's low 16 bits in both of its halves.
LLAMAY_INLINE Bytes pair_of(Ints a) {
#if defined(__AVX512BW__)
  return _mm512_mask_blend_epi16(0xaaaaaaaau, a, shift_left32<16>(a));
#else
  return _mm256_blend_epi16(a, shift_left32<16>(a), 0xaa);
#endif
}

}  // namespace
}  // namespace llamay
