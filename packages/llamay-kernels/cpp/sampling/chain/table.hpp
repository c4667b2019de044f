#pragma once

#include <stddef.h>
#include <stdint.h>

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Passes over a whole vocabulary, one table for each kernel set; all sets give the same bits.
struct SamplingTable {
  static constexpr size_t kBlock = 64;  // values that share a maximum or a sum

  // mask: bit i % 32 of word i / 32 says that value i counts; null: all do.

  /// out = logits, but -infinity where the mask has no bit. Without a mask a copy.
  void (*masked)(const float* logits, const uint32_t* mask, size_t n, float* out);
  /// The largest value of each block of kBlock, -infinity where no value counts. Returns whether all values
  /// that count are numbers below infinity.
  bool (*maxima)(const float* logits, const uint32_t* mask, size_t n, float* block_max);
  /// Writes the indices of the values >= threshold, increasing, to ids, which has room for all blocks whose
  /// block_max reaches the threshold. block_max: an upper bound of each block's values. Returns the number of
  /// indices.
  size_t (*at_least)(const float* logits, const uint32_t* mask, const float* block_max, size_t n,
                     float threshold, uint32_t* ids);
  /// weights = exp((logits - largest) * by); +0 for -infinity.
  void (*weights)(const float* logits, size_t n, float largest, float by, float* weights);
  /// The sum of the weights of each block of kBlock: lane i % 16, increasing, then tree16.
  void (*sums)(const float* weights, size_t n, float* block_sum);
};

}  // namespace llamay
