// Normalisation of rows, and the operations that are fused with it.
#include "cpu/prepare/preparation.hpp"
#include "cpu/run/run.hpp"
#include "operations/parts.hpp"

namespace llamay {
namespace {

struct RmsNorm {
  float eps;
  std::size_t groups, width;  // groups of a row; numbers of a group
  bool by_group;              // whether each group has weights of its own
  const float* w;             // null: none
};

void prepare_rms(Preparation& p, const Node& n, Prepared& out) {
  RmsNorm norm = n.as<RmsNorm>();
  if (!n.weights.empty()) norm.w = p.vector(n.weights[0]);
  out.data = std::make_shared<const RmsNorm>(norm);
}

void rms_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
              const ThreadContext& thread) {
  const RmsNorm& norm = n.as<RmsNorm>();
  const std::size_t width = run.width(n.outs[0]);
  const float* x = run.row(n.ins[0], from, thread);
  float* out = run.value(n.outs[0], thread) + from * width;
  if (!norm.by_group)
    return run.ops().rms_norm(x, norm.w, (to - from) * norm.groups, norm.width, norm.eps, out);
  for (std::size_t i = from; i < to; ++i)
    for (std::size_t g = 0; g < norm.groups; ++g, x += norm.width, out += norm.width)
      run.ops().rms_norm(x, norm.w + g * norm.width, 1, norm.width, norm.eps, out);
}

constexpr CpuWork rms_work{.primitive = {"rms_norm"}, .prepare = prepare_rms, .rows = rms_rows};

float eps_of(const Checker& c, const Record& r) {
  const float eps = c.number(r, "eps");
  if (eps < 0) c.fail("eps must not be negative");
  return eps;
}

void check_rms(Checker& c, const Record& r) { rms_norm_node(c, r, in(r, 0), out(r)); }

void check_add_rms(Checker& c, const Record& r) {
  add_node(c, in(r, 0), in(r, 1), out(r));
  rms_norm_node(c, r, out(r), out(r, 1));
}

void check_rms_add(Checker& c, const Record& r) {
  const int normed = c.temporary(c.width(in(r, 1)), c.selected(in(r, 1)));
  rms_norm_node(c, r, in(r, 1), normed);
  add_node(c, in(r, 0), normed, out(r));
}

struct LayerNorm {
  float eps;
  const float *w, *bias;
};

void prepare_layer(Preparation& p, const Node& n, Prepared& out) {
  LayerNorm norm = n.as<LayerNorm>();
  if (!n.weights.empty()) norm.w = p.vector(n.weights[0]);
  if (n.weights.size() > 1) norm.bias = p.vector(n.weights[1]);
  out.data = std::make_shared<const LayerNorm>(norm);
}

void layer_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                const ThreadContext& thread) {
  const LayerNorm& norm = n.as<LayerNorm>();
  const std::size_t width = run.width(n.outs[0]);
  run.ops().layer_norm(run.row(n.ins[0], from, thread), norm.w, norm.bias, to - from, width, norm.eps,
                       run.value(n.outs[0], thread) + from * width);
}

constexpr CpuWork layer_work{.primitive = {"layer_norm"}, .prepare = prepare_layer, .rows = layer_rows};

void check_layer(Checker& c, const Record& r) {
  const std::size_t width = c.width(in(r, 0));
  c.expect_width(out(r), width, "its input has");
  const float eps = eps_of(c, r);
  std::vector<int> weights;
  for (std::size_t i = 0; i < r.weights.size(); ++i) {
    c.vector(r.weights[i], width, i ? "the norm's bias" : "the norm's weight");
    weights.push_back(static_cast<int>(r.weights[i]));
  }
  c.node(layer_work.primitive, {in(r, 0)}, {out(r)}, c.selected(in(r, 0)), weights,
         LayerNorm{eps, nullptr, nullptr});
}

const AttrSpec eps{"eps", AttrType::number}, groups{"groups", AttrType::integer, true};

const Operations entered{
    {"rms_norm", 1, 1, {0, 1}, {eps, groups}, check_rms},
    {"layer_norm", 1, 1, {0, 2}, {eps}, check_layer},
    {"add_rms_norm", 2, 2, {0, 1}, {eps, groups}, check_add_rms},
    {"rms_norm_add", 1, 2, {0, 1}, {eps, groups}, check_rms_add},
};

}  // namespace

void rms_norm_node(Checker& c, const Record& r, int x, int out) {
  const std::size_t width = c.width(x);
  c.expect_width(out, width, "its input has");
  const std::size_t length = r.weights.empty() ? 0 : c.vector(r.weights[0], 0, "the norm's weight");
  if (length && width % length)
    c.fail("width " + std::to_string(width) + " is not a multiple of the weight's " + std::to_string(length));
  const std::size_t groups = c.whole_or(r, "groups", 1, length ? static_cast<uint32_t>(width / length) : 1);
  if (width % groups)
    c.fail("width " + std::to_string(width) + " does not divide into " + std::to_string(groups) + " groups");
  if (length && length != width && length != width / groups)
    c.fail("the norm's weight has " + std::to_string(length) + " numbers for " + std::to_string(groups) +
           " groups of " + std::to_string(width / groups));
  const RmsNorm norm{eps_of(c, r), groups, width / groups, groups > 1 && length == width, nullptr};
  std::vector<int> weights;
  if (length) weights.push_back(static_cast<int>(r.weights[0]));
  c.node(rms_work.primitive, {x}, {out}, c.selected(x), weights, norm);
}

}  // namespace llamay
