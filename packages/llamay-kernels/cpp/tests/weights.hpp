#pragma once
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "formats/format.hpp"

/// Bytes of an F32, Q8_0 or Q4_K matrix with small scales.
inline std::vector<uint8_t> weight_bytes(llamay::Format format, std::size_t rows, std::size_t cols,
                                         std::mt19937& random) {
  const llamay::FormatTraits& t = llamay::traits(format);
  std::vector<uint8_t> bytes(rows * cols / t.block * t.block_bytes);
  if (format == llamay::Format::F32) {
    for (std::size_t i = 0; i < bytes.size(); i += 4) {
      const float v = (static_cast<float>(random() % 2001) - 1000) / 5000;
      std::memcpy(&bytes[i], &v, 4);
    }
    return bytes;
  }
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random());
  for (std::size_t i = 0; i < bytes.size(); i += t.block_bytes)  // f16 scales of 2^-10 or so
    for (std::size_t scale = 0; scale < (format == llamay::Format::Q4_K ? 2u : 1u); ++scale)
      bytes[i + 2 * scale] = static_cast<uint8_t>(random()), bytes[i + 2 * scale + 1] = 0x14;
  return bytes;
}
