#include <array>

#include "plan/run.hpp"

namespace llamay {
namespace {

// A unit has at most as many tokens; a lease of it one segment, and what some of them share one each, fewer
// than leases.
constexpr std::size_t kTokens = kAttentionRows, kSegments = 2 * kTokens;

}  // namespace

const KvPages& Run::pages(const Node& n, uint32_t lease) const {
  return scratch_.leases[lease].pages[n.attention];
}

void Run::write(const Node& n, const AttentionWork::Write& w, const Own& own) const {
  const AttentionShape& s = program_.shapes[n.shape];
  const AttentionWork::Lease& lease = scratch_.leases[w.lease];
  const std::size_t row = lease.row + w.token;
  const std::size_t k_stride = std::size_t{s.kv_heads} * s.k_dim,
                    v_stride = std::size_t{s.kv_heads} * s.v_dim;
  attention_.write(pages(n, w.lease), s, w.kv_head, lease.start + w.token, w.tokens,
                   value(n.b, own) + row * k_stride + std::size_t{w.kv_head} * s.k_dim, k_stride,
                   value(n.c, own) + row * v_stride + std::size_t{w.kv_head} * s.v_dim, v_stride);
}

AttentionPlace Run::place(const Node& n, const AttentionWork& work, std::size_t index) const {
  if (index >= work.items.size()) return {};
  const AttentionWork::Item& item = work.items[index];
  const bool whole = item.split < 0;
  const AttentionWork::Segment& s = work.segments[work.units[item.unit].segment + (whole ? 0 : item.segment)];
  return {&pages(n, s.lease), item.kv_head, whole ? s.block_begin : item.block_begin};
}

void Run::attention(const Node& n, std::size_t number, std::size_t next, const Own& own, bool only_write) {
  const AttentionShape& s = program_.shapes[n.shape];
  AttentionWork& work = scratch_.attention[n.shape];
  const AttentionWork::Item& item = work.items[number];
  const AttentionWork::Unit& unit = work.units[item.unit];
  std::array<AttentionSegment, kSegments> segments;
  uint32_t n_segments = 0;
  for (uint32_t i = 0; i < unit.segments; ++i) {
    const AttentionWork::Segment& from = work.segments[unit.segment + i];
    const bool here = item.split < 0 || (i == item.segment && item.block_end == from.block_end);
    if (from.writes && here) write(n, {from.lease, item.kv_head, 0, scratch_.leases[from.lease].count}, own);
    segments[n_segments++] = {&pages(n, from.lease), from.token_begin, from.token_end,
                              from.block_begin,      from.block_end,   from.partials};
  }
  if (only_write) return;

  std::array<AttentionToken, kTokens> tokens;
  const std::size_t head = std::size_t{item.kv_head} * s.group();
  for (uint32_t i = 0; i < unit.tokens; ++i) {
    const AttentionWork::Token& from = work.tokens[unit.token + i];
    tokens[i] = {value(n.a, own) + (std::size_t{from.row} * s.heads + head) * s.k_dim,
                 value(n.out, own) + (std::size_t{from.row} * s.heads + head) * s.v_dim, from.position};
  }
  AttentionTask task{&s,      item.kv_head,  unit.tokens,         n_segments, tokens.data(), segments.data(),
                     nullptr, own.attention, place(n, work, next)};
  if (item.split < 0) return attention_.attend(task);

  const auto index = static_cast<std::size_t>(item.split);
  const AttentionWork::Split& split = work.splits[index];
  task.partials = partials_ + split.partials;
  AttentionSegment piece = segments[item.segment];
  piece.partials += std::size_t{item.block_begin - piece.block_begin} *
                    (piece.token_end - piece.token_begin) * s.group() * partial_floats(s);
  piece.block_begin = item.block_begin;
  piece.block_end = item.block_end;
  task.segments = &piece;
  task.n_segments = 1;
  task.folds = item.segment == 0 && item.block_begin == segments[0].block_begin;
  attention_.attend_blocks(task);
  if (work.left[index].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  work.left[index].store(split.items,
                         std::memory_order_relaxed);  // for the next layer, which begins after all have met
  task.segments = segments.data();
  task.n_segments = n_segments;
  task.folded_end = split.folded_end;
  attention_.merge(task);
}

}  // namespace llamay
