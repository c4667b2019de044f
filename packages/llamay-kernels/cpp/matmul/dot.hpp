#pragma once

#include "vector.hpp"

#ifdef LLAMAY_VECTOR

// Exact dot products of unsigned weight bytes and signed activation bytes, four k a lane.
//
// With VNNI one instruction adds them to 32 bits. Without it the products of neighbours are added in 16 bits
// by an instruction that saturates, so what is added there must be bounded. Activations lie in -127..127. A
// weight of at most w makes |sum of two products| <= 254 w, and `fours` such sums may be added while
// 254 w * fours <= 32767:
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

#ifdef __AVX512VNNI__
#define LLAMAY_DOT32
LLAMAY_INLINE Ints dot4(Ints sum, Bytes weights, Bytes activations) {
  return _mm512_dpbusd_epi32(sum, weights, activations);
}
LLAMAY_INLINE Ints add_pairs(Ints sum, Bytes a, Bytes b) { return _mm512_dpwssd_epi32(sum, a, b); }
#else
LLAMAY_INLINE Ints add_pairs(Ints sum, Bytes a, Bytes b) { return add32(sum, mul_pairs(a, b)); }
#endif

/// The nibbles for k = 4 * four..4 * four + 3 of a block.
template <int four>
LLAMAY_INLINE Bytes nibbles(const uint8_t* vectors) {
  const Bytes both = load_once(vectors + 64 * (four / 2)), mask = repeat_byte(15);
  if constexpr (four % 2 == 0)
    return and_(both, mask);
  else
    return and_(shift_right16<4>(both), mask);
}

/// q | (bits [from, from + width) of each byte of `high`, moved to bit `to` and up). 16-bit shifts serve:
/// what crosses from the other byte of a pair lands outside the mask.
template <int from, int width, int to>
LLAMAY_INLINE Bytes with_high_bits(Bytes q, Bytes high) {
  const Bytes mask = repeat_byte(((1 << width) - 1) << to);
  if constexpr (from <= to)
    return or_masked(q, shift_left16<to - from>(high), mask);
  else
    return or_masked(q, shift_right16<from - to>(high), mask);
}

}  // namespace
}  // namespace llamay
#endif
