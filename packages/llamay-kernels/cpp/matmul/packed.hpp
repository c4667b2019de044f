#pragma once

#include "../formats/format.hpp"

// How sixteen rows of a weight stand side by side.
//
// The unit is a vector of 64 bytes: four consecutive k of row 0, the same four of row 1, and so on to row 15.
// So one vector times four activation bytes, repeated in every lane, is what a byte dot product instruction
// takes, and a lane is one output.
//
//   F32, F16, BF16   for each k: 16 values
//   Q8_0             for each block 8 vectors; a byte is the integer + 128
//   4 bits           for each block vectors of nibbles: vector j holds k = 8j..8j+3 in the low,
//                    8j+4..8j+7 in the high nibbles
//   Q5_0/1, Q5_K     and for each 32 k one vector: bit b of a byte is the fifth bit of k = 4b..4b+3
//   Q6_K             and for each 16 k one vector: bits 2f, 2f+1 of a byte are the high bits of
//                    k = 4f..4f+3
//
// A group is the vectors of all its blocks, then what scales them (the structs below) of all its blocks,
// padded to 64 bytes.

namespace llamay {

struct ScaleOnly {  // Q4_0, Q5_0, Q8_0
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

/// Bytes of vectors for one block of sixteen rows.
constexpr size_t vector_bytes(Format format) {
  switch (format) {
    case Format::Q4_0:
    case Format::Q5_0:
    case Format::Q8_0:
      return traits(format).packed_bytes - sizeof(ScaleOnly);
    case Format::Q4_1:
    case Format::Q5_1:
      return traits(format).packed_bytes - sizeof(ScaleAndMin);
    case Format::Q4_K:
    case Format::Q5_K:
      return traits(format).packed_bytes - sizeof(TwoLevels);
    case Format::Q6_K:
      return traits(format).packed_bytes - sizeof(SignedScales);
    default:
      return traits(format).packed_bytes;
  }
}

constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

constexpr size_t group_bytes(Format format, size_t cols) {
  return round_up(cols / traits(format).block * traits(format).packed_bytes, 64);
}

/// A block of quantized activations, and what the offsets and minima of weights need of its sums.
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
  int16_t sums[8];       // of 32 q
  float d;
  int32_t unused[3];
};
static_assert(sizeof(Activation32) == 48 && sizeof(Activation256) == 352);

}  // namespace llamay
