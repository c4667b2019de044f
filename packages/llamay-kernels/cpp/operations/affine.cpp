// Values times vectors, by channel or by head.
#include "ops/rows/affine.hpp"

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/run.hpp"
#include "plan/checker.hpp"

namespace llamay {
namespace {

enum class Has : uint8_t { w, b, both };
constexpr const char* kHas[] = {"w", "b", "wb"};

struct Affine {
  PartValues w, b;
};

void prepare(Preparation& p, const Node& n, Prepared& out) {
  const auto values = [&](std::size_t i) {
    return PartValues{p.vector(n.weights[i]), p.matrix(n.weights[i]).cols};
  };
  Affine a{};
  const Has has = n.as<Has>();
  if (has != Has::b) a.w = values(0);
  if (has != Has::w) a.b = values(has == Has::both ? 1 : 0);
  out.data = std::make_shared<const Affine>(a);
}

void affine_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                 const ThreadContext& thread) {
  const Affine& a = n.as<Affine>();
  const std::size_t width = run.width(n.outs[0]);
  const float* x = run.row(n.ins[0], from, thread);
  float* out = run.value(n.outs[0], thread) + from * width;
  for (std::size_t i = from; i < to; ++i, x += width, out += width)
    affine_tables[run.isa()].affine(x, a.w, a.b, width, out);
}

constexpr CpuWork affine_work{.primitive = {"affine"}, .prepare = prepare, .rows = affine_rows};

void check_parts(const Checker& c, std::size_t width, std::size_t parts, const char* what) {
  if (width % parts)
    c.fail("width " + std::to_string(width) + " does not divide into the " + std::to_string(parts) +
           " parts of " + what);
}

void check_affine(Checker& c, const Record& r) {
  const auto has = static_cast<Has>(c.one_of(r, "has", kHas));
  if (r.weights.size() != (has == Has::both ? 2 : 1))
    c.fail("takes " + std::string(has == Has::both ? "2 weights" : "1 weight") + " where has is \"" +
           kHas[static_cast<int>(has)] + "\", not " + std::to_string(r.weights.size()));
  const std::size_t width = c.width(in(r, 0));
  std::vector<int> weights;
  for (const int64_t w : r.weights) {
    check_parts(c, width, c.vector(w, 0, "the vector"), "the vector");
    weights.push_back(static_cast<int>(w));
  }
  c.expect_width(out(r), width, "its input has");
  c.node(affine_work.primitive, {in(r, 0)}, {out(r)}, c.selected(in(r, 0)), std::move(weights), has);
}

void head_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
               const ThreadContext& thread) {
  const std::size_t width = run.width(n.outs[0]), heads = run.width(n.ins[1]);
  const float *x = run.row(n.ins[0], from, thread), *g = run.row(n.ins[1], from, thread);
  float* out = run.value(n.outs[0], thread) + from * width;
  for (std::size_t i = from; i < to; ++i, x += width, g += heads, out += width)
    affine_tables[run.isa()].affine(x, {g, heads}, {nullptr, 0}, width, out);
}

constexpr CpuWork head_work{.primitive = {"mul_heads"}, .rows = head_rows};

void check_heads(Checker& c, const Record& r) {
  check_parts(c, c.width(in(r, 0)), c.width(in(r, 1)), "the second input");
  c.expect_same_rows(in(r, 0), in(r, 1));
  c.expect_width(out(r), c.width(in(r, 0)), "its input has");
  c.node(head_work.primitive, {in(r, 0), in(r, 1)}, {out(r)}, c.selected(in(r, 0)));
}

const Operations entered{
    {"affine", 1, 1, {1, 2}, {{"has", AttrType::text}}, check_affine},
    {"mul_heads", 1, 2, 0, {}, check_heads},
};

}  // namespace
}  // namespace llamay
