#pragma once

#include "formats/format.hpp"

// The layout of sixteen rows of a weight, side by side.
//
// The unit is a vector of 64 bytes: four consecutive k of row 0, the same four of row 1, and so on to row 15.
// So a byte dot product instruction takes one vector and four activation bytes, repeated in every lane, and a
// lane is one output.
//
// F32, F16 and BF16: for each k 16 values. All others, for each 32 k of a block:
//
//   8 bits   8 vectors; a byte is the integer + 128
//   4 bits   4 vectors of nibbles: vector j holds k = 8j..8j+3 in the low, 8j+4..8j+7 in the high nibbles
//   5 bits   before them one vector: bit b of a byte is the fifth bit of k = 4b..4b+3
//   6 bits   before each 2 of them, which are 16 k, one: bits 2f, 2f+1 of a byte are the high bits of
//            k = 4f..4f+3
//   2 bits   2 vectors, one for each 16 k: bits 2f, 2f+1 of a byte are those of k = 4f..4f+3
//   3 bits   before them one vector: bit b of a byte is the third bit of k = 4b..4b+3
//
// The integers of formats with a codebook are codes: formats/codebook.hpp. Formats whose grids choose eight
// or four magnitudes at once are expanded to a code for each element; docs/formats.md has the sizes.
//
// A block is its scales (the structs below), then its vectors; where the scales would not fill whole cache
// lines, two blocks share the lines: the scales of both, then the vectors of both. So a group, and the next
// one after it, are read from the first byte to the last, which suits the hardware prefetcher.

namespace llamay {

struct ScaleOnly {  // Q4_0, Q5_0, Q8_0, IQ4_NL, TQ1_0, TQ2_0; MXFP4: the upper halves of binary32
  uint16_t d[16];
};
struct ScaleAndMin {  // Q4_1, Q5_1
  uint16_t d[16], m[16];
};
struct TwoLevels {  // Q4_K, Q5_K
  uint8_t scale[8][16];
  uint8_t min[4][16][2];  // two consecutive sub-blocks side by side, for the pair products of imin
  uint16_t d[16], dmin[16];
};
struct SignedScales {  // Q6_K
  int8_t scale[16][16];
  uint16_t d[16];
};
struct NibbleLevels {           // Q2_K
  uint8_t scale_min[8][16][2];  // sub-blocks of 16 side by side; the scale in the low, the minimum in the
                                // high nibble
  uint16_t d[16], dmin[16];
};
struct SixteenthScales {  // scales of sub-blocks of 16, side by side: formats of 3 bits
  int8_t scale[8][16][2];
  uint16_t d[16];
};
struct EighthScales {  // scales of sub-blocks of 32, side by side: IQ4_XS, IQ3_XXS, IQ3_S
  int8_t scale[4][16][2];
  uint16_t d[16];
};

/// Bits of an integer in the vectors; 0: values.
constexpr size_t code_bits(Format format) {
  switch (format) {
    case Format::F32:
    case Format::F16:
    case Format::BF16:
      return 0;
    case Format::Q2_K:
    case Format::TQ1_0:
    case Format::TQ2_0:
      return 2;
    case Format::Q3_K:
    case Format::IQ2_XXS:
    case Format::IQ2_XS:
    case Format::IQ2_S:
    case Format::IQ1_S:
    case Format::IQ1_M:
      return 3;
    case Format::Q5_0:
    case Format::Q5_1:
    case Format::Q5_K:
      return 5;
    case Format::Q6_K:
      return 6;
    case Format::Q8_0:
      return 8;
    default:
      return 4;
  }
}

/// A value of the struct that scales a block of sixteen rows.
template <Format format>
constexpr auto scales_of() {
  if constexpr (format == Format::Q4_1 || format == Format::Q5_1)
    return ScaleAndMin{};
  else if constexpr (format == Format::Q4_K || format == Format::Q5_K)
    return TwoLevels{};
  else if constexpr (format == Format::Q6_K)
    return SignedScales{};
  else if constexpr (format == Format::Q2_K)
    return NibbleLevels{};
  else if constexpr (code_bits(format) == 3)
    return SixteenthScales{};
  else if constexpr (format == Format::IQ4_XS || format == Format::IQ3_XXS || format == Format::IQ3_S)
    return EighthScales{};
  else
    return ScaleOnly{};
}
template <Format format>
using ScalesOf = decltype(scales_of<format>());

constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

/// Bytes of the vectors of 32 k, sixteen rows of them.
constexpr size_t vector_bytes(size_t bits) { return 64 * bits; }

/// Bytes from the vectors of 32 k to those of the low bits of k = 16 * half..16 * half + 15.
constexpr size_t low_bits(size_t bits, size_t half) {
  return bits == 6 ? 64 + 192 * half : (bits == 3 || bits == 5 ? 64 : 0) + (bits < 4 ? 64 : 128) * half;
}

/// The location of the blocks of a group: bytes from its start, for block b of `blocks`.
template <Format format>
struct Layout {
  using Scales = ScalesOf<format>;
  static constexpr size_t kScales = sizeof(Scales);
  static constexpr size_t kVectors = traits(format).block / 32 * vector_bytes(code_bits(format));
  static constexpr size_t kTogether = kScales % 64 ? 2 : 1;  // blocks that share their lines of scales
  static_assert(kScales + kVectors == traits(format).packed_bytes && kTogether * kScales % 64 == 0);

  static constexpr size_t scales(size_t b) {
    return first(b) * (kScales + kVectors) + b % kTogether * kScales;
  }
  static constexpr size_t vectors(size_t b, size_t blocks) {
    const size_t together = blocks - first(b) < kTogether ? 1 : kTogether;
    return first(b) * (kScales + kVectors) + round_up(together * kScales, 64) + b % kTogether * kVectors;
  }

 private:
  static constexpr size_t first(size_t b) { return b / kTogether * kTogether; }
};

constexpr size_t group_bytes(Format format, size_t cols) {
  return round_up(cols / traits(format).block * traits(format).packed_bytes, 64);
}

/// A block of quantized activations, and the sums that the offsets and minima of weights are multiplied with.
struct Activation32 {
  int8_t q[32];
  float d;
  float s;          // d * sum of q
  int32_t offset8;  // -8 * sum of q
  int32_t unused;
};
struct Activation256 {
  int8_t q[256];
  int32_t offset32[16];  // -32 * sum of 16 q
  int16_t sums16[16];    // sums of 16 q
  int16_t sums[8];       // sums of 32 q
  float d;
  int32_t offset1;  // - sum of all q
  int32_t unused[2];
};
static_assert(sizeof(Activation32) == 48 && sizeof(Activation256) == 384);

}  // namespace llamay
