#pragma once

#include <stddef.h>
#include <stdint.h>

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Keys are taken in blocks of this many absolute positions, whatever the page size.
constexpr uint32_t kAttentionBlock = 64;
/// As many rows (tokens times query heads of one key/value head) share a block while it is near.
constexpr uint32_t kAttentionRows = 48;

struct AttentionShape {
  uint32_t heads, kv_heads, k_dim, v_dim;
  uint32_t window;  // positions a row may look back, itself included; 0 for all
  float scale;
  float softcap;  // 0 for none

  constexpr uint32_t group() const { return heads / kv_heads; }
  /// Tokens of one task.
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
  uint32_t page_shift, block_shift;
  uint32_t dtype;  // enum llamay_kv_dtype

  uint8_t* page(uint32_t position) const {
    const uint32_t n = position >> page_shift;
    return arena +
           static_cast<uint64_t>(blocks[n >> block_shift][n & ((1u << block_shift) - 1)]) * page_bytes;
  }
};

/// Some tokens of one context, one key/value head, some blocks of its positions.
struct AttentionTask {
  const AttentionShape* shape;
  const KvPages* pages;
  uint32_t kv_head;
  uint32_t first;   // position of the first token
  uint32_t tokens;  // up to shape->tile()
  uint32_t block_begin, block_end;
  const float* q;  // of the first token, at the first query head of this key/value head
  size_t q_stride;
  float* out;  // likewise
  size_t out_stride;
  float* partials;  // for attend_blocks and merge: one record a block and row
  float* scratch;   // attention_scratch() floats, 64-byte aligned
};

constexpr size_t lanes_up(size_t n) { return (n + 15) / 16 * 16; }
/// Floats of one block's result for one row: the weighted values, then the maximum and the sum.
constexpr size_t partial_floats(const AttentionShape& shape) { return lanes_up(shape.v_dim) + 16; }
constexpr size_t attention_scratch(const AttentionShape& shape) {
  const size_t rows = shape.tile() * shape.group(), v = lanes_up(shape.v_dim);
  return rows * (kAttentionBlock + 2 * v) + 6 * lanes_up(rows) + kAttentionBlock * (shape.k_dim + v);
}

/// One table a kernel set.
struct AttentionTable {
  /// Writes keys and values of one head at positions [first, first + tokens). k and v: of the first token, at
  /// that head.
  void (*write)(const KvPages& pages, const AttentionShape& shape, uint32_t kv_head, uint32_t first,
                uint32_t tokens, const float* k, size_t k_stride, const float* v, size_t v_stride);
  /// All blocks that the tokens see, merged into out.
  void (*attend)(const AttentionTask& task);
  /// Blocks [block_begin, block_end) each by itself, into partials.
  void (*attend_blocks)(const AttentionTask& task);
  /// Merges the partials of blocks [block_begin, block_end) in increasing order into out.
  void (*merge)(const AttentionTask& task);
};

}  // namespace llamay
