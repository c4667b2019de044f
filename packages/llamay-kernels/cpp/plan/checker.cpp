#include "plan/checker.hpp"

#include <algorithm>
#include <cmath>

namespace llamay {
namespace {

template <class T>
std::string listed(const T& names) {
  std::string out;
  for (const auto& n : names) out += (out.empty() ? "" : ", ") + std::string(n);
  return out;
}

std::string shape(const WeightShape& w) { return std::to_string(w.rows) + " x " + std::to_string(w.cols); }

}  // namespace

Checker::Checker(const std::vector<Record>& records, const std::vector<int64_t>& widths,
                 const std::vector<WeightShape>& weights)
    : records_(records), weights_(weights) {
  if (records.empty()) throw PlanError("a plan needs at least one record");
  for (std::size_t v = 0; v < widths.size(); ++v) {
    if (widths[v] < 1 || widths[v] > int64_t{1} << 31)
      throw PlanError("value " + std::to_string(v) + " has width " + std::to_string(widths[v]) +
                      "; it must be 1 to 2^31");
    program_.widths.push_back(static_cast<std::size_t>(widths[v]));
  }
  program_.selected.resize(widths.size());
  made_.resize(widths.size());
}

Program Checker::run() {
  for (at_ = 0; at_ < records_.size(); ++at_) {
    program_.ops.push_back(records_[at_].op);
    record(records_[at_]);
  }
  program_.output = static_cast<int>(records_.back().outs.back());
  if (program_.whole_texts && !program_.memory.empty())
    throw PlanError(
        "a plan whose rows read later rows of their text keeps nothing between steps, but layer " +
        std::to_string(program_.memory[0].layer) + " does");
  return std::move(program_);
}

void Checker::fail(const std::string& what) const {
  throw PlanError("record " + std::to_string(at_) + " (" + records_[at_].op + "): " + what);
}

void Checker::count(const char* what, std::size_t is, Count wanted) const {
  if (is >= wanted.least && is <= wanted.most) return;
  const std::string range = wanted.least == wanted.most ? std::to_string(wanted.least)
                            : wanted.most == Count::any
                                ? std::to_string(wanted.least) + " or more"
                                : std::to_string(wanted.least) + " to " + std::to_string(wanted.most);
  fail("takes " + range + " " + what + ", not " + std::to_string(is));
}

void Checker::record(const Record& r) {
  const Operation* operation = Operations::find(r.op);
  if (!operation) {
    std::vector<const char*> names;
    for (const Operation* o : Operations::all()) names.push_back(o->name);
    fail("unknown operation; there are " + listed(names));
  }
  count("outs", r.outs.size(), operation->outs);
  count("args", r.args.size(), operation->args);
  count("weights", r.weights.size(), operation->weights);
  attributes(r, *operation);
  for (const int64_t v : r.args)
    if (v < 0 || v >= static_cast<int64_t>(made_.size()) || !made_[static_cast<std::size_t>(v)])
      fail("reads value " + std::to_string(v) + ", which no record before it makes");
  for (const int64_t w : r.weights)
    if (w < 0 || w >= static_cast<int64_t>(weights_.size()))
      fail("names weight " + std::to_string(w) + ", but there are " + std::to_string(weights_.size()));
  for (const int64_t v : r.outs) {
    if (v < 0 || v >= static_cast<int64_t>(made_.size()))
      fail("makes value " + std::to_string(v) + ", but there are " + std::to_string(made_.size()) +
           " widths");
    if (made_[static_cast<std::size_t>(v)]) fail("makes value " + std::to_string(v) + " a second time");
    made_[static_cast<std::size_t>(v)] = true;
  }
  operation->check(*this, r);
}

void Checker::attributes(const Record& r, const Operation& o) const {
  for (const auto& [name, value] : r.attrs)
    if (std::none_of(o.attrs.begin(), o.attrs.end(),
                     [&n = name](const AttrSpec& a) { return n == a.name; })) {
      std::vector<const char*> names;
      for (const AttrSpec& a : o.attrs) names.push_back(a.name);
      fail("unknown attribute '" + name + "'; it has " + (names.empty() ? "none" : listed(names)));
    }
  for (const AttrSpec& a : o.attrs) {
    const auto found = r.attrs.find(a.name);
    if (found == r.attrs.end()) {
      if (a.optional) continue;
      fail("lacks the attribute '" + std::string(a.name) + "'");
    }
    static constexpr const char* types[] = {"a whole number", "a number", "a string", "a list of numbers"};
    const std::size_t is = found->second.index();
    const bool fits = a.type == AttrType::integer  ? is == 0
                      : a.type == AttrType::number ? is <= 1
                      : a.type == AttrType::text   ? is == 2
                                                   : is == 3;
    if (!fits) fail("attribute '" + std::string(a.name) + "' must be " + types[static_cast<int>(a.type)]);
  }
}

float Checker::number(const Record& r, const char* name) const {
  const Attr& a = r.attrs.at(name);
  const double x = a.index() == 0 ? static_cast<double>(std::get<int64_t>(a)) : std::get<double>(a);
  if (!std::isfinite(static_cast<float>(x)))
    fail("attribute '" + std::string(name) + "' must be finite in float32");
  return static_cast<float>(x);
}

uint32_t Checker::whole(const Record& r, const char* name, int64_t least) const {
  const int64_t x = std::get<int64_t>(r.attrs.at(name));
  if (x < least || x > 0x7fffffff)
    fail("attribute '" + std::string(name) + "' is " + std::to_string(x) + "; it must be " +
         std::to_string(least) + " or more");
  return static_cast<uint32_t>(x);
}

uint32_t Checker::layer(const Record& r) const {
  const uint32_t layer = whole(r, "layer", 0);
  if (layer > 0xffff) fail("layer " + std::to_string(layer) + " is beyond 65535");
  return layer;
}

const std::string& Checker::text(const Record& r, const char* name) const {
  return std::get<std::string>(r.attrs.at(name));
}

const std::vector<double>& Checker::numbers(const Record& r, const char* name) const {
  return std::get<std::vector<double>>(r.attrs.at(name));
}

std::size_t Checker::one_of(const Record& r, const char* name, std::span<const char* const> names) const {
  const std::string& is = text(r, name);
  std::string all;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (is == names[i]) return i;
    all += (i ? ", \"" : "\"") + std::string(names[i]) + "\"";
  }
  fail(std::string(name) + " must be one of " + all + ", not \"" + is + "\"");
}

void Checker::expect_width(int v, std::size_t wanted, const char* why) const {
  if (width(v) != wanted)
    fail("value " + std::to_string(v) + " has width " + std::to_string(width(v)) + " but " + why + " " +
         std::to_string(wanted));
}

void Checker::expect_same_rows(int a, int b) const {
  if (selected(a) != selected(b)) fail("one input holds selected rows only, the other all rows");
}

void Checker::expect_all_rows(int v) const {
  if (selected(v)) fail("comes after select, but it needs all rows");
}

int Checker::temporary(std::size_t width, bool selected) {
  program_.widths.push_back(width);
  program_.selected.push_back(selected);
  return static_cast<int>(program_.widths.size() - 1);
}

std::size_t Checker::vector(int64_t index, std::size_t length, const char* what) const {
  const WeightShape& w = weight(index);
  if (w.rows != 1 || (length && w.cols != length))
    fail(std::string(what) + " is " + shape(w) + " but a vector" +
         (length ? " of " + std::to_string(length) : "") + " is needed");
  return w.cols;
}

void Checker::matrix(int64_t index, int x, std::size_t rows) {
  const WeightShape& w = weight(index);
  if (w.cols != width(x))
    fail("the weight is " + shape(w) + " but the value it meets has width " + std::to_string(width(x)));
  if (w.rows != rows) fail("the weight is " + shape(w) + " but its output has width " + std::to_string(rows));
  program_.multiplications += w.rows * w.cols;
}

Node& Checker::node(const Primitive& primitive, std::vector<int> ins, std::vector<int> outs, bool selected,
                    std::vector<int> weights) {
  for (const int v : outs) program_.selected[static_cast<std::size_t>(v)] = selected;
  program_.nodes.push_back(
      {&primitive, static_cast<int>(at_), std::move(ins), std::move(outs), std::move(weights), nullptr});
  return program_.nodes.back();
}

void Checker::keep(const Memory& memory) {
  for (Memory& m : program_.memory) {
    if (m.layer != memory.layer) continue;
    const bool halves = m.kind == Memory::Kind::state && memory.kind == Memory::Kind::state &&
                        !(m.k_dim && memory.k_dim) && !(m.v_dim && memory.v_dim);
    if (!halves)
      fail("layer " + std::to_string(memory.layer) +
           (m.kind == Memory::Kind::state ? " keeps a state already" : " has an attention already"));
    m.k_dim += memory.k_dim;
    m.v_dim += memory.v_dim;
    return;
  }
  program_.memory.push_back(memory);
}

Program check(const std::vector<Record>& records, const std::vector<int64_t>& widths,
              const std::vector<WeightShape>& weights) {
  return Checker(records, widths, weights).run();
}

}  // namespace llamay
