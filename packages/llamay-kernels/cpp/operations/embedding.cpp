// The first values of a row: a table's row by token, position or type, or a vector that was handed in.
#include <algorithm>
#include <cstring>

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/run.hpp"
#include "plan/checker.hpp"

namespace llamay {
namespace {

enum class By : uint8_t { token, position, type };

struct Lookup {
  By by;
  const PackedMatrix* table;
};

void prepare_lookup(Preparation& p, const Node& n, Prepared& out) {
  out.data = std::make_shared<const Lookup>(Lookup{n.as<By>(), &p.matrix(n.weights[0])});
}

void look_up(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
             const ThreadContext& thread) {
  const Lookup& l = n.as<Lookup>();
  const Step& step = run.step();
  float* out = run.value(n.outs[0], thread) + from * l.table->cols;
  if (l.by == By::token || (l.by == By::position && step.axes == 1))
    return run.matmul().dequantize_rows(*l.table, (l.by == By::token ? step.tokens : step.positions) + from,
                                        to - from, out);
  for (std::size_t i = from; i < to; ++i, out += l.table->cols) {
    const int32_t number = l.by == By::position ? step.positions[i * step.axes]
                           : step.types         ? step.types[i]
                                                : 0;
    run.matmul().dequantize_rows(*l.table, &number, 1, out);
  }
}

constexpr CpuWork lookup_work{.primitive = {"embed"}, .prepare = prepare_lookup, .rows = look_up};

template <By by>
void check_lookup(Checker& c, const Record& r) {
  const WeightShape& table = c.weight(r.weights[0]);
  c.expect_width(out(r), table.cols, "the table's columns are");
  Program& p = c.program();
  std::size_t& smallest = by == By::token ? p.vocabulary : by == By::position ? p.positions : p.types;
  smallest = smallest ? std::min(smallest, table.rows) : table.rows;
  c.node(lookup_work.primitive, {}, {out(r)}, false, {static_cast<int>(r.weights[0])}, by);
}

void give(const Run& run, const Prepared& n, std::size_t from, std::size_t to, const ThreadContext& thread) {
  const std::size_t width = run.width(n.outs[0]);
  const float* x = run.row(n.ins[0], from, thread);
  float* out = run.value(n.outs[0], thread) + from * width;
  const float* const* vectors = run.step().vectors;
  if (!vectors) {
    std::memcpy(out, x, (to - from) * width * sizeof(float));
    return;
  }
  for (std::size_t i = from; i < to; ++i, x += width, out += width)
    std::memcpy(out, vectors[i] ? vectors[i] : x, width * sizeof(float));
}

constexpr CpuWork given_work{.primitive = {"given"}, .rows = give};

void check_given(Checker& c, const Record& r) {
  c.expect_width(out(r), c.width(in(r, 0)), "its input has");
  c.expect_all_rows(in(r, 0));
  if (c.program().vector_width) c.fail("vectors are taken by a record before it already");
  c.program().vector_width = c.width(in(r, 0));
  c.node(given_work.primitive, {in(r, 0)}, {out(r)}, false);
}

const Operations entered{
    {"embed", 1, 0, 1, {}, check_lookup<By::token>},
    {"embed_positions", 1, 0, 1, {}, check_lookup<By::position>},
    {"embed_types", 1, 0, 1, {}, check_lookup<By::type>},
    {"given", 1, 1, 0, {}, check_given},
};

}  // namespace
}  // namespace llamay
