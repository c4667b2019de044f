// Operations that move rows or columns without computing, and pooling.
#include <algorithm>
#include <cstring>

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/run.hpp"
#include "plan/checker.hpp"

namespace llamay {
namespace {

void select_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                 const ThreadContext& thread) {
  const std::size_t width = run.width(n.outs[0]);
  float* out = run.value(n.outs[0], thread) + from * width;
  for (std::size_t i = from; i < to; ++i, out += width)
    std::memcpy(out, run.row(n.ins[0], static_cast<std::size_t>(run.step().logits[i]), thread),
                width * sizeof(float));
}

constexpr CpuWork select_work{.primitive = {"select"}, .rows = select_rows};

void check_select(Checker& c, const Record& r) {
  if (c.selected(in(r, 0))) c.fail("its input holds selected rows only already");
  c.expect_width(out(r), c.width(in(r, 0)), "its input has");
  c.node(select_work.primitive, {in(r, 0)}, {out(r)}, true);
}

enum class Pool : uint8_t { mean, cls, last };
constexpr const char* kPools[] = {"mean", "cls", "last"};

/// Pools the text of each wanted row. The mean adds rows in their order and multiplies by the reciprocal of
/// their number.
void pool_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
               const ThreadContext& thread) {
  const std::size_t width = run.width(n.outs[0]);
  float* out = run.value(n.outs[0], thread) + from * width;
  for (std::size_t i = from; i < to; ++i, out += width) {
    const AttentionWork::Lease& text = run.text_of(static_cast<std::size_t>(run.step().logits[i]));
    const Pool kind = n.as<Pool>();
    const float* x = run.row(n.ins[0], text.row + (kind == Pool::last ? text.count - 1 : 0), thread);
    std::memcpy(out, x, width * sizeof(float));
    if (kind != Pool::mean) continue;
    for (uint32_t t = 1; t < text.count; ++t)
      run.ops().elementwise(Elementwise::add, out, x + t * width, 0, out, width);
    run.ops().elementwise(Elementwise::scale, out, nullptr, 1.0f / static_cast<float>(text.count), out,
                          width);
  }
}

constexpr CpuWork pool_work{.primitive = {"pool"}, .rows = pool_rows};

void check_pool(Checker& c, const Record& r) {
  if (c.selected(in(r, 0))) c.fail("its input holds selected rows only already");
  c.expect_width(out(r), c.width(in(r, 0)), "its input has");
  c.program().whole_texts = true;
  c.node(pool_work.primitive, {in(r, 0)}, {out(r)}, true, {}, static_cast<Pool>(c.one_of(r, "kind", kPools)));
}

/// Columns `start` to `start + width` of each of `heads` equal parts of a row.
struct Columns {
  std::size_t heads, start, width;
};

void column_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                 const ThreadContext& thread) {
  const Columns& c = n.as<Columns>();
  const std::size_t head = run.width(n.ins[0]) / c.heads;
  const float* x = run.row(n.ins[0], from, thread) + c.start;
  float* out = run.value(n.outs[0], thread) + from * c.heads * c.width;
  for (std::size_t i = 0; i < (to - from) * c.heads; ++i, x += head, out += c.width)
    std::memcpy(out, x, c.width * sizeof(float));
}

constexpr CpuWork column_work{.primitive = {"columns"}, .rows = column_rows};

/// Fails unless the value's width divides into `heads` heads; returns the width of one head.
std::size_t head_of(Checker& c, int v, std::size_t heads) {
  if (c.width(v) % heads)
    c.fail("value " + std::to_string(v) + " has width " + std::to_string(c.width(v)) +
           ", which does not divide into " + std::to_string(heads) + " heads");
  return c.width(v) / heads;
}

void check_columns(Checker& c, const Record& r) {
  const Columns columns{c.whole(r, "heads", 1), c.whole(r, "start", 0), c.whole(r, "width", 1)};
  const std::size_t head = head_of(c, in(r, 0), columns.heads);
  if (columns.start + columns.width > head)
    c.fail("columns " + std::to_string(columns.start) + " to " +
           std::to_string(columns.start + columns.width) + " are beyond a head of " + std::to_string(head));
  c.expect_width(out(r), columns.heads * columns.width, "heads * width is");
  c.node(column_work.primitive, {in(r, 0)}, {out(r)}, c.selected(in(r, 0)), {}, columns);
}

void concat_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                 const ThreadContext& thread) {
  const std::size_t heads = n.as<std::size_t>(), a_width = run.width(n.ins[0]) / heads,
                    b_width = run.width(n.ins[1]) / heads;
  const float *a = run.row(n.ins[0], from, thread), *b = run.row(n.ins[1], from, thread);
  float* out = run.value(n.outs[0], thread) + from * run.width(n.outs[0]);
  for (std::size_t i = 0; i < (to - from) * heads; ++i) {
    std::memcpy(out, a, a_width * sizeof(float));
    std::memcpy(out + a_width, b, b_width * sizeof(float));
    a += a_width;
    b += b_width;
    out += a_width + b_width;
  }
}

constexpr CpuWork concat_work{.primitive = {"concat"}, .rows = concat_rows};

void check_concat(Checker& c, const Record& r) {
  const std::size_t heads = c.whole(r, "heads", 1);
  for (std::size_t i = 0; i < 2; ++i) head_of(c, in(r, i), heads);
  c.expect_width(out(r), c.width(in(r, 0)) + c.width(in(r, 1)), "its inputs have");
  c.expect_same_rows(in(r, 0), in(r, 1));
  c.node(concat_work.primitive, {in(r, 0), in(r, 1)}, {out(r)}, c.selected(in(r, 0)), {}, heads);
}

const AttrSpec heads{"heads", AttrType::integer};

const Operations entered{
    {"select", 1, 1, 0, {}, check_select},
    {"pool", 1, 1, 0, {{"kind", AttrType::text}}, check_pool},
    {"columns", 1, 1, 0, {{"start", AttrType::integer}, {"width", AttrType::integer}, heads}, check_columns},
    {"concat", 1, 2, 0, {heads}, check_concat},
};

}  // namespace
}  // namespace llamay
