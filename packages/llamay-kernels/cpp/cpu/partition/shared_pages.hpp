#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "cpu/partition/attention_work.hpp"

namespace llamay {

constexpr uint32_t kNoBlock = 0xffffffff;

/// Finds contexts that begin with the same pages, as branches of one context do. Page tables that share
/// blocks of page numbers are compared block by block, 64 pages at a time.
class SharedPages {
 public:
  SharedPages(std::span<const AttentionWork::Lease> leases, std::span<const std::size_t> attentions)
      : leases_(leases), attentions_(attentions) {}

  /// A strict order in which contexts with the same first pages are adjacent.
  bool before(uint32_t a, uint32_t b) const {
    const KvPages &p = pages(a, 0), &q = pages(b, 0);
    if (p.arena != q.arena) return p.arena < q.arena;
    const uint32_t full_a = leases_[a].start >> p.page_shift, full_b = leases_[b].start >> q.page_shift;
    const uint32_t n = same(p, q, std::min(full_a, full_b));
    if (n < full_a && n < full_b) return p.number(n) < q.number(n);
    return full_a != full_b ? full_a < full_b : a < b;
  }

  /// The number of leading attention blocks that lie in the same pages of both contexts and are full in both,
  /// for every attention.
  uint32_t common_blocks(uint32_t a, uint32_t b) const {
    uint32_t positions = std::min(leases_[a].start, leases_[b].start);
    const int32_t* const* known = nullptr;
    for (std::size_t i = 0; i < attentions_.size() && positions; ++i) {
      const KvPages &p = pages(a, i), &q = pages(b, i);
      if (p.arena != q.arena || p.page_bytes != q.page_bytes || p.page_shift != q.page_shift ||
          p.block_shift != q.block_shift || p.dtype != q.dtype || p.k_offset != q.k_offset ||
          p.v_offset != q.v_offset)
        return 0;
      if (p.blocks == known) continue;  // layers of one group have one table
      known = p.blocks;
      positions = std::min(positions, same(p, q, positions >> p.page_shift) << p.page_shift);
    }
    return positions / kAttentionBlock;
  }

 private:
  const KvPages& pages(uint32_t lease, std::size_t i) const { return leases_[lease].pages[attentions_[i]]; }

  /// Return how many of the first n pages are the same.
  static uint32_t same(const KvPages& p, const KvPages& q, uint32_t n) {
    if (p.block_shift != q.block_shift) return 0;
    const uint32_t block_pages = 1u << p.block_shift;
    for (uint32_t i = 0; i < n; i += block_pages) {
      if (p.blocks[i >> p.block_shift] == q.blocks[i >> p.block_shift]) continue;
      const uint32_t end = std::min(n, i + block_pages);
      for (uint32_t page = i; page < end; ++page)
        if (p.number(page) != q.number(page)) return page;
    }
    return n;
  }

  const std::span<const AttentionWork::Lease> leases_;
  const std::span<const std::size_t> attentions_;
};

}  // namespace llamay
