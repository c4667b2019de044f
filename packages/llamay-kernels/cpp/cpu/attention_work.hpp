#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/attention.hpp"

namespace llamay {

/// How the attention of one step is cut into pieces. All layers of one shape share it.
class AttentionWork {
 public:
  /// One context of a step.
  struct Lease {
    uint32_t start, count;  // position of its first row; its rows
    uint32_t row;           // number of its first row in the step
    const KvPages* pages;   // of each attention of the plan
  };
  struct Token {
    uint32_t row, position;
  };
  /// Blocks that tokens [token_begin, token_end) of a unit, counted from its first, find in a lease's pages.
  struct Segment {
    uint32_t lease;
    uint32_t token_begin, token_end;
    uint32_t block_begin, block_end;
    std::size_t partials;  // floats from the start of the unit's
    bool writes;           // the lease's keys and values, before they are read
  };
  /// Tokens that are computed together: some of one lease, or all of several whose first pages are the same.
  struct Unit {
    uint32_t token, tokens;      // in `tokens`
    uint32_t segment, segments;  // in `segments`
    std::size_t partial_floats;  // of one key/value head
  };
  /// A unit for one key/value head, or some blocks of one of its segments.
  struct Item {
    uint32_t unit, kv_head;
    int32_t split;  // the whole that it is a piece of; -1: it is the whole
    uint32_t segment, block_begin, block_end;
  };
  /// Long contexts whose blocks several threads share. Whoever finishes last merges.
  struct Split {
    uint32_t items;
    std::size_t partials;  // floats from the start of the buffer
    uint32_t folded_end;   // of the first piece, which needs no record of each of its blocks
  };
  /// Tokens of one lease and head whose keys and values are written before any item begins.
  struct Write {
    uint32_t lease, kv_head;
    uint32_t token, tokens;  // counted from the lease's first row
  };

  /// attentions: those of this shape, as indices into a lease's pages. shares: threads are equally fast.
  void plan(const AttentionShape& shape, std::span<const Lease> leases,
            std::span<const std::size_t> attentions, unsigned threads, bool shares);
  /// The same where each row sees all rows of its text, the later ones too, and the texts keep nothing.
  void plan_whole(const AttentionShape& shape, std::span<const Lease> texts, unsigned threads);

  std::vector<Token> tokens;
  std::vector<Segment> segments;
  std::vector<Unit> units;
  std::vector<Write> writes;
  std::vector<Item> items;
  std::vector<Split> splits;
  std::unique_ptr<std::atomic<uint32_t>[]> left;  // of each split
  std::size_t partial_floats = 0;

 private:
  void long_lease(const AttentionShape& shape, const Lease& lease, uint32_t index);
  void gather(const AttentionShape& shape, std::span<const Lease> leases,
              std::span<const std::size_t> attentions, unsigned threads);
  void branch(const AttentionShape& shape, std::span<const Lease> leases, std::size_t begin, std::size_t end,
              uint32_t first_block, uint32_t first_token);
  bool units_alike() const;
  void share_out(const AttentionShape& shape, std::span<const Lease> leases, uint32_t pieces);
  void cut(const AttentionShape& shape, std::span<const Lease> leases, uint32_t unit, uint32_t pieces);

  /// The last position that a lease's row t sees.
  uint32_t position(const Lease& lease, uint32_t t) const {
    return lease.start + (whole_ ? lease.count - 1 : t);
  }

  bool whole_ = false;
  std::vector<uint32_t> order_;   // the leases of few rows, those with the same first pages side by side
  std::vector<uint32_t> common_;  // blocks that order_[i] has in common with order_[i + 1]
  std::vector<Item> pieces_;
  std::size_t capacity_ = 0;
};

}  // namespace llamay
