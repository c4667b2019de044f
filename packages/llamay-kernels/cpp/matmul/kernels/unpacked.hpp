#pragma once

#include "formats/codebook.hpp"
#include "formats/half.hpp"
#include "matmul/weights/packed.hpp"

namespace llamay {
namespace {

/// The integer of a packed block at k, for one of its sixteen rows: the layout of packed.hpp, element by
/// element.
template <Format format>
inline int weight_at(const uint8_t* vectors, int k, int lane) {
  const int byte = 4 * lane + k % 4;
  constexpr int bits = static_cast<int>(code_bits(format));
  vectors += static_cast<size_t>(k / 32) * vector_bytes(bits);
  k %= 32;
  const uint8_t* low = vectors + low_bits(bits, static_cast<size_t>(k / 16));
  int q;
  if constexpr (bits == 8) {
    q = vectors[64 * (k / 4) + byte] - 128;
  } else if constexpr (bits < 4) {
    q = low[byte] >> (k % 16 / 4 * 2) & 3;
    if constexpr (bits == 3) q |= (vectors[byte] >> (k / 4) & 1) << 2;
  } else {
    const int pair = low[64 * (k % 16 / 8) + byte];
    q = k % 8 < 4 ? pair & 15 : pair >> 4;
    if constexpr (bits == 5) q |= (vectors[byte] >> (k / 4) & 1) << 4;
    if constexpr (bits == 6) q |= (vectors[192 * (k / 16) + byte] >> (k % 16 / 4 * 2) & 3) << 4;
  }
  if constexpr (format == Format::Q4_0) q -= 8;
  if constexpr (format == Format::Q5_0) q -= 16;
  if constexpr (format == Format::Q6_K) q -= 32;
  if constexpr (has_codebook(format)) {
    constexpr Codebook book = codebook(format);
    q = book.value[q];
  }
  return q;
}

/// The scale of a block's sub-block of 16 for one of its rows; 1 where the format has none.
inline int scale_at(const ScaleOnly&, int, int) { return 1; }
inline int scale_at(const SignedScales& s, int sub, int lane) { return s.scale[sub][lane]; }
inline int scale_at(const SixteenthScales& s, int sub, int lane) { return s.scale[sub / 2][lane][sub % 2]; }
inline int scale_at(const EighthScales& s, int sub, int lane) { return s.scale[sub / 4][lane][sub / 2 % 2]; }
inline int scale_at(const TwoLevels& s, int sub, int lane) { return s.scale[sub / 2][lane]; }
inline int scale_at(const NibbleLevels& s, int sub, int lane) {
  return s.scale_min[sub / 2][lane][sub % 2] & 15;
}

inline int min_at(const TwoLevels& s, int sub, int lane) { return s.min[sub / 4][lane][sub / 2 % 2]; }
inline int min_at(const NibbleLevels& s, int sub, int lane) {
  return s.scale_min[sub / 2][lane][sub % 2] >> 4;
}

/// d of a block for one of its rows, the format's unit in it.
template <Format format, class Scales>
inline float scale_of_block(const Scales& s, int lane) {
  if constexpr (format == Format::MXFP4)
    return bf16_to_f32(s.d[lane]);
  else
    return f16_to_f32(s.d[lane]) * unit(format);
}

}  // namespace
}  // namespace llamay
