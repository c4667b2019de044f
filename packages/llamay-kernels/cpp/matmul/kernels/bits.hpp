#pragma once

#include "formats/codebook.hpp"
#include "matmul/vectors/dot.hpp"
#include "matmul/weights/packed.hpp"

#ifdef LLAMAY_VECTOR

// Unpacking of each layout of packed.hpp to bytes.
//
// weight<four>(vectors, s): the bytes for k = 4 * four..4 * four + 3 of sub-block s (32 k) of a block. A byte
// is the integer plus kOffset, and at most kHighest. Where that is 255 and there is no byte dot product,
// `halves` gives the two nibbles of the same byte.

namespace llamay {
namespace {

struct Nibbles {
  Bytes low, high;
};

struct FourBits {
  static constexpr int kHighest = 15;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    return nibbles<four>(vectors + vector_bytes(4) * s);
  }
};

struct FiveBits {
  static constexpr int kHighest = 31;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    vectors += vector_bytes(5) * s;
    const Bytes high = load_once(vectors);
    return with_high_bits<four, 1, 4>(nibbles<four>(vectors + low_bits(5, 0)), high);
  }
};

struct SixBits {
  static constexpr int kHighest = 63;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    vectors += vector_bytes(6) * s;
    const Bytes high = load_once(vectors + 192 * (four / 4));
    return with_high_bits<four % 4 * 2, 2, 4>(nibbles<four % 4>(vectors + low_bits(6, four / 4)), high);
  }
};

struct EightBits {
  static constexpr int kHighest = 255;
#ifdef LLAMAY_SIGNED_WEIGHTS
  static constexpr int kOffset = 0;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t) {
    return xor_(load_bytes(vectors + 64 * four), repeat_byte(0x80));
  }
#else
  static constexpr int kOffset = 128;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t) {
    return load_bytes(vectors + 64 * four);
  }
#endif
  template <int four>
  static LLAMAY_INLINE Nibbles halves(const uint8_t* vectors, size_t) {
    const Bytes w = load_bytes(vectors + 64 * four), mask = repeat_byte(15);
    return {and_(w, mask), and_(shift_right16<4>(w), mask)};
  }
};

/// The two low bits of each of 32 k.
template <int four>
LLAMAY_INLINE Bytes two_bits(const uint8_t* vectors) {
  return and_(shift_right16<four % 4 * 2>(load_once(vectors + 64 * (four / 4))), repeat_byte(3));
}

struct TwoBits {
  static constexpr int kHighest = 3;
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    return two_bits<four>(vectors + vector_bytes(2) * s);
  }
};

struct ThreeBits {
  static constexpr int kHighest = 7;
  static constexpr int kOffset = 4;  // Q3_K
  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    vectors += vector_bytes(3) * s;
    const Bytes high = load_once(vectors);
    return with_high_bits<four, 1, 2>(two_bits<four>(vectors + low_bits(3, 0)), high);
  }
};

constexpr int log2_of(int power) { return power == 1 ? 0 : 1 + log2_of(power / 2); }

/// The bytes of a codebook: its integers plus `offset`, and the nibbles of these bytes.
struct Table {
  alignas(16) uint8_t byte[16], low[16], high[16];
};
constexpr Table table_of(Format format, int offset) {
  Table t{};
  const Codebook book = codebook(format);
  for (int i = 0; i < 16; ++i) {
    t.byte[i] = static_cast<uint8_t>(book.value[i] + offset);
    t.low[i] = t.byte[i] & 15;
    t.high[i] = t.byte[i] >> 4;
  }
  return t;
}
constexpr int largest(Format format) {
  int most = 0;
  for (const int v : codebook(format).value) most = v > most ? v : -v > most ? -v : most;
  return most;
}

/// Codes that are looked up. kOffset is the smallest power of two that makes the integers positive.
template <class Codes, Format format>
struct CodeBits {
#ifdef LLAMAY_SIGNED_WEIGHTS
  static constexpr int kOffset = 0;
#else
  static constexpr int kOffset = largest(format) > 64 ? 128 : largest(format) > 16 ? 64 : 16;
#endif
  static constexpr int kHighest = kOffset == 128 || largest(format) > 64 ? 255 : kOffset + largest(format);
  static constexpr Table kTable = table_of(format, kOffset);

  template <int four>
  static LLAMAY_INLINE Bytes weight(const uint8_t* vectors, size_t s) {
    return look_up(kTable.byte, Codes::template weight<four>(vectors, s));
  }
  template <int four>
  static LLAMAY_INLINE Nibbles halves(const uint8_t* vectors, size_t s) {
    const Bytes code = Codes::template weight<four>(vectors, s);
    return {look_up(kTable.low, code), look_up(kTable.high, code)};
  }
};

}  // namespace
}  // namespace llamay
#endif
