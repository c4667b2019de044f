#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/attention.hpp"

namespace llamay {

/// How the attention of one step is cut into pieces. All layers of one shape share it.
class AttentionWork {
 public:
  /// Some tokens of one lease and one key/value head, and some blocks of the positions they see.
  struct Item {
    uint32_t lease, kv_head;
    uint32_t token, tokens;  // counted from the lease's first row
    uint32_t block_begin, block_end;
    int32_t split;  // the unit it is a part of; -1: it is the whole
    bool writes;    // writes its tokens' keys and values before it reads
  };
  /// A long context whose blocks several threads share. Whoever finishes last merges.
  struct Split {
    uint32_t items;
    uint32_t block_begin, block_end;
    std::size_t partials;  // floats from the start of the buffer
  };

  /// starts[i]: position of lease i's first row; counts[i]: its rows.
  void plan(const AttentionShape& shape, const uint32_t* starts, const uint32_t* counts, std::size_t leases,
            unsigned threads);

  std::vector<Item> writes;  // to be done, by all threads, before any of items
  std::vector<Item> items;
  std::vector<Split> splits;
  std::unique_ptr<std::atomic<uint32_t>[]> left;  // of each split
  std::size_t partial_floats = 0;

 private:
  void unit(const AttentionShape& shape, uint32_t lease, uint32_t kv_head, uint32_t start, uint32_t count,
            uint32_t pieces);

  std::size_t capacity_ = 0;
};

}  // namespace llamay
