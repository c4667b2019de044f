#pragma once

#include "packed.hpp"

namespace llamay {
namespace {

/// The integer of a packed block at k, for one of its sixteen rows: the layout of packed.hpp spelled out.
template <Format format>
inline int weight_at(const uint8_t* vectors, int k, int lane) {
  const int byte = 4 * lane + k % 4;
  if constexpr (format == Format::Q8_0) {
    return vectors[64 * (k / 4) + byte] - 128;
  } else {
    const int pair = vectors[64 * (k / 8) + byte];
    int q = k % 8 < 4 ? pair & 15 : pair >> 4;
    constexpr int block = static_cast<int>(traits(format).block);
    const uint8_t* high = vectors + 8 * block;
    if constexpr (format == Format::Q5_0 || format == Format::Q5_1 || format == Format::Q5_K)
      q |= (high[64 * (k / 32) + byte] >> (k % 32 / 4) & 1) << 4;
    if constexpr (format == Format::Q6_K) q |= (high[64 * (k / 16) + byte] >> (k % 16 / 4 * 2) & 3) << 4;
    if constexpr (format == Format::Q4_0) q -= 8;
    if constexpr (format == Format::Q5_0) q -= 16;
    if constexpr (format == Format::Q6_K) q -= 32;
    return q;
  }
}

}  // namespace
}  // namespace llamay
