#include "plan/run.hpp"

namespace llamay {

const KvPages& Run::pages(const Node& n, const AttentionWork::Item& item) const {
  return scratch_.pages[item.lease * plan_.needs_.layers.size() + n.attention];
}

void Run::write(const Node& n, const AttentionWork::Item& item) const {
  const AttentionShape& s = program_.shapes[n.shape];
  const std::size_t row = scratch_.first_rows[item.lease] + item.token;
  const std::size_t k_stride = std::size_t{s.kv_heads} * s.k_dim,
                    v_stride = std::size_t{s.kv_heads} * s.v_dim;
  attention_.write(pages(n, item), s, item.kv_head, scratch_.starts[item.lease] + item.token, item.tokens,
                   value(n.b) + row * k_stride + std::size_t{item.kv_head} * s.k_dim, k_stride,
                   value(n.c) + row * v_stride + std::size_t{item.kv_head} * s.v_dim, v_stride);
}

void Run::attention(const Node& n, const AttentionWork::Item& item, const Own& own, bool only_write) {
  const AttentionShape& s = program_.shapes[n.shape];
  if (item.writes) write(n, item);
  if (only_write) return;
  const std::size_t row = scratch_.first_rows[item.lease] + item.token,
                    head = std::size_t{item.kv_head} * s.group();
  AttentionTask task{};
  task.shape = &s;
  task.pages = &pages(n, item);
  task.kv_head = item.kv_head;
  task.first = scratch_.starts[item.lease] + item.token;
  task.tokens = item.tokens;
  task.block_begin = item.block_begin;
  task.block_end = item.block_end;
  task.q_stride = std::size_t{s.heads} * s.k_dim;
  task.q = value(n.a) + row * task.q_stride + head * s.k_dim;
  task.out_stride = std::size_t{s.heads} * s.v_dim;
  task.out = value(n.out) + row * task.out_stride + head * s.v_dim;
  task.scratch = own.attention;
  if (item.split < 0) return attention_.attend(task);

  const auto index = static_cast<std::size_t>(item.split);
  AttentionWork& work = scratch_.attention[n.shape];
  const AttentionWork::Split& split = work.splits[index];
  float* partials = partials_ + split.partials;
  task.partials = partials + std::size_t{item.block_begin - split.block_begin} * item.tokens * s.group() *
                                 partial_floats(s);
  attention_.attend_blocks(task);
  if (work.left[index].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  work.left[index].store(split.items,
                         std::memory_order_relaxed);  // for the next layer, which begins after all have met
  task.partials = partials;
  task.block_begin = split.block_begin;
  task.block_end = split.block_end;
  attention_.merge(task);
}

}  // namespace llamay
