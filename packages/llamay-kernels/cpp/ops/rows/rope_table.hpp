#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llamay {

enum class RopeStyle : uint8_t { half, pairs };

/// Cosines and sines of position * frequency for one row, as OpsTable::rope_half or rope_pairs reads them.
/// Operations with the same rotation share one table, whatever their heads.
struct Rope {
  RopeStyle style;
  std::vector<double> freqs;
  float factor;
  std::vector<uint8_t> axes = {};  // the axis of the position that each pair turns by; empty: the first axis

  bool operator==(const Rope&) const = default;
  std::size_t floats() const { return (style == RopeStyle::half ? 2 : 4) * freqs.size(); }
  /// positions: one for each of n axes; a single position applies to all axes.
  void fill(const int32_t* positions, std::size_t n, float* table) const;
};

/// Sine and cosine in binary64 by fixed polynomials, the same bits on every machine. |x| up to 2^31.
struct SinCos {
  double sin, cos;
};
SinCos sincos(double x);

}  // namespace llamay
