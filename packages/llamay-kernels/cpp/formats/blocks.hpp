#pragma once

#include <stdint.h>
#include <string.h>

#include "formats/format.hpp"

// The blocks of ggml's quantized formats as they are in a file, byte for byte, and the functions that unpack
// their integers. Members are bytes so that a block may lie at any address; f16 and i16 values are little
// endian. Source: the format definitions of GGML (ggml-common.h) and gguf.quants, which the tests compare
// with.

namespace llamay {

struct BlockQ4_0 {
  uint8_t d[2], qs[16];
};
struct BlockQ4_1 {
  uint8_t d[2], m[2], qs[16];
};
struct BlockQ5_0 {
  uint8_t d[2], qh[4], qs[16];
};
struct BlockQ5_1 {
  uint8_t d[2], m[2], qh[4], qs[16];
};
struct BlockQ8_0 {
  uint8_t d[2];
  int8_t qs[32];
};
struct BlockQ2_K {
  uint8_t scales[16], qs[64], d[2], dmin[2];
};
struct BlockQ3_K {
  uint8_t qh[32], qs[64], scales[12], d[2];
};
struct BlockQ4_K {
  uint8_t d[2], dmin[2], scales[12], qs[128];
};
struct BlockQ5_K {
  uint8_t d[2], dmin[2], scales[12], qh[32], qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128], qh[64];
  int8_t scales[16];
  uint8_t d[2];
};
struct BlockTQ1_0 {
  uint8_t qs[48], qh[4], d[2];
};
struct BlockTQ2_0 {
  uint8_t qs[64], d[2];
};

static_assert(sizeof(BlockQ4_0) == traits(Format::Q4_0).block_bytes);
static_assert(sizeof(BlockQ4_1) == traits(Format::Q4_1).block_bytes);
static_assert(sizeof(BlockQ5_0) == traits(Format::Q5_0).block_bytes);
static_assert(sizeof(BlockQ5_1) == traits(Format::Q5_1).block_bytes);
static_assert(sizeof(BlockQ8_0) == traits(Format::Q8_0).block_bytes);
static_assert(sizeof(BlockQ2_K) == traits(Format::Q2_K).block_bytes);
static_assert(sizeof(BlockQ3_K) == traits(Format::Q3_K).block_bytes);
static_assert(sizeof(BlockQ4_K) == traits(Format::Q4_K).block_bytes);
static_assert(sizeof(BlockQ5_K) == traits(Format::Q5_K).block_bytes);
static_assert(sizeof(BlockQ6_K) == traits(Format::Q6_K).block_bytes);
static_assert(sizeof(BlockTQ1_0) == traits(Format::TQ1_0).block_bytes);
static_assert(sizeof(BlockTQ2_0) == traits(Format::TQ2_0).block_bytes);

namespace {

inline uint16_t load_u16(const void* at) {
  uint16_t value;
  memcpy(&value, at, sizeof value);
  return value;
}
inline void store_u16(void* at, uint16_t value) { memcpy(at, &value, sizeof value); }

inline void spread_nibbles(const uint8_t* qs, int half, uint8_t* q) {
  for (int i = 0; i < half; ++i) {
    q[i] = qs[i] & 15;
    q[i + half] = qs[i] >> 4;
  }
}
/// Eight bits at a time: bit i of the byte is moved to byte i, there to bit 4.
inline void spread_fifth_bits(const uint8_t* qh, uint8_t* q) {
  for (int i = 0; i < 4; ++i) {
    const uint64_t chosen = qh[i] * 0x0101010101010101u & 0x8040201008040201u;
    const uint64_t ones = (chosen + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
    uint64_t low;
    memcpy(&low, q + 8 * i, 8);
    low |= ones << 4;
    memcpy(q + 8 * i, &low, 8);
  }
}

/// 32 bytes hold 2 bits each of 128 integers: the lowest of the first 32.
inline void spread_pairs_of_bits(const uint8_t* qs, uint8_t* q) {
  for (int j = 0; j < 4; ++j)
    for (int i = 0; i < 32; ++i) q[32 * j + i] = qs[i] >> 2 * j & 3;
}
/// Digits of base 3: each byte is a fraction q / 256 with these digits; multiplying it by 3 carries the next
/// digit out above.
inline void spread_digits(const uint8_t* qs, int bytes, int digits, uint8_t* q) {
  for (int i = 0; i < bytes; ++i) {
    uint8_t fraction = qs[i];
    for (int j = 0; j < digits; ++j) {
      const int next = fraction * 3;
      q[bytes * j + i] = static_cast<uint8_t>(next >> 8);
      fraction = static_cast<uint8_t>(next);
    }
  }
}

/// Unpacks the integers of one block in order, unsigned where the format stores them so (Q8_0: the byte of
/// the signed integer); codes where the format has a codebook (codebook.hpp).
inline void spread(const BlockQ4_0& b, uint8_t* q) { spread_nibbles(b.qs, 16, q); }
inline void spread(const BlockQ4_1& b, uint8_t* q) { spread_nibbles(b.qs, 16, q); }
inline void spread(const BlockQ5_0& b, uint8_t* q) {
  spread_nibbles(b.qs, 16, q);
  spread_fifth_bits(b.qh, q);
}
inline void spread(const BlockQ5_1& b, uint8_t* q) {
  spread_nibbles(b.qs, 16, q);
  spread_fifth_bits(b.qh, q);
}
inline void spread(const BlockQ8_0& b, uint8_t* q) { memcpy(q, b.qs, 32); }
inline void spread(const BlockQ2_K& b, uint8_t* q) {
  for (int h = 0; h < 2; ++h) spread_pairs_of_bits(b.qs + 32 * h, q + 128 * h);
}
inline void spread(const BlockQ3_K& b, uint8_t* q) {
  for (int h = 0; h < 2; ++h) spread_pairs_of_bits(b.qs + 32 * h, q + 128 * h);
  for (int s = 0; s < 8; ++s)
    for (int i = 0; i < 32; ++i)
      q[32 * s + i] = static_cast<uint8_t>(q[32 * s + i] | (b.qh[i] >> s & 1) << 2);
}
inline void spread(const BlockTQ1_0& b, uint8_t* q) {
  spread_digits(b.qs, 32, 5, q);
  spread_digits(b.qs + 32, 16, 5, q + 160);
  spread_digits(b.qh, 4, 4, q + 240);
}
inline void spread(const BlockTQ2_0& b, uint8_t* q) {
  for (int h = 0; h < 2; ++h) spread_pairs_of_bits(b.qs + 32 * h, q + 128 * h);
}
inline void spread(const BlockQ4_K& b, uint8_t* q) {
  for (int c = 0; c < 4; ++c) spread_nibbles(b.qs + 32 * c, 32, q + 64 * c);
}
inline void spread(const BlockQ5_K& b, uint8_t* q) {
  for (int c = 0; c < 4; ++c) spread_nibbles(b.qs + 32 * c, 32, q + 64 * c);
  for (int s = 0; s < 8; ++s)
    for (int i = 0; i < 32; ++i)
      q[32 * s + i] = static_cast<uint8_t>(q[32 * s + i] | (b.qh[i] >> s & 1) << 4);
}
inline void spread(const BlockQ6_K& b, uint8_t* q) {
  for (int h = 0; h < 2; ++h)
    for (int i = 0; i < 32; ++i) {
      const uint8_t first = b.ql[64 * h + i], second = b.ql[64 * h + 32 + i], high = b.qh[32 * h + i];
      q[128 * h + i] = static_cast<uint8_t>((first & 15) | (high & 3) << 4);
      q[128 * h + 32 + i] = static_cast<uint8_t>((second & 15) | (high >> 2 & 3) << 4);
      q[128 * h + 64 + i] = static_cast<uint8_t>(first >> 4 | (high >> 4 & 3) << 4);
      q[128 * h + 96 + i] = static_cast<uint8_t>(second >> 4 | (high >> 6 & 3) << 4);
    }
}

/// The 6-bit scales and minima of a Q4_K or Q5_K block: eight of each in twelve bytes.
inline void spread_scales(const uint8_t* packed, uint8_t* scale, uint8_t* min) {
  for (int i = 0; i < 4; ++i) {
    scale[i] = packed[i] & 63;
    min[i] = packed[4 + i] & 63;
    scale[4 + i] = static_cast<uint8_t>((packed[8 + i] & 15) | (packed[i] >> 6) << 4);
    min[4 + i] = static_cast<uint8_t>(packed[8 + i] >> 4 | (packed[4 + i] >> 6) << 4);
  }
}
/// Q3_K's sixteen signed scales of 6 bits, less 32.
inline void spread_signed_scales(const BlockQ3_K& b, int8_t* scale) {
  for (int i = 0; i < 16; ++i) {
    const int low = b.scales[i % 8] >> (i / 8 * 4) & 15, high = b.scales[8 + i % 4] >> (i / 4 * 2) & 3;
    scale[i] = static_cast<int8_t>((low | high << 4) - 32);
  }
}
inline void join_scales(const uint8_t* scale, const uint8_t* min, uint8_t* packed) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(scale[i] | (scale[4 + i] >> 4) << 6);
    packed[4 + i] = static_cast<uint8_t>(min[i] | (min[4 + i] >> 4) << 6);
    packed[8 + i] = static_cast<uint8_t>((scale[4 + i] & 15) | (min[4 + i] & 15) << 4);
  }
}

}  // namespace
}  // namespace llamay
