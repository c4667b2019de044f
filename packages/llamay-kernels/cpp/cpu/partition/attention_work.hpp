#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ops/attention/attention.hpp"

namespace llamay {

/// The division of one step's attention into pieces of work. All layers of one shape share it.
class AttentionWork {
 public:
  /// One context of a step.
  struct Lease {
    uint32_t start, count;  // position of the first row; number of rows
    uint32_t row;           // index of the first row in the step
    const KvPages* pages;   // one for each attention of the plan
  };
  struct Token {
    uint32_t row, position;
  };
  /// A range of blocks in one lease's pages, and the tokens [token_begin, token_end) of a unit, counted from
  /// its first token, that attend to them.
  struct Segment {
    uint32_t lease;
    uint32_t token_begin, token_end;
    uint32_t block_begin, block_end;
    std::size_t partials;  // floats from the start of the unit's partial results
    bool writes;           // whether the lease's new keys and values are written before they are read
  };
  /// Tokens that are computed together: some tokens of one lease, or all tokens of several leases whose first
  /// pages are the same.
  struct Unit {
    uint32_t token, tokens;      // first one and number, in `tokens`
    uint32_t segment, segments;  // first one and number, in `segments`
    std::size_t partial_floats;  // partial results of one key/value head
  };
  /// A unit for one key/value head, or some blocks of one of its segments.
  struct Item {
    uint32_t unit, kv_head;
    int32_t split;  // index of the split that the item is a piece of; -1: the item is a whole unit
    uint32_t segment, block_begin, block_end;
  };
  /// A unit whose blocks several threads share. The thread that finishes last merges the results.
  struct Split {
    uint32_t items;
    std::size_t partials;  // floats from the start of the buffer of partial results
    uint32_t
        folded_end;  // end of the first piece, which keeps one merged record instead of one for each block
  };
  /// Tokens of one lease and head whose keys and values are written before any item begins.
  struct Write {
    uint32_t lease, kv_head;
    uint32_t token, tokens;  // counted from the lease's first row
  };

  /// attentions: the attentions of this shape, as indices into a lease's pages. even_shares: whether the
  /// threads are about equally fast.
  void plan(const AttentionShape& shape, std::span<const Lease> leases,
            std::span<const std::size_t> attentions, unsigned threads, bool even_shares);
  /// Plans attention over whole texts: each row sees all rows of its text, later ones too, and no keys and
  /// values are kept.
  void plan_whole(const AttentionShape& shape, std::span<const Lease> texts, unsigned threads);

  std::vector<Token> tokens;
  std::vector<Segment> segments;
  std::vector<Unit> units;
  std::vector<Write> writes;
  std::vector<Item> items;
  std::vector<Split> splits;
  std::unique_ptr<std::atomic<uint32_t>[]> left;  // pieces that are left of each split
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
  std::vector<uint32_t> order_;   // the leases with few rows; leases with the same first pages are adjacent
  std::vector<uint32_t> common_;  // blocks that order_[i] has in common with order_[i + 1]
  std::vector<Item> pieces_;
  std::size_t capacity_ = 0;
};

}  // namespace llamay
