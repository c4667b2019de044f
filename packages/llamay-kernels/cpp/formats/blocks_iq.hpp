#pragma once

#include "formats/blocks.hpp"

// The blocks of ggml's formats with codebooks and grids; blocks.hpp has the other formats. spread() unpacks
// codes (codebook.hpp), spread_signed_scales() a signed scale for each 16 elements.

namespace llamay {

struct BlockIQ4_NL {
  uint8_t d[2], qs[16];
};
struct BlockMXFP4 {
  uint8_t e, qs[16];
};
struct BlockIQ4_XS {
  uint8_t d[2], scales_h[2], scales_l[4], qs[128];
};
struct BlockIQ2_XXS {
  uint8_t d[2], qs[8][8];  // for each 32: four grid indices, then signs and scale
};
struct BlockIQ2_XS {
  uint8_t d[2], qs[64], scales[8];
};
struct BlockIQ2_S {
  uint8_t d[2], qs[32], signs[32], qh[8], scales[8];
};
struct BlockIQ3_XXS {
  uint8_t d[2], qs[64], signs[8][4];
};
struct BlockIQ3_S {
  uint8_t d[2], qs[64], qh[8], signs[32], scales[4];
};
struct BlockIQ1_S {
  uint8_t d[2], qs[32], qh[8][2];
};
struct BlockIQ1_M {
  uint8_t qs[32], qh[16], scales[4][2];
};

static_assert(sizeof(BlockIQ4_NL) == traits(Format::IQ4_NL).block_bytes);
static_assert(sizeof(BlockMXFP4) == traits(Format::MXFP4).block_bytes);
static_assert(sizeof(BlockIQ4_XS) == traits(Format::IQ4_XS).block_bytes);
static_assert(sizeof(BlockIQ2_XXS) == traits(Format::IQ2_XXS).block_bytes);
static_assert(sizeof(BlockIQ2_XS) == traits(Format::IQ2_XS).block_bytes);
static_assert(sizeof(BlockIQ2_S) == traits(Format::IQ2_S).block_bytes);
static_assert(sizeof(BlockIQ3_XXS) == traits(Format::IQ3_XXS).block_bytes);
static_assert(sizeof(BlockIQ3_S) == traits(Format::IQ3_S).block_bytes);
static_assert(sizeof(BlockIQ1_S) == traits(Format::IQ1_S).block_bytes);
static_assert(sizeof(BlockIQ1_M) == traits(Format::IQ1_M).block_bytes);

namespace {

#include "formats/grids.inc"

inline uint32_t load_u32(const void* at) {
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

/// Eight signs in seven bits: the eighth sign makes the number of signs even.
inline uint32_t even_signs(uint32_t seven) {
  seven &= 127;
  return seven | static_cast<uint32_t>(__builtin_parity(seven)) << 7;
}

/// Bit i of a byte as the lowest bit of byte i.
inline uint64_t bits_apart(uint64_t bits) {
  bits = (bits | bits << 28) & 0x0000000f0000000f;
  bits = (bits | bits << 14) & 0x0003000300030003;
  return (bits | bits << 7) & 0x0101010101010101;
}

/// Codes of eight elements: magnitudes of a grid entry of 2 bits each, `signs` a bit each above them.
inline void put_eight(uint64_t entry, uint32_t signs, uint8_t* q) {
  entry = (entry | entry << 24) & 0x000000ff000000ff;
  entry = (entry | entry << 12) & 0x000f000f000f000f;
  entry = (entry | entry << 6) & 0x0303030303030303;
  entry |= bits_apart(signs & 255) << 2;
  memcpy(q, &entry, 8);
}
/// Like codes8, from two entries of four magnitudes of 3 bits, which are four bits apart.
inline void put_two_fours(uint64_t first, uint64_t second, uint32_t signs, uint8_t* q) {
  uint64_t both = first | second << 32;
  both = (both | both << 8) & 0x00ff00ff00ff00ff;
  both = (both | both << 4) & 0x0707070707070707;
  both |= bits_apart(signs & 255) << 3;
  memcpy(q, &both, 8);
}

/// A scale s of 4 bits means 2 s + 1.
inline int8_t odd_scale(int s) { return static_cast<int8_t>(2 * s + 1); }

inline void spread(const BlockIQ4_NL& b, uint8_t* q) { spread_nibbles(b.qs, 16, q); }
inline void spread(const BlockMXFP4& b, uint8_t* q) { spread_nibbles(b.qs, 16, q); }

inline void spread(const BlockIQ4_XS& b, uint8_t* q) {
  for (int s = 0; s < 8; ++s) spread_nibbles(b.qs + 16 * s, 16, q + 32 * s);
}
inline void spread_signed_scales(const BlockIQ4_XS& b, int8_t* scale) {
  for (int s = 0; s < 8; ++s) {
    const int low = b.scales_l[s / 2] >> (s % 2 * 4) & 15, high = load_u16(b.scales_h) >> 2 * s & 3;
    scale[2 * s] = scale[2 * s + 1] = static_cast<int8_t>((low | high << 4) - 32);
  }
}

inline void spread(const BlockIQ2_XXS& b, uint8_t* q) {
  for (int s = 0; s < 8; ++s)
    for (int i = 0; i < 4; ++i)
      put_eight(kGridIQ2_XXS[b.qs[s][i]], even_signs(load_u32(b.qs[s] + 4) >> 7 * i), q + 32 * s + 8 * i);
}
inline void spread_signed_scales(const BlockIQ2_XXS& b, int8_t* scale) {
  for (int s = 0; s < 8; ++s) scale[2 * s] = scale[2 * s + 1] = odd_scale(b.qs[s][7] >> 4);
}

inline void spread(const BlockIQ2_XS& b, uint8_t* q) {
  for (int i = 0; i < 32; ++i) {
    const uint32_t both = load_u16(b.qs + 2 * i);
    put_eight(kGridIQ2_XS[both & 511], even_signs(both >> 9), q + 8 * i);
  }
}
inline void spread_signed_scales(const BlockIQ2_XS& b, int8_t* scale) {
  for (int i = 0; i < 16; ++i) scale[i] = odd_scale(b.scales[i / 2] >> (i % 2 * 4) & 15);
}

inline void spread(const BlockIQ2_S& b, uint8_t* q) {
  for (int i = 0; i < 32; ++i) {
    const int number = b.qs[i] | (b.qh[i / 4] >> (i % 4 * 2) & 3) << 8;
    put_eight(kGridIQ2_S[number], b.signs[i], q + 8 * i);
  }
}
inline void spread_signed_scales(const BlockIQ2_S& b, int8_t* scale) {
  for (int i = 0; i < 16; ++i) scale[i] = odd_scale(b.scales[i / 2] >> (i % 2 * 4) & 15);
}

inline void spread(const BlockIQ3_XXS& b, uint8_t* q) {
  for (int s = 0; s < 8; ++s)
    for (int i = 0; i < 4; ++i) {
      const uint8_t* two = b.qs + 8 * s + 2 * i;
      put_two_fours(kGridIQ3_XXS[two[0]], kGridIQ3_XXS[two[1]], even_signs(load_u32(b.signs[s]) >> 7 * i),
                    q + 32 * s + 8 * i);
    }
}
inline void spread_signed_scales(const BlockIQ3_XXS& b, int8_t* scale) {
  for (int s = 0; s < 8; ++s) scale[2 * s] = scale[2 * s + 1] = odd_scale(b.signs[s][3] >> 4);
}

inline void spread(const BlockIQ3_S& b, uint8_t* q) {
  for (int i = 0; i < 32; ++i) {
    const int high = b.qh[i / 4] >> (i % 4 * 2);
    put_two_fours(kGridIQ3_S[b.qs[2 * i] | (high & 1) << 8], kGridIQ3_S[b.qs[2 * i + 1] | (high & 2) << 7],
                  b.signs[i], q + 8 * i);
  }
}
inline void spread_signed_scales(const BlockIQ3_S& b, int8_t* scale) {
  for (int s = 0; s < 8; ++s)
    scale[2 * s] = scale[2 * s + 1] = odd_scale(b.scales[s / 2] >> (s % 2 * 4) & 15);
}

inline void spread(const BlockIQ1_S& b, uint8_t* q) {
  for (int i = 0; i < 32; ++i) {
    const uint32_t high = load_u16(b.qh[i / 4]);
    put_eight(kGridIQ1[b.qs[i] | (high >> (i % 4 * 3) & 7) << 8], high & 0x8000 ? 255 : 0, q + 8 * i);
  }
}
inline void spread_signed_scales(const BlockIQ1_S& b, int8_t* scale) {
  for (int s = 0; s < 8; ++s) scale[2 * s] = scale[2 * s + 1] = odd_scale(b.qh[s][1] >> 4 & 7);
}

inline void spread(const BlockIQ1_M& b, uint8_t* q) {
  for (int i = 0; i < 32; ++i) {
    const int high = b.qh[i / 2] >> (i % 2 * 4);
    put_eight(kGridIQ1[b.qs[i] | (high & 7) << 8], high & 8 ? 255 : 0, q + 8 * i);
  }
}
inline void spread_signed_scales(const BlockIQ1_M& b, int8_t* scale) {
  for (int i = 0; i < 16; ++i) scale[i] = odd_scale(load_u16(b.scales[i / 4]) >> (i % 4 * 3) & 7);
}

/// The bits of a block's scale: binary16, but for MXFP4 the upper half of a binary32, which holds every power
/// of two from 2^-128 on.
template <class Block>
uint16_t scale_bits(const Block& b) {
  return load_u16(b.d);
}
inline uint16_t scale_bits(const BlockMXFP4& b) {
  // Half of 2^(e - 127); the two smallest are subnormal.
  return static_cast<uint16_t>(b.e < 2 ? 0x20 << b.e : (b.e - 1) << 7);
}
inline uint16_t scale_bits(const BlockIQ1_M& b) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(b.scales[i][1] >> 4) << 4 * i;
  return static_cast<uint16_t>(bits);
}

}  // namespace
}  // namespace llamay
