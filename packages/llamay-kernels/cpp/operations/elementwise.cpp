// Operations on each number by itself.
#include "cpu/prepare/preparation.hpp"
#include "cpu/run/run.hpp"
#include "operations/parts.hpp"
#include "ops/rows/unary.hpp"
#include "plan/checker.hpp"

namespace llamay {
namespace {

struct Map {
  Elementwise op;
  float by;
};

void map_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
              const ThreadContext& thread) {
  const Map& m = n.as<Map>();
  run.ops().elementwise(
      m.op, run.row(n.ins[0], from, thread), n.ins.size() > 1 ? run.row(n.ins[1], from, thread) : nullptr,
      m.by, run.value(n.outs[0], thread) + from * run.width(n.outs[0]), (to - from) * run.width(n.outs[0]));
}

void map_columns(const Run& run, const Prepared& n, std::size_t row, std::size_t from, std::size_t first,
                 std::size_t count, const ThreadContext& thread) {
  const Map& m = n.as<Map>();
  run.ops().elementwise(m.op, run.row(n.ins[0], from, thread) + first,
                        n.ins.size() > 1 ? run.row(n.ins[1], from, thread) + first : nullptr, m.by,
                        run.value(n.outs[0], thread) + row * run.width(n.outs[0]) + first, count);
}

constexpr CpuWork map_work{.primitive = {"elementwise"}, .rows = map_rows, .columns = map_columns};

void add_map(Checker& c, Elementwise op, std::vector<int> ins, float by, int out) {
  c.expect_width(out, c.width(ins[0]), "its input has");
  if (ins.size() > 1) {
    c.expect_width(ins[1], c.width(ins[0]), "the other input has");
    c.expect_same_rows(ins[0], ins[1]);
  }
  const bool selected = c.selected(ins[0]);
  c.node(map_work.primitive, std::move(ins), {out}, selected, {}, Map{op, by});
}

template <Elementwise op>
void check_pair(Checker& c, const Record& r) {
  add_map(c, op, {in(r, 0), in(r, 1)}, 0, out(r));
}

void check_scale(Checker& c, const Record& r) {
  add_map(c, Elementwise::scale, {in(r, 0)}, c.number(r, "by"), out(r));
}

void check_softcap(Checker& c, const Record& r) {
  const float cap = c.number(r, "cap");
  if (!(cap > 0)) c.fail("cap must be positive");
  add_map(c, Elementwise::softcap, {in(r, 0)}, cap, out(r));
}

void unary_rows(const Run& run, const Prepared& n, std::size_t from, std::size_t to,
                const ThreadContext& thread) {
  unary_tables[run.isa()].apply(n.as<UnaryKind>(), run.row(n.ins[0], from, thread),
                                run.value(n.outs[0], thread) + from * run.width(n.outs[0]),
                                (to - from) * run.width(n.outs[0]));
}

void unary_columns(const Run& run, const Prepared& n, std::size_t row, std::size_t from, std::size_t first,
                   std::size_t count, const ThreadContext& thread) {
  unary_tables[run.isa()].apply(n.as<UnaryKind>(), run.row(n.ins[0], from, thread) + first,
                                run.value(n.outs[0], thread) + row * run.width(n.outs[0]) + first, count);
}

constexpr CpuWork unary_work{.primitive = {"unary"}, .rows = unary_rows, .columns = unary_columns};

void check_unary(Checker& c, const Record& r) {
  c.expect_width(out(r), c.width(in(r, 0)), "its input has");
  const UnaryKind kind = unary_kind(c, r, "kind");
  c.node(unary_work.primitive, {in(r, 0)}, {out(r)}, c.selected(in(r, 0)), {}, kind);
}

const Operations entered{
    {"add", 1, 2, 0, {}, check_pair<Elementwise::add>},
    {"mul", 1, 2, 0, {}, check_pair<Elementwise::mul>},
    {"scale", 1, 1, 0, {{"by", AttrType::number}}, check_scale},
    {"softcap", 1, 1, 0, {{"cap", AttrType::number}}, check_softcap},
    {"unary", 1, 1, 0, {{"kind", AttrType::text}}, check_unary},
};

}  // namespace

void add_node(Checker& c, int a, int b, int out) { add_map(c, Elementwise::add, {a, b}, 0, out); }

UnaryKind unary_kind(const Checker& c, const Record& r, const char* name) {
  return static_cast<UnaryKind>(c.one_of(r, name, kUnaryNames));
}

Prepared copy_node(int from, int to, int record) {
  return {.work = &map_work,
          .record = record,
          .ins = {from},
          .outs = {to},
          .data = std::make_shared<const Map>(Map{Elementwise::copy, 0})};
}

}  // namespace llamay
