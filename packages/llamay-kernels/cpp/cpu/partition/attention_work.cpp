#include "cpu/partition/attention_work.hpp"

#include <algorithm>
#include <numeric>

#include "cpu/partition/shared_pages.hpp"

namespace llamay {
namespace {

constexpr uint32_t kWriteTokens = 64;
/// Fewer blocks than this are not worth another thread.
constexpr uint32_t kLeastBlocks = 2;

uint32_t ceil_divide(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

}  // namespace

void AttentionWork::plan(const AttentionShape& shape, std::span<const Lease> leases,
                         std::span<const std::size_t> attentions, unsigned threads, bool even_shares) {
  tokens.clear();
  segments.clear();
  units.clear();
  writes.clear();
  items.clear();
  splits.clear();
  partial_floats = 0;
  order_.clear();
  for (uint32_t i = 0; i < leases.size(); ++i) {
    if (leases[i].count <= shape.tile())
      order_.push_back(i);
    else
      long_lease(shape, leases[i], i);
  }
  gather(shape, leases, attentions, threads);
  const uint64_t whole = uint64_t{units.size()} * shape.kv_heads;
  // Several pieces for each thread, so that no thread waits long for the last one. But each piece costs a
  // merge: with equal threads and equal units, as few pieces as give each thread the same work.
  uint64_t pieces = 1;
  if (threads > 1 && whole && whole < 4 * threads) {
    const bool same = shape.kv_heads % threads == 0 || units_alike();
    const uint64_t even = threads / std::gcd(whole, uint64_t{threads});
    pieces = same && (even_shares || (even == 1 && whole >= 2 * threads))
                 ? even
                 : ceil_divide(4 * threads, static_cast<uint32_t>(whole));
  }
  share_out(shape, leases, static_cast<uint32_t>(pieces));
  if (splits.size() > capacity_) {
    left = std::make_unique<std::atomic<uint32_t>[]>(splits.size());
    capacity_ = splits.size();
  }
  for (std::size_t i = 0; i < splits.size(); ++i) left[i].store(splits[i].items, std::memory_order_relaxed);
}

void AttentionWork::plan_whole(const AttentionShape& shape, std::span<const Lease> texts, unsigned threads) {
  whole_ = true;
  plan(shape, texts, {}, threads, true);
}

/// A lease with more rows than a tile becomes units of its own: its keys and values are written first, by all
/// threads.
void AttentionWork::long_lease(const AttentionShape& shape, const Lease& lease, uint32_t index) {
  const uint32_t tile = shape.tile();
  for (uint32_t head = 0; head < shape.kv_heads; ++head)
    for (uint32_t t = 0; t < lease.count; t += kWriteTokens)
      writes.push_back({index, head, t, std::min(kWriteTokens, lease.count - t)});
  // The last tokens see the most positions, so their units come first.
  for (uint32_t t = (lease.count - 1) / tile * tile;; t -= tile) {
    const uint32_t n = std::min(tile, lease.count - t);
    units.push_back({static_cast<uint32_t>(tokens.size()), n, static_cast<uint32_t>(segments.size()), 1, 0});
    segments.push_back({index, 0, n, shape.first_visible(lease.start + t) / kAttentionBlock,
                        position(lease, t + n - 1) / kAttentionBlock + 1, 0, false});
    for (uint32_t i = 0; i < n; ++i) tokens.push_back({lease.row + t + i, position(lease, t + i)});
    if (t == 0) break;
  }
}

/// Makes units of the leases in order_: leases with pages in common share a unit while it has room.
void AttentionWork::gather(const AttentionShape& shape, std::span<const Lease> leases,
                           std::span<const std::size_t> attentions, unsigned threads) {
  // Where several units are needed, their number should divide evenly among the threads.
  uint32_t total = 0, most = shape.tile();
  for (const uint32_t i : order_) total += leases[i].count;
  if (total > most) {
    const uint32_t least = ceil_divide(total, most);
    uint32_t n = least;
    while (n < 2 * least && n * shape.kv_heads % threads) ++n;
    if (n * shape.kv_heads % threads == 0) most = ceil_divide(total, n);
  }
  common_.clear();
  if (order_.size() > 1 && whole_) {
    common_.assign(order_.size() - 1, 0);
  } else if (order_.size() > 1) {
    const SharedPages pages(leases, attentions);
    std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) { return pages.before(a, b); });
    for (std::size_t i = 0; i + 1 < order_.size(); ++i)
      common_.push_back(pages.common_blocks(order_[i], order_[i + 1]));
  }
  for (std::size_t begin = 0, end; begin < order_.size(); begin = end) {
    uint32_t count = leases[order_[begin]].count, common = kNoBlock;
    for (end = begin + 1; end < order_.size(); ++end) {
      const uint32_t more = leases[order_[end]].count, both = std::min(common, common_[end - 1]);
      const uint32_t seen = std::max(shape.first_visible(leases[order_[end - 1]].start),
                                     shape.first_visible(leases[order_[end]].start));
      if (both <= seen / kAttentionBlock || count + more > most) break;
      count += more;
      common = both;
    }
    const auto token = static_cast<uint32_t>(tokens.size()), segment = static_cast<uint32_t>(segments.size());
    for (std::size_t i = begin; i < end; ++i) {
      const Lease& lease = leases[order_[i]];
      for (uint32_t t = 0; t < lease.count; ++t) tokens.push_back({lease.row + t, position(lease, t)});
    }
    branch(shape, leases, begin, end, 0, 0);
    units.push_back({token, count, segment, static_cast<uint32_t>(segments.size()) - segment, 0});
  }
}

/// Adds the segments of order_[begin, end) from first_block on: the blocks that all of these leases have in
/// common, then, recursively, each run of leases with more in common, down to one lease.
void AttentionWork::branch(const AttentionShape& shape, std::span<const Lease> leases, std::size_t begin,
                           std::size_t end, uint32_t first_block, uint32_t first_token) {
  uint32_t n = 0, seen = kNoBlock;
  for (std::size_t i = begin; i < end; ++i) {
    n += leases[order_[i]].count;
    seen = std::min(seen, shape.first_visible(leases[order_[i]].start) / kAttentionBlock);
  }
  const uint32_t from = std::max(first_block, seen);
  if (end - begin == 1) {
    const Lease& lease = leases[order_[begin]];
    segments.push_back({order_[begin], first_token, first_token + n, from,
                        (lease.start + lease.count - 1) / kAttentionBlock + 1, 0, true});
    return;
  }
  uint32_t common = kNoBlock;
  for (std::size_t i = begin; i + 1 < end; ++i) common = std::min(common, common_[i]);
  if (common > from)
    segments.push_back({order_[begin], first_token, first_token + n, from, common, 0, false});
  for (std::size_t i = begin, stop; i < end; i = stop) {
    uint32_t count = leases[order_[i]].count;
    for (stop = i + 1; stop < end && common_[stop - 1] > common; ++stop) count += leases[order_[stop]].count;
    branch(shape, leases, i, stop, std::max(common, first_block), first_token);
    first_token += count;
  }
}

/// Whether all units have about the same amount of work.
bool AttentionWork::units_alike() const {
  uint64_t least = ~uint64_t{0}, most = 0;
  for (const Unit& u : units) {
    uint64_t work = 0;
    for (uint32_t i = u.segment; i < u.segment + u.segments; ++i) {
      const Segment& s = segments[i];
      work += uint64_t{s.block_end - s.block_begin} * (s.token_end - s.token_begin);
    }
    least = std::min(least, work);
    most = std::max(most, work);
  }
  return most <= least + least / 4;
}

void AttentionWork::share_out(const AttentionShape& shape, std::span<const Lease> leases, uint32_t pieces) {
  for (uint32_t unit = 0; unit < units.size(); ++unit) {
    cut(shape, leases, unit, pieces);
    for (uint32_t head = 0; head < shape.kv_heads; ++head) {
      if (pieces_.size() <= 1) {
        items.push_back({unit, head, -1, 0, 0, 0});
        continue;
      }
      for (Item piece : pieces_) {
        piece.kv_head = head;
        piece.split = static_cast<int32_t>(splits.size());
        items.push_back(piece);
      }
      splits.push_back({static_cast<uint32_t>(pieces_.size()), partial_floats, pieces_.front().block_end});
      partial_floats += units[unit].partial_floats;
    }
  }
}

/// Divides a unit into pieces_; no piece or one where the unit stays whole.
void AttentionWork::cut(const AttentionShape& shape, std::span<const Lease> leases, uint32_t unit,
                        uint32_t pieces) {
  pieces_.clear();
  // A long lease has many tiles already, and its keys and values are written before.
  if (pieces == 1) return;
  Unit& u = units[unit];
  const std::span<Segment> of_unit(segments.data() + u.segment, u.segments);
  uint32_t blocks = 0;
  for (const Segment& s : of_unit) blocks += s.block_end - s.block_begin;
  const uint32_t size = std::max(kLeastBlocks, ceil_divide(blocks, pieces));
  for (uint32_t i = 0; i < u.segments; ++i) {
    Segment& s = of_unit[i];
    // No block before this one is written in this step; the last piece writes the new positions and has all
    // blocks from here on.
    const uint32_t fresh = s.writes ? leases[s.lease].start / kAttentionBlock : s.block_end;
    s.partials = u.partial_floats;
    u.partial_floats += std::size_t{s.block_end - s.block_begin} * (s.token_end - s.token_begin) *
                        shape.group() * llamay::partial_floats(shape);
    for (uint32_t block = s.block_begin, next; block < s.block_end; block = next) {
      next = block + size > fresh ? s.block_end : block + size;
      pieces_.push_back({unit, 0, -1, i, block, next});
    }
  }
}

}  // namespace llamay
