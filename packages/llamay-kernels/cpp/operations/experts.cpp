// Mixtures of experts: a router chooses some experts for each row, whose products are then added up. The
// matrices of all experts lie in one weight, one expert's rows after another's, sixteen rows to a group: so
// an expert is a range of groups, and reading it reads nothing of the others.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/sharing.hpp"
#include "operations/parts.hpp"
#include "ops/experts/combine.hpp"
#include "ops/experts/route.hpp"

namespace llamay {
namespace {

void prepare_route(Preparation& p, const Node& n, Prepared& out) {
  Route route = n.as<Route>();
  if (!n.weights.empty()) route.bias = p.vector(n.weights[0]);
  out.data = std::make_shared<const Route>(route);
}

void route_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                const ThreadContext& thread) {
  const Route& route = n.as<Route>();
  for (std::size_t i = from; i < to; ++i)
    route_tables[run.isa()].row(route, run.row(n.ins[0], i, thread),
                                run.value(n.outs[0], thread) + i * route.k,
                                run.value(n.outs[1], thread) + i * route.k);
}

constexpr CpuWork route_work{.primitive = {"route"}, .prepare = prepare_route, .rows = route_rows};

void check_route(Checker& c, const Record& r) {
  const std::size_t experts = c.width(in(r, 0)), k = c.whole(r, "k", 1),
                    groups = c.whole_or(r, "groups", 1, 1), used = c.whole_or(r, "groups_used", 1, 1);
  if (experts > kMaxExperts)
    c.fail("there are " + std::to_string(experts) + " experts; at most " + std::to_string(kMaxExperts) +
           " can be");
  if (k > experts) c.fail("k is " + std::to_string(k) + " of " + std::to_string(experts) + " experts");
  if (experts % groups || used > groups || k > used * (experts / groups))
    c.fail(std::to_string(groups) + " groups, of which " + std::to_string(used) + " are used, do not fit " +
           std::to_string(experts) + " experts of which " + std::to_string(k) + " are chosen");
  c.expect_width(out(r, 0), k, "k is");
  c.expect_width(out(r, 1), k, "k is");
  const uint32_t norm = c.whole(r, "norm", 0);
  if (norm > 1) c.fail("norm must be 0 or 1");
  std::vector<int> weights;
  if (!r.weights.empty()) {
    c.vector(r.weights[0], experts, "the bias");
    weights.push_back(static_cast<int>(r.weights[0]));
  }
  const Route route{static_cast<RouteKind>(c.one_of(r, "kind", kRouteNames)),
                    experts,
                    k,
                    groups,
                    used,
                    norm == 1,
                    c.number(r, "scale"),
                    nullptr};
  c.node(route_work.primitive, {in(r, 0)}, {out(r, 0), out(r, 1)}, c.selected(in(r, 0)), std::move(weights),
         route);
}

/// For each row, and for each of the k experts that it is routed to: the product of the expert's part of one
/// matrix with the row's activation (or with the k-th part of it), or of two matrices as a gate and the
/// values that it lets through.
struct Experts {
  std::size_t experts, k;
  std::size_t rows;   // rows of one expert's matrix
  std::size_t parts;  // parts of a row's activation: 1, or k
  bool gated, acts;
  UnaryKind act;

  std::size_t groups() const { return rows / 16; }
};

/// The assignment of rows to experts, in a thread's own memory. Every thread computes the same one.
class Routing {
 public:
  static std::size_t bytes(std::size_t experts, std::size_t entries) {
    return (2 * (experts + 1) + entries) * sizeof(uint32_t);
  }

  /// ids: k for each row.
  Routing(const float* ids, std::size_t rows, std::size_t k, std::size_t experts, std::byte* memory)
      : experts_(experts),
        first_(reinterpret_cast<uint32_t*>(memory)),
        tile_(first_ + experts + 1),
        entries_(tile_ + experts + 1) {
    std::fill_n(first_, experts + 1, 0u);
    const std::size_t n = rows * k;
    for (std::size_t i = 0; i < n; ++i) ++first_[static_cast<std::size_t>(ids[i]) + 1];
    for (std::size_t e = 0; e < experts; ++e) first_[e + 1] += first_[e];
    std::copy_n(first_, experts, tile_);
    for (std::size_t i = 0; i < n; ++i)
      entries_[tile_[static_cast<std::size_t>(ids[i])]++] = static_cast<uint32_t>(i);
    tile_[0] = 0;
    for (std::size_t e = 0; e < experts; ++e)
      tile_[e + 1] = tile_[e] + static_cast<uint32_t>(ceil_divide(first_[e + 1] - first_[e], kRowTile));
  }

  std::size_t tiles() const { return tile_[experts_]; }

  struct Tile {
    std::size_t expert;
    const uint32_t* entries;  // row * k + place among the row's experts
    std::size_t count;
  };
  Tile tile(std::size_t number) const {
    const auto* after = std::upper_bound(tile_, tile_ + experts_ + 1, static_cast<uint32_t>(number));
    const auto e = static_cast<std::size_t>(after - tile_) - 1;
    const std::size_t begin = first_[e] + (number - tile_[e]) * kRowTile;
    return {e, entries_ + begin, std::min<std::size_t>(kRowTile, first_[e + 1] - begin)};
  }

 private:
  const std::size_t experts_;
  uint32_t *first_, *tile_, *entries_;  // an expert's first entry; its first tile
};

void prepare_experts(Preparation& p, const Node& n, Prepared& out) {
  const Experts& e = n.as<Experts>();
  for (const int weight : n.weights) {
    const PackedMatrix& m = p.matrix(weight);
    p.reads(m, e.k, e.experts);
    out.products.push_back({&m, nullptr, n.outs[0]});
    out.reads.push_back({n.ins[0], traits(m.format).activation, m.cols, e.parts});
  }
}

std::size_t gathered_bytes(const Prepared& n) {
  std::size_t most = 0;
  for (const Read& read : n.reads) most = std::max(most, activation_bytes(read.kind, read.cols));
  return whole_lines(most * kRowTile);
}

/// A tile for each product, the gathered activations, then the routing.
std::size_t scratch_bytes(const Prepared& n, std::size_t rows) {
  const Experts& e = n.as<Experts>();
  return 2 * kProductFloats * sizeof(float) + gathered_bytes(n) + Routing::bytes(e.experts, rows * e.k);
}

/// The rows whose activations a thread has gathered last: it often takes several pieces of one tile in a row.
struct Gathered {
  const uint32_t* entries = nullptr;
  int activation = -1;
};

/// One tile with the groups [begin, end) of its expert.
void expert_tile(const Run& run, const Stage& stage, const Prepared& n, const Routing::Tile& tile,
                 std::size_t begin, std::size_t end, const ThreadContext& thread, Gathered& now) {
  const Experts& e = n.as<Experts>();
  auto* products = reinterpret_cast<float*>(thread.extra);
  std::byte* gathered = thread.extra + 2 * kProductFloats * sizeof(float);
  const std::size_t columns = (end - begin) * 16, first = (tile.expert * e.groups() + begin) * 16;
  for (std::size_t i = 0; i < n.products.size(); ++i) {
    const int a = stage.activations[i];
    const std::size_t bytes = run.activation(a).part_bytes();
    const std::byte* x = run.activation(a, thread);
    const auto row_of = [&](uint32_t entry) { return x + (e.parts == 1 ? entry / e.k : entry) * bytes; };
    const std::byte* from = gathered;
    if (tile.count == 1) {
      from = row_of(tile.entries[0]);
    } else if (a != now.activation || tile.entries != now.entries) {
      for (std::size_t t = 0; t < tile.count; ++t)
        std::memcpy(gathered + t * bytes, row_of(tile.entries[t]), bytes);
      now = {tile.entries, a};
    }
    // Columns are counted from the matrix's first; only this chunk's are written.
    run.matmul().matmul(*n.products[i].matrix, from, tile.count, first / 16, first / 16 + (end - begin),
                        products + i * kProductFloats - first, columns, nullptr, nullptr, 0);
  }
  float* out = run.value(n.outs[0], thread);
  const UnaryTable& unary = unary_tables[run.isa()];
  for (std::size_t t = 0; t < tile.count; ++t) {
    float* to = out + tile.entries[t] * e.rows + begin * 16;
    const float* product = products + t * columns;
    if (e.gated)
      unary.apply_mul(e.act, product, product + kProductFloats, to, columns);
    else if (e.acts)
      unary.apply(e.act, product, to, columns);
    else
      std::memcpy(to, product, columns * sizeof(float));
  }
}

void share_experts(Run& run, const Stage& stage, const Prepared& n, const ThreadContext& thread,
                   Sharing& sharing) {
  const Experts& e = n.as<Experts>();
  Gathered now;
  const std::size_t n_rows = run.rows(stage.shared_selected), groups = e.groups();
  if (sharing.one_row()) {
    // Each expert of the row is a tile; the ids are known once a thread has prepared.
    const float* ids = run.value(n.ins[1], thread);
    const std::size_t wanted = 4 * run.n_threads(), pieces = ceil_divide(wanted, e.k);
    const std::size_t chunk =
                          std::clamp<std::size_t>((groups / pieces + 1) / 2 * 2,
                                                  std::min<std::size_t>(2, groups), kGroupChunk * kRowTile),
                      chunks = ceil_divide(groups, chunk);
    return sharing.pieces(e.k * chunks, [&](std::size_t k) {
      const auto entry = static_cast<uint32_t>(k / chunks);
      const std::size_t begin = k % chunks * chunk;
      expert_tile(run, stage, n, {static_cast<std::size_t>(ids[entry]), &entry, 1}, begin,
                  std::min(begin + chunk, groups), thread, now);
    });
  }
  // As many pieces as any ids could need, since a thread that comes late may find other values in the place
  // of the ids. A thread that holds a piece keeps the stage from ending, and so the ids in their place.
  const std::size_t entries = n_rows * e.k, chunks = ceil_divide(groups, kGroupChunk),
                    most = std::min(entries, entries / kRowTile + e.experts);
  std::optional<Routing> routing;
  sharing.pieces(most * chunks, [&](std::size_t k) {
    if (!routing)
      routing.emplace(run.value(n.ins[1], thread), n_rows, e.k, e.experts,
                      thread.extra + 2 * kProductFloats * sizeof(float) + gathered_bytes(n));
    if (k / chunks >= routing->tiles()) return;
    const std::size_t begin = k % chunks * kGroupChunk;
    expert_tile(run, stage, n, routing->tile(k / chunks), begin, std::min(begin + kGroupChunk, groups),
                thread, now);
  });
}

constexpr CpuWork experts_work{
    .primitive = {"experts"}, .prepare = prepare_experts, .share = share_experts, .scratch = scratch_bytes};

/// The sum of a row's experts, in the order in which the router chose them.
void combine_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                  const ThreadContext& thread) {
  const std::size_t k = run.width(n.ins[1]), width = run.width(n.outs[0]);
  const float* y[kMaxExperts];
  for (std::size_t i = from; i < to; ++i) {
    for (std::size_t j = 0; j < k; ++j) y[j] = run.row(n.ins[0], i, thread) + j * width;
    combine_tables[run.isa()].combine(run.row(n.ins[1], i, thread), y, k, 0, width,
                                      run.value(n.outs[0], thread) + i * width);
  }
}

constexpr CpuWork combine_work{.primitive = {"combine"}, .rows = combine_rows};

/// Fails unless the weight holds the matrices of `experts` experts; returns the rows of one expert.
std::size_t expert_rows(Checker& c, int64_t weight, std::size_t experts, std::size_t cols) {
  const WeightShape& w = c.weight(weight);
  const std::string shape = std::to_string(w.rows) + " x " + std::to_string(w.cols);
  if (w.cols != cols)
    c.fail("the weight is " + shape + " but the value it meets has width " + std::to_string(cols));
  if (w.rows % experts)
    c.fail("the weight is " + shape + ", whose rows do not divide among " + std::to_string(experts) +
           " experts");
  if (w.rows / experts % 16)
    c.fail("an expert's matrix has " + std::to_string(w.rows / experts) +
           " rows; it must be a multiple of 16");
  return w.rows / experts;
}

/// The number of experts among which a router chose the ids of value v; 0 where v is not the ids of a router.
/// A run does not check ids, so a plan must not compute them in any other way.
std::size_t chosen_among(Checker& c, int v) {
  const std::vector<Node>& nodes = c.program().nodes;
  for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) {
    if (std::find(n->outs.begin(), n->outs.end(), v) == n->outs.end()) continue;
    if (n->primitive == &route_work.primitive) return v == n->outs[0] ? n->as<Route>().experts : 0;
    if (n->primitive->name != std::string_view("select")) return 0;
    v = n->ins[0];
  }
  return 0;
}

void check_experts(Checker& c, const Record& r) {
  const int x = in(r, 0), ids = in(r, 1), weights = in(r, 2);
  const std::size_t experts = c.whole(r, "experts", 1), k = c.width(ids);
  const bool gated = r.weights.size() == 3;
  if (experts > kMaxExperts || k > experts)
    c.fail(std::to_string(k) + " of " + std::to_string(experts) + " experts are chosen; at most " +
           std::to_string(kMaxExperts) + " can be, and no more chosen than there are");
  if (c.whole_or(r, "weigh_input", 0, 0)) c.fail("weigh_input must be 0: inputs are not weighed");
  if (chosen_among(c, ids) != experts)
    c.fail("value " + std::to_string(ids) + " is not the ids of a route among " + std::to_string(experts) +
           " experts");
  c.expect_width(weights, k, "the experts of a row are");
  c.expect_same_rows(x, ids);
  c.expect_same_rows(x, weights);
  const std::size_t hidden = expert_rows(c, r.weights[0], experts, c.width(x)), width = c.width(out(r));
  if (gated && expert_rows(c, r.weights[1], experts, c.width(x)) != hidden)
    c.fail("the gate and what it lets through have different widths");
  if (expert_rows(c, r.weights.back(), experts, hidden) != width)
    c.fail("the last weight makes " + std::to_string(c.weight(r.weights.back()).rows / experts) +
           " numbers but the output has width " + std::to_string(width));
  const bool selected = c.selected(x);
  const int h = c.temporary(k * hidden, selected), y = c.temporary(k * width, selected);
  std::vector<int> first{static_cast<int>(r.weights[0])};
  if (gated) first.push_back(static_cast<int>(r.weights[1]));
  const UnaryKind act = unary_kind(c, r, "act");
  c.program().multiplications += k * hidden * (c.width(x) * first.size() + width);
  c.node(experts_work.primitive, {x, ids}, {h}, selected, first,
         Experts{experts, k, hidden, 1, gated, true, act});
  c.node(experts_work.primitive, {h, ids}, {y}, selected, {static_cast<int>(r.weights.back())},
         Experts{experts, k, width, k, false, false, act});
  c.node(combine_work.primitive, {y, weights}, {out(r)}, selected);
}

const Operations entered{
    {"route",
     2,
     1,
     {0, 1},
     {{"kind", AttrType::text},
      {"k", AttrType::integer},
      {"groups", AttrType::integer, true},
      {"groups_used", AttrType::integer, true},
      {"norm", AttrType::integer},
      {"scale", AttrType::number}},
     check_route},
    {"experts",
     1,
     3,
     {2, 3},
     {{"act", AttrType::text}, {"experts", AttrType::integer}, {"weigh_input", AttrType::integer, true}},
     check_experts},
};

}  // namespace
}  // namespace llamay
