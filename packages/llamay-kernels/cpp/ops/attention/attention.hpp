#pragma once

#include <stddef.h>
#include <stdint.h>

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Keys are taken in blocks of this many absolute positions, whatever the page size.
constexpr uint32_t kAttentionBlock = 64;
/// The most rows (tokens times query heads of one key/value head) that share a block while it is in the
/// cache.
constexpr uint32_t kAttentionRows = 48;

struct AttentionShape {
  uint32_t heads, kv_heads, k_dim, v_dim;
  uint32_t window;  // positions a row may look back, itself included; 0 for all
  float scale;
  float softcap;  // 0 for none
  // Latent attention: the values are the first v_from_k numbers of the keys, and v_dim is the same number;
  // pages hold keys only. 0: pages hold values, too.
  uint32_t v_from_k = 0;

  bool operator==(const AttentionShape&) const = default;

  constexpr uint32_t group() const { return heads / kv_heads; }
  /// Tokens of one task, at most kAttentionRows.
  constexpr uint32_t tile() const { return group() < kAttentionRows ? kAttentionRows / group() : 1; }
  /// The first position that a row at `position` sees.
  constexpr uint32_t first_visible(uint32_t position) const {
    return window && position >= window ? position + 1 - window : 0;
  }
};

/// The pages of one layer of one context (abi/llamay/kv_view.h).
struct KvPages {
  uint8_t* arena;
  uint64_t page_bytes;
  const int32_t* const* blocks;
  uint64_t k_offset, v_offset;  // bytes from the start of a page
  uint64_t k_scale_offset, v_scale_offset;
  uint32_t page_shift, block_shift;
  uint32_t dtype;  // enum llamay_kv_dtype

  int32_t number(uint32_t page) const {
    return blocks[page >> block_shift][page & ((1u << block_shift) - 1)];
  }
  uint8_t* page(uint32_t position) const {
    return arena + static_cast<uint64_t>(number(position >> page_shift)) * page_bytes;
  }
};

/// One row of a step, at the first query head of the task's key/value head.
struct AttentionToken {
  const float* q;
  float* out;
  uint32_t position;
};

/// A range of blocks in some pages, and the tokens of a task that attend to them.
struct AttentionSegment {
  const KvPages* pages;
  uint32_t token_begin, token_end;
  uint32_t block_begin, block_end;
  size_t partials;  // floats from the start of the task's partials: a record for each block and row
};

/// A block of keys and values of one head; pages null: no block.
struct AttentionPlace {
  const KvPages* pages;
  uint32_t kv_head, block;
};

/// Tokens that are computed together for one key/value head, and the segments of blocks that they see. One
/// context is one segment; contexts with pages in common have a segment for these pages, then one each. A
/// token meets its segments in increasing order of position.
struct AttentionTask {
  const AttentionShape* shape;
  uint32_t kv_head;
  uint32_t n_tokens;  // up to shape->tile()
  uint32_t n_segments;
  const AttentionToken* tokens;
  const AttentionSegment* segments;
  float* partials;        // for attend_blocks and merge
  float* scratch;         // attention_scratch() floats, 64-byte aligned
  AttentionPlace next{};  // the block that is probably read after this task; only prefetched
  // Whether attend_blocks merges the blocks, which are the first ones of each row, into one record: that of
  // the last block that the row sees of them.
  bool folds = false;
  // merge: the blocks of the first segment before this one were folded.
  uint32_t folded_end = 0;
};

constexpr size_t lanes_up(size_t n) { return (n + 15) / 16 * 16; }
/// Floats of the partial result of one block and row: the weighted values, then the maximum and the sum.
constexpr size_t partial_floats(const AttentionShape& shape) { return lanes_up(shape.v_dim) + 16; }
/// Padding between values that are copied from keys: with a stride of a power of two they would fall into few
/// sets of the cache.
constexpr size_t kNearPad = 16;
constexpr size_t attention_scratch(const AttentionShape& shape) {
  const size_t rows = shape.tile() * shape.group(), v = lanes_up(shape.v_dim);
  return rows * (kAttentionBlock + 2 * v) + 6 * lanes_up(rows) +
         kAttentionBlock * (shape.k_dim + v + 2 + (shape.v_from_k ? kNearPad : 0));
}

/// The attention of a kernel set, one table for each.
struct AttentionTable {
  /// Writes keys and values of one head at positions [first, first + tokens). k and v: of the first token, at
  /// that head. v is not read where values are part of the keys.
  void (*write)(const KvPages& pages, const AttentionShape& shape, uint32_t kv_head, uint32_t first,
                uint32_t tokens, const float* k, size_t k_stride, const float* v, size_t v_stride);
  /// Attends to all blocks that the tokens see, and writes the tokens' outputs.
  void (*attend)(const AttentionTask& task);
  /// Attends to each block of the segments by itself, and writes the partial results.
  void (*attend_blocks)(const AttentionTask& task);
  /// Merges the partials of all segments in increasing order into the outputs.
  void (*merge)(const AttentionTask& task);
};

}  // namespace llamay
