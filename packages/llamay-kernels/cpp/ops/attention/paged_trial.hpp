#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/attention/attention.hpp"

namespace llamay {

/// Attention alone, for tests: over temporary pages of one context, which lie in reverse order in an arena
/// that was filled with NaN.
struct PagedTrial {
  /// The source of the values.
  enum class Values : uint8_t {
    given,
    latent,  // the first numbers of the keys; pages hold no values
    copied   // pages hold values, copied from the first numbers of the stored keys
  };
  AttentionShape shape;
  Values values;
  uint32_t dtype;  // enum llamay_kv_dtype; of copied values not vq8
  uint32_t page_shift;
  uint32_t pieces;  // number of pieces that the blocks are split into, computed one by one and then merged
  const float *q, *k,
      *v;  // (rows, heads * k_dim), (positions, kv_heads * k_dim), (positions, kv_heads * v_dim)
  uint32_t positions;
  std::vector<uint32_t> rows;  // the position of each row, increasing

  /// out: (rows, heads * v_dim).
  void run(const AttentionTable& table, float* out) const;
};

}  // namespace llamay
