// Attention: causal, over all that a layer has kept of a context, or over the whole of a text that keeps
// nothing.
#include <algorithm>
#include <array>

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/sharing.hpp"
#include "plan/checker.hpp"

namespace llamay {
namespace {

// Bounds of a unit: its tokens fit into a tile, each of its leases has one segment, and there are fewer
// segments of shared blocks than leases.
constexpr std::size_t kTokens = kAttentionRows, kSegments = 2 * kTokens;

struct Attention {
  AttentionShape shape;
  uint32_t layer;
  bool whole;
};

struct PreparedAttention {
  AttentionShape shape;
  std::size_t number;  // index of the attention in the plan; 0 over whole texts
  std::size_t work;    // index of the shape
  bool whole;
};

void prepare(Preparation& p, const Node& n, Prepared& out) {
  const Attention& a = n.as<Attention>();
  PreparedAttention prepared{a.shape, 0, 0, a.whole};
  if (a.whole) {
    prepared.work = p.lease_needs().whole_shape(a.shape);
  } else {
    prepared.number = p.lease_needs().add(a.layer, a.shape);
    prepared.work = p.lease_needs().shape_of(a.shape);
  }
  out.data = std::make_shared<const PreparedAttention>(prepared);
}

/// The work of one thread on one attention.
class ThreadAttention {
 public:
  ThreadAttention(Run& run, const Prepared& n, const ThreadContext& thread, bool only_write)
      : run_(run),
        a_(n.as<PreparedAttention>()),
        s_(a_.shape),
        work_(a_.whole ? run.whole_work(a_.work) : run.work(a_.work)),
        thread_(thread),
        only_write_(only_write),
        q_(run.value(n.ins[0], thread)),
        k_(run.value(n.ins[1], thread)),
        v_(n.ins.size() > 2 ? run.value(n.ins[2], thread) : nullptr),
        out_(run.value(n.outs[0], thread)) {}

  AttentionWork& work() const { return work_; }

  void write(const AttentionWork::Write& w) const {
    const AttentionWork::Lease& lease = run_.texts()[w.lease];
    const std::size_t row = lease.row + w.token;
    const std::size_t k_stride = std::size_t{s_.kv_heads} * s_.k_dim,
                      v_stride = v_ ? std::size_t{s_.kv_heads} * s_.v_dim : 0;
    run_.attention().write(pages(w.lease), s_, w.kv_head, lease.start + w.token, w.tokens,
                           k_ + row * k_stride + std::size_t{w.kv_head} * s_.k_dim, k_stride,
                           v_ ? v_ + row * v_stride + std::size_t{w.kv_head} * s_.v_dim : nullptr, v_stride);
  }

  /// next: the item that the thread will probably take after this one.
  void attend(std::size_t number, std::size_t next);

 private:
  const KvPages& pages(uint32_t lease) const {
    return a_.whole ? run_.whole_pages(a_.work, lease) : run_.texts()[lease].pages[a_.number];
  }

  /// The first block that an item reads.
  AttentionPlace place(std::size_t index) const {
    if (index >= work_.items.size()) return {};
    const AttentionWork::Item& item = work_.items[index];
    const bool all = item.split < 0;
    const AttentionWork::Segment& s =
        work_.segments[work_.units[item.unit].segment + (all ? 0 : item.segment)];
    return {&pages(s.lease), item.kv_head, all ? s.block_begin : item.block_begin};
  }

  Run& run_;
  const PreparedAttention& a_;
  const AttentionShape& s_;
  AttentionWork& work_;
  const ThreadContext& thread_;
  const bool only_write_;
  const float *q_, *k_, *v_;
  float* out_;
};

void ThreadAttention::attend(std::size_t number, std::size_t next) {
  const AttentionWork::Item& item = work_.items[number];
  const AttentionWork::Unit& unit = work_.units[item.unit];
  std::array<AttentionSegment, kSegments> segments;
  uint32_t n_segments = 0;
  for (uint32_t i = 0; i < unit.segments; ++i) {
    const AttentionWork::Segment& from = work_.segments[unit.segment + i];
    const bool here = item.split < 0 || (i == item.segment && item.block_end == from.block_end);
    if (from.writes && here) write({from.lease, item.kv_head, 0, run_.texts()[from.lease].count});
    segments[n_segments++] = {&pages(from.lease), from.token_begin, from.token_end,
                              from.block_begin,   from.block_end,   from.partials};
  }
  if (only_write_) return;

  std::array<AttentionToken, kTokens> tokens;
  const std::size_t head = std::size_t{item.kv_head} * s_.group();
  for (uint32_t i = 0; i < unit.tokens; ++i) {
    const AttentionWork::Token& from = work_.tokens[unit.token + i];
    tokens[i] = {q_ + (std::size_t{from.row} * s_.heads + head) * s_.k_dim,
                 out_ + (std::size_t{from.row} * s_.heads + head) * s_.v_dim, from.position};
  }
  AttentionTask task{&s_,     item.kv_head,      unit.tokens, n_segments, tokens.data(), segments.data(),
                     nullptr, thread_.attention, place(next)};
  if (item.split < 0) return run_.attention().attend(task);

  const auto index = static_cast<std::size_t>(item.split);
  const AttentionWork::Split& split = work_.splits[index];
  task.partials = run_.partials() + split.partials;
  AttentionSegment piece = segments[item.segment];
  piece.partials += std::size_t{item.block_begin - piece.block_begin} *
                    (piece.token_end - piece.token_begin) * s_.group() * partial_floats(s_);
  piece.block_begin = item.block_begin;
  piece.block_end = item.block_end;
  task.segments = &piece;
  task.n_segments = 1;
  task.folds = item.segment == 0 && item.block_begin == segments[0].block_begin;
  run_.attention().attend_blocks(task);
  if (work_.left[index].fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  work_.left[index].store(
      split.items,
      std::memory_order_relaxed);  // for the next layer, which begins after all threads have met
  task.segments = segments.data();
  task.n_segments = n_segments;
  task.folded_end = split.folded_end;
  run_.attention().merge(task);
}

void share(Run& run, const Stage& stage, const Prepared& n, const ThreadContext& thread, Sharing& sharing) {
  ThreadAttention attention(run, n, thread, run.only_keeps(stage));
  const AttentionWork& work = attention.work();
  if (!sharing.one_row())
    sharing.first(work.writes.size(), [&](std::size_t k) { attention.write(work.writes[k]); });
  const std::size_t units = work.units.size(), items = work.items.size();
  if (!sharing.one_row() && run.texts().size() == 1 && units > 1 && work.splits.empty())
    // The units of a prompt are in the order of decreasing positions.
    return sharing.tiles(units, items / units, [&](std::size_t k) {
      const std::size_t unit = units - 1 - k % units;
      attention.attend(unit * (items / units) + k / units, items);
    });
  // Threads take turns.
  sharing.pieces(items, [&](std::size_t k) { attention.attend(k, k + run.n_threads()); });
}

/// Multiplications of queries with keys and of weights with values.
uint64_t cost(const Run& run, const Prepared& n) {
  const PreparedAttention& a = n.as<PreparedAttention>();
  const AttentionShape& s = a.shape;
  uint64_t sum = 0;
  for (const AttentionWork::Lease& text : run.texts()) {
    const uint32_t end = text.start + text.count;
    const uint64_t seen = s.window ? std::min(s.window, end) : end;
    sum += seen * text.count * s.heads * (s.k_dim + s.v_dim);
  }
  return sum;
}

constexpr CpuWork causal_work{
    .primitive = {"attention"}, .prepare = prepare, .share = share, .cost = cost, .keeps = true};
constexpr CpuWork whole_work{
    .primitive = {"attention over whole texts"}, .prepare = prepare, .share = share, .cost = cost};

AttentionShape shape_of(Checker& c, const Record& r) {
  AttentionShape s{};
  s.heads = c.whole(r, "heads", 1);
  s.kv_heads = c.whole(r, "kv_heads", 1);
  s.k_dim = c.whole(r, "k_dim", 1);
  s.v_dim = c.whole(r, "v_dim", 1);
  s.window = c.whole(r, "window", 0);
  s.scale = c.number(r, "scale");
  s.softcap = c.number(r, "softcap");
  s.v_from_k = c.whole_or(r, "v_from_k", 0, 0);
  if (s.softcap < 0) c.fail("softcap must not be negative; 0 is none");
  if (s.heads % s.kv_heads)
    c.fail(std::to_string(s.heads) + " query heads do not divide among " + std::to_string(s.kv_heads) +
           " key/value heads");
  if (s.v_from_k && (s.v_from_k != s.v_dim || s.v_from_k > s.k_dim))
    c.fail("v_from_k is " + std::to_string(s.v_from_k) + " but v_dim is " + std::to_string(s.v_dim) +
           " and a key has " + std::to_string(s.k_dim) + " numbers");
  if ((r.args.size() == 2) != (s.v_from_k > 0))
    c.fail("takes q, k and v, or q and k where v_from_k says how many numbers of a key are its value");
  return s;
}

void check_attention(Checker& c, const Record& r) {
  const AttentionShape s = shape_of(c, r);
  const uint32_t layer = c.layer(r);
  static constexpr const char* masks[] = {"causal", "full"};
  const bool whole = c.has(r, "mask") && c.one_of(r, "mask", masks) == 1;
  c.expect_width(in(r, 0), std::size_t{s.heads} * s.k_dim, "heads * k_dim is");
  c.expect_width(in(r, 1), std::size_t{s.kv_heads} * s.k_dim, "kv_heads * k_dim is");
  std::vector<int> ins{in(r, 0), in(r, 1)};
  if (r.args.size() > 2) {
    c.expect_width(in(r, 2), std::size_t{s.kv_heads} * s.v_dim, "kv_heads * v_dim is");
    ins.push_back(in(r, 2));
  }
  c.expect_width(out(r), std::size_t{s.heads} * s.v_dim, "heads * v_dim is");
  for (const int v : ins) c.expect_all_rows(v);
  if (whole) {
    if (s.window || s.v_from_k) c.fail("with the mask \"full\" there is neither a window nor v_from_k");
    c.program().whole_texts = true;
  } else if (s.v_from_k) {
    if (s.window) c.fail("with v_from_k there is no window");
    c.keep({Memory::Kind::latent, layer, s.kv_heads, s.k_dim, 0});
  } else {
    c.keep({Memory::Kind::keys_values, layer, s.kv_heads, s.k_dim, s.v_dim, s.window});
  }
  c.node((whole ? whole_work : causal_work).primitive, std::move(ins), {out(r)}, false, {},
         Attention{s, layer, whole});
}

const Operations entered{
    {"attention",
     1,
     {2, 3},
     0,
     {{"layer", AttrType::integer},
      {"heads", AttrType::integer},
      {"kv_heads", AttrType::integer},
      {"k_dim", AttrType::integer},
      {"v_dim", AttrType::integer},
      {"scale", AttrType::number},
      {"window", AttrType::integer},
      {"softcap", AttrType::number},
      {"v_from_k", AttrType::integer, true},
      {"mask", AttrType::text, true}},
     check_attention},
};

}  // namespace
}  // namespace llamay
