#include "plan/attention_work.hpp"

#include <algorithm>

namespace llamay {
namespace {

constexpr uint32_t kWriteTokens = 64;
/// Fewer blocks than this are not worth another thread.
constexpr uint32_t kLeastBlocks = 2;

uint32_t ceil_divide(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace

void AttentionWork::plan(const AttentionShape& shape, const uint32_t* starts, const uint32_t* counts,
                         std::size_t leases, unsigned threads) {
  writes.clear();
  items.clear();
  splits.clear();
  partial_floats = 0;
  const uint32_t tile = shape.tile();
  uint64_t units = 0;
  for (std::size_t i = 0; i < leases; ++i) units += uint64_t{shape.kv_heads} * ceil_divide(counts[i], tile);
  // Some pieces for each thread, so that none waits long for the last.
  const uint32_t pieces = threads == 1 || units >= 4 * threads
                              ? 1
                              : static_cast<uint32_t>(ceil_divide(4 * threads, static_cast<uint32_t>(units)));

  for (uint32_t lease = 0; lease < leases; ++lease)
    for (uint32_t head = 0; head < shape.kv_heads; ++head) {
      if (counts[lease] <= tile) {
        unit(shape, lease, head, starts[lease], counts[lease], pieces);
        continue;
      }
      for (uint32_t t = 0; t < counts[lease]; t += kWriteTokens)
        writes.push_back({lease, head, t, std::min(kWriteTokens, counts[lease] - t), 0, 0, -1, true});
      // The last tokens see most and come first.
      for (uint32_t t = (counts[lease] - 1) / tile * tile;; t -= tile) {
        const uint32_t n = std::min(tile, counts[lease] - t), position = starts[lease] + t;
        items.push_back({lease, head, t, n, shape.first_visible(position) / kAttentionBlock,
                         (position + n - 1) / kAttentionBlock + 1, -1, false});
        if (t == 0) break;
      }
    }
  if (splits.size() > capacity_) {
    left = std::make_unique<std::atomic<uint32_t>[]>(splits.size());
    capacity_ = splits.size();
  }
  for (std::size_t i = 0; i < splits.size(); ++i) left[i].store(splits[i].items, std::memory_order_relaxed);
}

void AttentionWork::unit(const AttentionShape& shape, uint32_t lease, uint32_t kv_head, uint32_t start,
                         uint32_t count, uint32_t pieces) {
  const uint32_t begin = shape.first_visible(start) / kAttentionBlock,
                 end = (start + count - 1) / kAttentionBlock + 1;
  // Blocks before this one hold nothing that is written now; the last piece writes, and has all the others.
  const uint32_t fresh = start / kAttentionBlock;
  const uint32_t size = std::max(kLeastBlocks, ceil_divide(end - begin, pieces));
  if (pieces == 1 || end - begin <= size || fresh < begin + size) {
    items.push_back({lease, kv_head, 0, count, begin, end, -1, true});
    return;
  }
  const auto split = static_cast<int32_t>(splits.size());
  uint32_t n = 0;
  for (uint32_t block = begin; block < end; ++n) {
    const uint32_t next = block + size > fresh ? end : block + size;
    items.push_back({lease, kv_head, 0, count, block, next, split, next == end});
    block = next;
  }
  splits.push_back({n, begin, end, partial_floats});
  partial_floats += std::size_t{end - begin} * count * shape.group() * llamay::partial_floats(shape);
}

}  // namespace llamay
