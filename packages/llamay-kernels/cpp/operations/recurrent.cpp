// Recurrent layers: a short convolution and a linear recurrence, each with a state that a context keeps. A
// step reads one state and writes others (kv_view.h), so that no state is ever changed.
#include <algorithm>
#include <cstring>

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/sharing.hpp"
#include "ops/recurrent/conv.hpp"
#include "ops/recurrent/scan.hpp"
#include "plan/checker.hpp"

namespace llamay {
namespace {

struct Convolution {
  uint32_t layer;
  Conv conv;
  std::size_t state;  // index of the state in the plan
};

void prepare_conv(Preparation& p, const Node& n, Prepared& out) {
  Convolution c = n.as<Convolution>();
  const PackedMatrix& weight = p.matrix(n.weights[0]);
  p.reads(weight);
  std::vector<float> plain(weight.rows * weight.cols);
  std::vector<int32_t> rows(weight.rows);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(i);
  matmul_tables[Isa::portable].dequantize_rows(weight, rows.data(), rows.size(), plain.data());
  float* packed = p.floats(plain.size());
  pack_conv(plain.data(), c.conv.channels, c.conv.taps, packed);
  c.conv.weight = packed;
  if (n.weights.size() > 1) c.conv.bias = p.vector(n.weights[1]);
  if (c.conv.taps > 1) c.state = p.lease_needs().add_state(c.layer, (c.conv.taps - 1) * c.conv.channels, 0);
  out.data = std::make_shared<const Convolution>(c);
}

// Channels of a piece: whole cache lines of a row, so that no two threads write to the same line.
constexpr std::size_t kChannels = 512;

void share_conv(Run& run, const Stage&, const Prepared& n, const ThreadContext& thread, Sharing& sharing) {
  const Convolution& c = n.as<Convolution>();
  const std::size_t width = c.conv.channels, chunks = ceil_divide(width, kChannels);
  const float* x = run.value(n.ins[0], thread);
  float* out = run.value(n.outs[0], thread);
  sharing.pieces(run.texts().size() * chunks, [&](std::size_t k) {
    const std::size_t text = k / chunks, from = k % chunks * kChannels,
                      to = std::min(from + kChannels, width);
    const AttentionWork::Lease& lease = run.texts()[text];
    ConvRows rows{x + lease.row * width, width, nullptr, out + lease.row * width, width};
    if (c.conv.taps == 1) return conv_tables[run.isa()].rows(c.conv, rows, lease.count, from, to);
    const StatePages& states = run.states(text, c.state);
    if (states.read >= 0) rows.carried = states.carried(states.read);
    conv_tables[run.isa()].rows(c.conv, rows, lease.count, from, to);
    for (uint32_t i = states.first; i < states.end; ++i)
      conv_state(c.conv, rows, states.at[i] - lease.start, from, to, states.carried_to(i));
  });
}

constexpr CpuWork conv_work{
    .primitive = {"conv"}, .prepare = prepare_conv, .share = share_conv, .keeps = true};

void check_conv(Checker& c, const Record& r) {
  const WeightShape& w = c.weight(r.weights[0]);
  const std::size_t width = c.width(in(r, 0));
  if (w.rows != width)
    c.fail("the weight is " + std::to_string(w.rows) + " x " + std::to_string(w.cols) + " for " +
           std::to_string(width) + " channels");
  c.expect_width(out(r), width, "its input has");
  c.expect_all_rows(in(r, 0));
  std::vector<int> weights{static_cast<int>(r.weights[0])};
  if (r.weights.size() > 1) {
    c.vector(r.weights[1], width, "the bias");
    weights.push_back(static_cast<int>(r.weights[1]));
  }
  const std::size_t carried = (w.cols - 1) * width;
  if (carried > 0x7fffffff) c.fail("it carries over more than 2^31 numbers");
  const uint32_t layer = c.layer(r);
  if (carried) c.keep({Memory::Kind::state, layer, 1, static_cast<uint32_t>(carried), 0});
  c.node(conv_work.primitive, {in(r, 0)}, {out(r)}, false, std::move(weights),
         Convolution{layer, {w.cols, width, nullptr, nullptr}, 0});
}

struct Recurrence {
  uint32_t layer;
  std::size_t heads, groups, k_dim, v_dim;
  bool tiled;        // whether head h reads group h % groups, not h / (heads / groups)
  bool w_by_column;  // whether there is a decay for each column of the state, not one for each head
  std::size_t state;

  std::size_t group(std::size_t head) const { return tiled ? head % groups : head / (heads / groups); }
};

void prepare_scan(Preparation& p, const Node& n, Prepared& out) {
  Recurrence s = n.as<Recurrence>();
  s.state = p.lease_needs().add_state(s.layer, 0, s.heads * s.k_dim * s.v_dim);
  out.data = std::make_shared<const Recurrence>(s);
}

// Rows of a head's state in a piece: few enough to stay in the cache while the rows of a text read and write
// them again and again.
constexpr std::size_t kStateRows = 64;

void share_scan(Run& run, const Stage&, const Prepared& n, const ThreadContext& thread, Sharing& sharing) {
  const Recurrence& s = n.as<Recurrence>();
  const std::size_t chunks = ceil_divide(s.v_dim, kStateRows);
  const ScanTable& table = scan_tables[run.isa()];
  sharing.pieces(run.texts().size() * s.heads * chunks, [&](std::size_t k) {
    const std::size_t text = k / (s.heads * chunks), head = k / chunks % s.heads,
                      from = k % chunks * kStateRows, to = std::min(from + kStateRows, s.v_dim);
    const AttentionWork::Lease& lease = run.texts()[text];
    const StatePages& states = run.states(text, s.state);
    const auto rows = [&](std::size_t in, std::size_t at, std::size_t row) {
      return ScanRows{run.row(n.ins[in], lease.row + row, thread) + at, run.width(n.ins[in])};
    };
    const std::size_t of_state = head * s.k_dim * s.v_dim, width = run.width(n.outs[0]);
    float* out = run.value(n.outs[0], thread) + lease.row * width + head * s.v_dim;
    const float* before = states.read >= 0 ? states.state(states.read) + of_state : nullptr;
    // Where the state after the last row is not wanted, it is computed all the same and discarded.
    auto* forgotten = reinterpret_cast<float*>(thread.extra);
    uint32_t row = 0;
    for (uint32_t i = states.first; row < lease.count; ++i) {
      const uint32_t end = i < states.end ? states.at[i] - lease.start : lease.count;
      float* after = i < states.end ? states.state_to(i) + of_state : forgotten;
      Scan scan{.k_dim = s.k_dim,
                .v_dim = s.v_dim,
                .r = rows(0, s.group(head) * s.k_dim, row),
                .k = rows(2, s.group(head) * s.k_dim, row),
                .v = rows(3, head * s.v_dim, row),
                .w = rows(1, head * (s.w_by_column ? s.k_dim : 1), row),
                .w_by_column = s.w_by_column,
                .a = {nullptr, 0},
                .b = {nullptr, 0},
                .state_in = before,
                .state_out = after,
                .out = out + row * width,
                .out_stride = width};
      if (n.ins.size() > 4) {
        scan.a = rows(4, head * s.k_dim, row);
        scan.b = rows(5, head * s.k_dim, row);
      }
      table.rows(scan, end - row, from, to);
      before = after;
      row = end;
    }
  });
}

std::size_t scan_scratch(const Prepared& n, std::size_t) {
  return n.as<Recurrence>().k_dim * n.as<Recurrence>().v_dim * sizeof(float);
}

uint64_t scan_cost(const Run& run, const Prepared& n) {
  const Recurrence& s = n.as<Recurrence>();
  return uint64_t{run.rows(false)} * s.heads * s.k_dim * s.v_dim * (n.ins.size() > 4 ? 5 : 3);
}

constexpr CpuWork scan_work{.primitive = {"scan"},
                            .prepare = prepare_scan,
                            .share = share_scan,
                            .scratch = scan_scratch,
                            .cost = scan_cost,
                            .keeps = true};

void check_scan(Checker& c, const Record& r) {
  static constexpr const char* maps[] = {"grouped", "tiled"};
  Recurrence s{c.layer(r),
               c.whole(r, "heads", 1),
               c.whole(r, "groups", 1),
               c.whole(r, "k_dim", 1),
               c.whole(r, "v_dim", 1),
               c.one_of(r, "map", maps) == 1,
               false,
               0};
  if (s.heads % s.groups)
    c.fail(std::to_string(s.heads) + " heads do not divide among " + std::to_string(s.groups) + " groups");
  if (r.args.size() == 5) c.fail("takes r, w, k and v, or these with a and b");
  const std::size_t keys = s.groups * s.k_dim, columns = s.heads * s.k_dim, values = s.heads * s.v_dim;
  c.expect_width(in(r, 0), keys, "groups * k_dim is");
  s.w_by_column = c.width(in(r, 1)) == columns && s.k_dim > 1;
  if (!s.w_by_column) c.expect_width(in(r, 1), s.heads, "one decay a head, or one a column of its state, is");
  c.expect_width(in(r, 2), keys, "groups * k_dim is");
  c.expect_width(in(r, 3), values, "heads * v_dim is");
  std::vector<int> ins;
  for (std::size_t i = 0; i < r.args.size(); ++i) {
    if (i > 3) c.expect_width(in(r, i), columns, "heads * k_dim is");
    c.expect_all_rows(in(r, i));
    ins.push_back(in(r, i));
  }
  c.expect_width(out(r), values, "heads * v_dim is");
  const std::size_t floats = columns * s.v_dim;
  if (columns > 0x7fffffff || floats > 0x7fffffff) c.fail("its state has more than 2^31 numbers");
  c.keep({Memory::Kind::state, s.layer, 1, 0, static_cast<uint32_t>(floats)});
  c.node(scan_work.primitive, std::move(ins), {out(r)}, false, {}, s);
}

const AttrSpec layer{"layer", AttrType::integer};

const Operations entered{
    {"conv", 1, 1, {1, 2}, {layer}, check_conv},
    {"scan",
     1,
     {4, 6},
     0,
     {layer,
      {"heads", AttrType::integer},
      {"groups", AttrType::integer},
      {"k_dim", AttrType::integer},
      {"v_dim", AttrType::integer},
      {"map", AttrType::text}},
     check_scan},
};

}  // namespace
}  // namespace llamay
