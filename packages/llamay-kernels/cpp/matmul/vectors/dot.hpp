#pragma once

#include "matmul/vectors/vector.hpp"

#ifdef LLAMAY_VECTOR

// Exact dot products of unsigned weight bytes and signed activation bytes, four k a lane.
//
// With VNNI one instruction adds the products in 32 bits. Without it an instruction that saturates adds the
// products of neighbours in 16 bits, so these sums must be bounded. Activations lie in -127..127. A weight of
// at most w makes |sum of two products| <= 254 w, and `fours` such sums may be added while 254 w * fours <=
// 32767:
//   w = 15 (4 bits): 3810 * 8 = 30480
//   w = 31 (5 bits): 7874 * 4 = 31496
//   w = 63 (6 bits): 16002 * 2 = 32004
//   w = 126 (IQ3_XXS): 32004 once
// Bytes up to 255 (Q8_0, IQ4_NL, IQ4_XS) do not fit even once; they are multiplied as two nibbles, each of
// the first kind.

namespace llamay {
namespace {

constexpr int fours_in_16_bits(int highest) { return 32767 / (254 * highest); }
static_assert(fours_in_16_bits(15) == 8 && fours_in_16_bits(31) == 4 && fours_in_16_bits(63) == 2);

// LLAMAY_DOT32: dot4 adds to 32 bits at once. LLAMAY_SIGNED_WEIGHTS: it takes weights as signed bytes.
#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define LLAMAY_DOT32
LLAMAY_INLINE Ints dot4(Ints sum, Bytes weights, Bytes activations) {
  return _mm512_dpbusd_epi32(sum, weights, activations);
}
LLAMAY_INLINE Ints add_pairs(Ints sum, Bytes a, Bytes b) { return _mm512_dpwssd_epi32(sum, a, b); }
#elif defined(__AVXVNNI__)
#define LLAMAY_DOT32
LLAMAY_INLINE Ints dot4(Ints sum, Bytes weights, Bytes activations) {
  return _mm256_dpbusd_avx_epi32(sum, weights, activations);
}
LLAMAY_INLINE Ints add_pairs(Ints sum, Bytes a, Bytes b) { return _mm256_dpwssd_avx_epi32(sum, a, b); }
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__)
// The same instructions in their longer encoding, so that a processor without the short one can test the set
// above.
#define LLAMAY_DOT32
LLAMAY_INLINE Ints dot4(Ints sum, Bytes weights, Bytes activations) {
  return _mm256_dpbusd_epi32(sum, weights, activations);
}
LLAMAY_INLINE Ints add_pairs(Ints sum, Bytes a, Bytes b) { return _mm256_dpwssd_epi32(sum, a, b); }
#else
LLAMAY_INLINE Ints add_pairs(Ints sum, Bytes a, Bytes b) { return add32(sum, mul_pairs(a, b)); }
#endif

#ifdef LLAMAY_NEON
#define LLAMAY_DOT32
#if defined(__ARM_FEATURE_MATMUL_INT8)
LLAMAY_INLINE Ints dot4(Ints sum, Bytes weights, Bytes activations) {
  return vusdotq_s32(sum, as_u8(weights), as_s8(activations));
}
#elif defined(__ARM_FEATURE_DOTPROD)
#define LLAMAY_SIGNED_WEIGHTS
LLAMAY_INLINE Ints dot4(Ints sum, Bytes weights, Bytes activations) {
  return vdotq_s32(sum, as_s8(weights), as_s8(activations));
}
#else
#define LLAMAY_SIGNED_WEIGHTS
/// Two products fit 16 bits: 2 * 128 * 127 = 32512.
LLAMAY_INLINE Ints dot4(Ints sum, Bytes weights, Bytes activations) {
  const int8x16_t w = as_s8(weights), a = as_s8(activations);
  return vpadalq_s16(sum, vpaddq_s16(vmull_s8(vget_low_s8(w), vget_low_s8(a)), vmull_high_s8(w, a)));
}
#endif
#endif

#ifdef LLAMAY_DOT32
constexpr bool kByteDot = true;
#else
constexpr bool kByteDot = false;
#endif

/// The nibbles for k = 4 * four..4 * four + 3 of the vectors that start here.
template <int four>
LLAMAY_INLINE Bytes nibbles(const uint8_t* vectors) {
  const Bytes both = load_once(vectors + 64 * (four / 2)), mask = repeat_byte(15);
  if constexpr (four % 2 == 0)
    return and_(both, mask);
  else
    return and_(shift_right16<4>(both), mask);
}

/// q | (bits [from, from + width) of each byte of `high`, moved to bit `to` and up). 16-bit shifts serve:
/// bits that cross from the other byte of a pair land outside the mask.
template <int from, int width, int to>
LLAMAY_INLINE Bytes with_high_bits(Bytes q, Bytes high) {
  const Bytes mask = repeat_byte(((1 << width) - 1) << to);
  if constexpr (from <= to)
    return or_masked(q, shift_left16<to - from>(high), mask);
  else
    return or_masked(q, shift_right16<from - to>(high), mask);
}

#ifdef LLAMAY_DOT32

/// sum[g][n] += weights times activations, over fours [from, to) of sub-block s. q: where a sub-block's
/// activations start. Bits: bits.hpp.
template <class Bits, int from, int to, int G, int N>
LLAMAY_INLINE void add_byte_dots(const uint8_t* const (&vectors)[G], size_t s, const int8_t* const (&q)[N],
                                 Ints (&sum)[G][N]) {
#if defined(LLAMAY_NEON) && defined(__ARM_FEATURE_MATMUL_INT8)
  if constexpr (N % 2 == 0) {
    // Two rows of weights by two of activations, eight k each, in one instruction: twice the products of a
    // dot product. The weights of eight k lie in two vectors, which are zipped; the results are taken apart
    // at the end.
    Ints upper[G][N / 2], lower[G][N / 2];
    for (int g = 0; g < G; ++g)
      for (int n = 0; n < N / 2; ++n) upper[g][n] = lower[g][n] = zero();
    unrolled<(to - from) / 2>([&](auto two) __attribute__((always_inline)) {
      constexpr int at = from + 2 * decltype(two)::value;
      Bytes first[G], second[G];
      for (int g = 0; g < G; ++g) {
        const Bytes a = Bits::template weight<at>(vectors[g], s),
                    b = Bits::template weight<at + 1>(vectors[g], s);
        first[g] = vzip1q_s32(a, b);
        second[g] = vzip2q_s32(a, b);
      }
      for (int n = 0; n < N / 2; ++n) {
        const int8x16_t x = vcombine_s8(vld1_s8(q[2 * n] + 4 * at), vld1_s8(q[2 * n + 1] + 4 * at));
        for (int g = 0; g < G; ++g) {
          upper[g][n] = vusmmlaq_s32(upper[g][n], as_u8(first[g]), x);
          lower[g][n] = vusmmlaq_s32(lower[g][n], as_u8(second[g]), x);
        }
      }
    });
    for (int g = 0; g < G; ++g)
      for (int n = 0; n < N / 2; ++n) {
        sum[g][2 * n] = add32(sum[g][2 * n], vuzp1q_s32(upper[g][n], lower[g][n]));
        sum[g][2 * n + 1] = add32(sum[g][2 * n + 1], vuzp2q_s32(upper[g][n], lower[g][n]));
      }
    return;
  }
#endif
  unrolled<to - from>([&](auto four) __attribute__((always_inline)) {
    constexpr int at = from + decltype(four)::value;
    Bytes w[G];
    for (int g = 0; g < G; ++g) w[g] = Bits::template weight<at>(vectors[g], s);
    for (int n = 0; n < N; ++n) {
      const Bytes x = repeat4(q[n] + 4 * at);
      for (int g = 0; g < G; ++g) sum[g][n] = dot4(sum[g][n], w[g], x);
    }
  });
}

#endif

}  // namespace
}  // namespace llamay
#endif
