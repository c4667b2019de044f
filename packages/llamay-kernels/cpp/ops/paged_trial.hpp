#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/attention.hpp"

namespace llamay {

/// Attention by itself over pages made on the spot, for tests: of one context, whose pages lie in reverse
/// order in an arena that is full of NaN before.
struct PagedTrial {
  /// Where the values come from.
  enum class Values : uint8_t {
    given,
    latent,  // the first numbers of the keys, which pages then hold alone
    copied   // planes of values, as pages have them, into which the first numbers of the stored keys are
             // copied
  };
  AttentionShape shape;
  Values values;
  uint32_t dtype;  // enum llamay_kv_dtype; of copied values not vq8
  uint32_t page_shift;
  uint32_t pieces;  // into which the blocks are cut, each computed by itself and then merged; 1: not at all
  const float *q, *k,
      *v;  // (rows, heads * k_dim), (positions, kv_heads * k_dim), (positions, kv_heads * v_dim)
  uint32_t positions;
  std::vector<uint32_t> rows;  // the position of each, increasing

  /// out: (rows, heads * v_dim).
  void run(const AttentionTable& table, float* out) const;
};

}  // namespace llamay
