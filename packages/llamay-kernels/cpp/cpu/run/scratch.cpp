#include "cpu/run/scratch.hpp"

#include <algorithm>
#include <numeric>

#include "llamay/kv_view.h"

namespace llamay {

void Scratch::plan_whole(std::span<const AttentionShape> shapes) {
  // The pages of a text follow each other, so that all texts can share one table of page numbers.
  constexpr uint32_t shift = 6, table_shift = 30;
  static_assert(1u << shift == kAttentionBlock);
  std::size_t pages = 0, most = 0, bytes = 0;
  for (const AttentionWork::Lease& text : leases) {
    const std::size_t n = (text.count + kAttentionBlock - 1) / kAttentionBlock;
    pages += n;
    most = std::max(most, n);
  }
  const auto page_floats = [](const AttentionShape& s) {
    return std::size_t{s.kv_heads} * (s.k_dim + s.v_dim) * kAttentionBlock;
  };
  for (const AttentionShape& s : shapes) bytes = std::max(bytes, pages * page_floats(s) * sizeof(float));
  if (numbers_.size() < most) {
    numbers_.resize(most);
    std::iota(numbers_.begin(), numbers_.end(), 0);
  }
  block_ = numbers_.data();
  auto* arena = static_cast<uint8_t*>(whole_.at_least(bytes));
  whole_pages.clear();
  for (const AttentionShape& s : shapes) {
    std::size_t first = 0;
    for (const AttentionWork::Lease& text : leases) {
      const std::size_t page_bytes = page_floats(s) * sizeof(float);
      whole_pages.push_back({arena + first * page_bytes, page_bytes, &block_, 0,
                             std::size_t{s.kv_heads} * s.k_dim * kAttentionBlock * sizeof(float), 0, 0, shift,
                             table_shift, LLAMAY_KV_F32});
      first += (text.count + kAttentionBlock - 1) / kAttentionBlock;
    }
  }
}

}  // namespace llamay
