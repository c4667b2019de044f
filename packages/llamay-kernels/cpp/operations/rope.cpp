// Rotations by position.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/run.hpp"
#include "operations/parts.hpp"

namespace llamay {
namespace {

struct Rotation {
  Rope rope;
  std::size_t heads, head_dim, offset;
};
struct PreparedRotation {
  std::size_t rope, heads, head_dim, offset;
};

void prepare(Preparation& p, const Node& n, Prepared& out) {
  const Rotation& r = n.as<Rotation>();
  out.data = std::make_shared<const PreparedRotation>(
      PreparedRotation{p.rope(r.rope), r.heads, r.head_dim, r.offset});
}

void rotate_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                 const ThreadContext& thread) {
  const PreparedRotation& r = n.as<PreparedRotation>();
  const Rope& rope = run.rope(r.rope);
  const float* tables = run.ropes(r.rope, thread);
  const auto rotate = rope.style == RopeStyle::half ? run.ops().rope_half : run.ops().rope_pairs;
  const std::size_t width = run.width(n.outs[0]), turned = r.head_dim - r.offset;
  const bool selected = run.selected(n.outs[0]);
  const float* x = run.row(n.ins[0], from, thread);
  float* out = run.value(n.outs[0], thread) + from * width;
  for (std::size_t i = from; i < to; ++i, x += width, out += width) {
    const std::size_t row = selected ? static_cast<std::size_t>(run.step().logits[i]) : i;
    const float* table = tables + row * rope.floats();
    if (!r.offset) {
      rotate(x, table, r.heads, r.head_dim, rope.freqs.size(), out);
      continue;
    }
    for (std::size_t h = 0; h < r.heads; ++h) {
      const std::size_t head = h * r.head_dim;
      std::memcpy(out + head, x + head, r.offset * sizeof(float));
      rotate(x + head + r.offset, table, 1, turned, rope.freqs.size(), out + head + r.offset);
    }
  }
}

constexpr CpuWork work{.primitive = {"rope"}, .prepare = prepare, .rows = rotate_rows};

std::vector<uint8_t> axes_of(Checker& c, const Record& r, std::size_t pairs) {
  std::vector<uint8_t> axes;
  if (!c.has(r, "axes")) return axes;
  const std::vector<double>& numbers = c.numbers(r, "axes");
  if (numbers.size() != pairs)
    c.fail(std::to_string(numbers.size()) + " axes for " + std::to_string(pairs) + " frequencies");
  for (const double axis : numbers) {
    if (!(axis >= 0 && axis < 8) || axis != std::floor(axis))
      c.fail("an axis must be a whole number from 0 to 7");
    axes.push_back(static_cast<uint8_t>(axis));
    c.program().axes = std::max<std::size_t>(c.program().axes, axes.back() + 1u);
  }
  return axes;
}

void rope_node(Checker& c, const Record& r, int x, int out) {
  static constexpr const char* styles[] = {"half", "pairs"};
  const RopeStyle style = c.one_of(r, "style", styles) == 0 ? RopeStyle::half : RopeStyle::pairs;
  const std::size_t head_dim = c.whole(r, "head_dim", 1), offset = c.whole_or(r, "offset", 0, 0),
                    width = c.width(x);
  const std::vector<double>& freqs = c.numbers(r, "freqs");
  if (width % head_dim)
    c.fail("width " + std::to_string(width) + " is not a multiple of head_dim " + std::to_string(head_dim));
  if (freqs.empty() || offset + 2 * freqs.size() > head_dim)
    c.fail(std::to_string(freqs.size()) + " frequencies do not fit a head of " + std::to_string(head_dim) +
           " dimensions" + (offset ? " from the " + std::to_string(offset) + "th on" : ""));
  for (const double f : freqs) {
    if (!(std::abs(f) <= 65536.0)) c.fail("a frequency must lie in -65536..65536");
    c.program().max_frequency = std::max(c.program().max_frequency, std::abs(f));
  }
  c.expect_width(out, width, "its input has");
  Rope rope{style, freqs, c.number(r, "factor"), axes_of(c, r, freqs.size())};
  c.node(work.primitive, {x}, {out}, c.selected(x), {},
         Rotation{std::move(rope), width / head_dim, head_dim, offset});
}

void check_rope(Checker& c, const Record& r) { rope_node(c, r, in(r, 0), out(r)); }

void check_rope_norm(Checker& c, const Record& r) {
  const int normed = c.temporary(c.width(in(r, 0)), c.selected(in(r, 0)));
  rms_norm_node(c, r, in(r, 0), normed);
  rope_node(c, r, normed, out(r));
}

const std::vector<AttrSpec> attrs{{"head_dim", AttrType::integer},     {"style", AttrType::text},
                                  {"freqs", AttrType::numbers},        {"factor", AttrType::number},
                                  {"offset", AttrType::integer, true}, {"axes", AttrType::numbers, true}};

std::vector<AttrSpec> with_norm() {
  std::vector<AttrSpec> all{{"eps", AttrType::number}, {"groups", AttrType::integer, true}};
  all.insert(all.end(), attrs.begin(), attrs.end());
  return all;
}

const Operations entered{
    {"rope", 1, 1, 0, attrs, check_rope},
    {"rope_norm", 1, 1, {0, 1}, with_norm(), check_rope_norm},
};

}  // namespace
}  // namespace llamay
