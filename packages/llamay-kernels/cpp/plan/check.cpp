#include <algorithm>
#include <cmath>
#include <set>

#include "dispatch.hpp"
#include "plan/program.hpp"
#include "plan/tables.hpp"

namespace llamay {
namespace {

enum class Type { integer, number, text, numbers };

struct AttrSpec {
  const char* name;
  Type type;
};
struct OpSpec {
  const char* name;
  std::size_t outs, args, weights_min, weights_max;
  std::vector<AttrSpec> attrs;
};
constexpr std::size_t kAny = static_cast<std::size_t>(-1);

const std::vector<OpSpec>& specs() {
  static const std::vector<AttrSpec> rope = {
      {"head_dim", Type::integer}, {"style", Type::text}, {"freqs", Type::numbers}, {"factor", Type::number}};
  static const std::vector<AttrSpec> eps = {{"eps", Type::number}};
  static const std::vector<OpSpec> all = {
      {"embed", 1, 0, 1, 1, {}},
      {"embed_positions", 1, 0, 1, 1, {}},
      {"linear", 1, 1, 1, 2, {}},
      {"rms_norm", 1, 1, 1, 1, eps},
      {"layer_norm", 1, 1, 1, 2, eps},
      {"rope", 1, 1, 0, 0, rope},
      {"attention",
       1,
       3,
       0,
       0,
       {{"layer", Type::integer},
        {"heads", Type::integer},
        {"kv_heads", Type::integer},
        {"k_dim", Type::integer},
        {"v_dim", Type::integer},
        {"scale", Type::number},
        {"window", Type::integer},
        {"softcap", Type::number}}},
      {"add", 1, 2, 0, 0, {}},
      {"mul", 1, 2, 0, 0, {}},
      {"scale", 1, 1, 0, 0, {{"by", Type::number}}},
      {"silu", 1, 1, 0, 0, {}},
      {"gelu_tanh", 1, 1, 0, 0, {}},
      {"softcap", 1, 1, 0, 0, {{"cap", Type::number}}},
      {"select", 1, 1, 0, 0, {}},
      {"linear_group", kAny, 1, 1, kAny, {{"bias", Type::numbers}}},
      {"glu", 1, 1, 2, 2, {{"act", Type::text}}},
      {"linear_add", 1, 2, 1, 2, {}},
      {"linear_act", 1, 1, 1, 2, {{"act", Type::text}}},
      {"add_rms_norm", 2, 2, 1, 1, eps},
      {"rms_norm_add", 1, 2, 1, 1, eps},
      {"rope_norm",
       1,
       1,
       1,
       1,
       {{"eps", Type::number},
        {"head_dim", Type::integer},
        {"style", Type::text},
        {"freqs", Type::numbers},
        {"factor", Type::number}}},
  };
  return all;
}

template <class T>
std::string listed(const T& names) {
  std::string out;
  for (const auto& n : names) out += (out.empty() ? "" : ", ") + std::string(n);
  return out;
}

std::string shape(const PackedMatrix& w) { return std::to_string(w.rows) + " x " + std::to_string(w.cols); }

class Checker {
 public:
  Checker(const std::vector<Record>& records, const std::vector<int64_t>& widths,
          const std::vector<const PackedMatrix*>& weights)
      : records_(records), weights_(weights) {
    if (records.empty()) throw PlanError("a plan needs at least one record");
    for (std::size_t v = 0; v < widths.size(); ++v) {
      if (widths[v] < 1 || widths[v] > int64_t{1} << 31)
        throw PlanError("value " + std::to_string(v) + " has width " + std::to_string(widths[v]) +
                        "; it must be 1 to 2^31");
      p_.widths.push_back(static_cast<std::size_t>(widths[v]));
    }
    p_.selected.resize(widths.size());
    made_.resize(widths.size());
  }

  Program run() {
    for (at_ = 0; at_ < records_.size(); ++at_) {
      p_.ops.push_back(records_[at_].op);
      record(records_[at_]);
    }
    p_.output = static_cast<int>(records_.back().outs.back());
    return std::move(p_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw PlanError("record " + std::to_string(at_) + " (" + records_[at_].op + "): " + what);
  }

  const OpSpec& spec(const Record& r) const {
    for (const OpSpec& s : specs())
      if (r.op == s.name) return s;
    std::vector<const char*> names;
    for (const OpSpec& s : specs()) names.push_back(s.name);
    fail("unknown operation; there are " + listed(names));
  }

  void count(const char* what, std::size_t is, std::size_t least, std::size_t most) const {
    if (is >= least && is <= most) return;
    const std::string wanted = least == most  ? std::to_string(least)
                               : most == kAny ? std::to_string(least) + " or more"
                                              : std::to_string(least) + " to " + std::to_string(most);
    fail("takes " + wanted + " " + what + ", not " + std::to_string(is));
  }

  void record(const Record& r) {
    const OpSpec& s = spec(r);
    count("outs", r.outs.size(), s.outs == kAny ? 1 : s.outs, s.outs);
    count("args", r.args.size(), s.args, s.args);
    count("weights", r.weights.size(), s.weights_min, s.weights_max);
    attributes(r, s);
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
    dispatch(r);
  }

  void attributes(const Record& r, const OpSpec& s) const {
    for (const auto& [name, value] : r.attrs)
      if (std::none_of(s.attrs.begin(), s.attrs.end(),
                       [&n = name](const AttrSpec& a) { return n == a.name; })) {
        std::vector<const char*> names;
        for (const AttrSpec& a : s.attrs) names.push_back(a.name);
        fail("unknown attribute '" + name + "'; it has " + (names.empty() ? "none" : listed(names)));
      }
    for (const AttrSpec& a : s.attrs) {
      const auto found = r.attrs.find(a.name);
      if (found == r.attrs.end()) fail("lacks the attribute '" + std::string(a.name) + "'");
      static constexpr const char* types[] = {"a whole number", "a number", "a string", "a list of numbers"};
      const std::size_t is = found->second.index();
      const bool fits = a.type == Type::integer  ? is == 0
                        : a.type == Type::number ? is <= 1
                        : a.type == Type::text   ? is == 2
                                                 : is == 3;
      if (!fits) fail("attribute '" + std::string(a.name) + "' must be " + types[static_cast<int>(a.type)]);
    }
  }

  // Attributes, checked and present.
  float number(const Record& r, const char* name) const {
    const Attr& a = r.attrs.at(name);
    const double x = a.index() == 0 ? static_cast<double>(std::get<int64_t>(a)) : std::get<double>(a);
    if (!std::isfinite(static_cast<float>(x)))
      fail("attribute '" + std::string(name) + "' must be finite in float32");
    return static_cast<float>(x);
  }
  uint32_t whole(const Record& r, const char* name, int64_t least) const {
    const int64_t x = std::get<int64_t>(r.attrs.at(name));
    if (x < least || x > 0x7fffffff)
      fail("attribute '" + std::string(name) + "' is " + std::to_string(x) + "; it must be " +
           std::to_string(least) + " or more");
    return static_cast<uint32_t>(x);
  }
  const std::string& text(const Record& r, const char* name) const {
    return std::get<std::string>(r.attrs.at(name));
  }
  const std::vector<double>& numbers(const Record& r, const char* name) const {
    return std::get<std::vector<double>>(r.attrs.at(name));
  }

  std::size_t width(int v) const { return p_.widths[static_cast<std::size_t>(v)]; }
  void expect_width(int v, std::size_t wanted, const char* why) const {
    if (width(v) != wanted)
      fail("value " + std::to_string(v) + " has width " + std::to_string(width(v)) + " but " + why + " " +
           std::to_string(wanted));
  }
  bool is_selected(int v) const { return p_.selected[static_cast<std::size_t>(v)]; }
  int temporary(std::size_t width, bool selected) {
    p_.widths.push_back(width);
    p_.selected.push_back(selected);
    return static_cast<int>(p_.widths.size() - 1);
  }

  /// A weight of one row, as plain floats.
  const float* vector(int64_t index, std::size_t length, const char* what) {
    const PackedMatrix& w = *weights_[static_cast<std::size_t>(index)];
    if (w.rows != 1 || (length && w.cols != length))
      fail(std::string(what) + " is " + shape(w) + " but a vector" +
           (length ? " of " + std::to_string(length) : "") + " is needed");
    p_.vectors.push_back(std::make_unique<float[]>(w.cols));
    const int32_t row = 0;
    matmul_tables[Isa::portable].dequantize_rows(w, &row, 1, p_.vectors.back().get());
    return p_.vectors.back().get();
  }

  const PackedMatrix* matrix(int64_t index, int x, std::size_t rows) {
    const PackedMatrix& w = *weights_[static_cast<std::size_t>(index)];
    if (w.cols != width(x))
      fail("the weight is " + shape(w) + " but the value it meets has width " + std::to_string(width(x)));
    if (w.rows != rows)
      fail("the weight is " + shape(w) + " but its output has width " + std::to_string(rows));
    p_.weight_bytes += w.groups * w.group_bytes;
    p_.multiplications += w.rows * w.cols;
    return &w;
  }

  Node& node(Node::Kind kind, int out, bool selected) {
    p_.nodes.push_back({.kind = kind, .record = static_cast<int>(at_), .out = out});
    p_.selected[static_cast<std::size_t>(out)] = selected;
    return p_.nodes.back();
  }

  void elementwise(Elementwise op, int a, int b, float by, int out) {
    expect_width(out, width(a), "its input has");
    if (b >= 0) {
      expect_width(b, width(a), "the other input has");
      if (is_selected(a) != is_selected(b)) fail("one input holds selected rows only, the other all rows");
    }
    Node& n = node(Node::Kind::elementwise, out, is_selected(a));
    n.a = a;
    n.b = b;
    n.op = op;
    n.by = by;
  }

  void rms_norm(const Record& r, int x, int64_t weight, int out) {
    const std::size_t length = weights_[static_cast<std::size_t>(weight)]->cols;
    const float* w = vector(weight, 0, "the norm's weight");
    if (width(x) % length)
      fail("width " + std::to_string(width(x)) + " is not a multiple of the weight's " +
           std::to_string(length));
    expect_width(out, width(x), "its input has");
    const float eps = number(r, "eps");
    if (eps < 0) fail("eps must not be negative");
    Node& n = node(Node::Kind::rms_norm, out, is_selected(x));
    n.a = x;
    n.norm = w;
    n.eps = eps;
    n.width = length;
    n.groups = width(x) / length;
  }

  void layer_norm(const Record& r, int x, int out) {
    expect_width(out, width(x), "its input has");
    const float eps = number(r, "eps");
    if (eps < 0) fail("eps must not be negative");
    const float* w = vector(r.weights[0], width(x), "the norm's weight");
    const float* b = r.weights.size() > 1 ? vector(r.weights[1], width(x), "the norm's bias") : nullptr;
    Node& n = node(Node::Kind::layer_norm, out, is_selected(x));
    n.a = x;
    n.norm = w;
    n.norm_bias = b;
    n.eps = eps;
  }

  void embed(const Record& r, int out, bool by_position) {
    const PackedMatrix& table = *weights_[static_cast<std::size_t>(r.weights[0])];
    expect_width(out, table.cols, "the table's columns are");
    std::size_t& smallest = by_position ? p_.positions : p_.vocabulary;
    smallest = smallest ? std::min(smallest, table.rows) : table.rows;
    Node& n = node(Node::Kind::embed, out, false);
    n.table = &table;
    n.by_position = by_position;
  }

  void rope(const Record& r, int x, int out) {
    const std::string& style = text(r, "style");
    if (style != "half" && style != "pairs")
      fail("style must be \"half\" or \"pairs\", not \"" + style + "\"");
    const std::size_t head_dim = whole(r, "head_dim", 1);
    const std::vector<double>& freqs = numbers(r, "freqs");
    if (width(x) % head_dim)
      fail("width " + std::to_string(width(x)) + " is not a multiple of head_dim " +
           std::to_string(head_dim));
    if (freqs.empty() || 2 * freqs.size() > head_dim)
      fail(std::to_string(freqs.size()) + " frequencies do not fit a head of " + std::to_string(head_dim) +
           " dimensions");
    for (const double f : freqs)
      if (!(std::abs(f) <= 65536.0)) fail("a frequency must lie in -65536..65536");
    expect_width(out, width(x), "its input has");
    const Rope wanted{style == "half" ? RopeStyle::half : RopeStyle::pairs, freqs, number(r, "factor")};
    const auto found = std::find(p_.ropes.begin(), p_.ropes.end(), wanted);
    const auto index = static_cast<std::size_t>(found - p_.ropes.begin());
    if (found == p_.ropes.end()) p_.ropes.push_back(wanted);
    Node& n = node(Node::Kind::rope, out, is_selected(x));
    n.a = x;
    n.rope = index;
    n.head_dim = head_dim;
    n.heads = width(x) / head_dim;
  }

  void attention(const Record& r, int q, int k, int v, int out) {
    AttentionShape s{};
    s.heads = whole(r, "heads", 1);
    s.kv_heads = whole(r, "kv_heads", 1);
    s.k_dim = whole(r, "k_dim", 1);
    s.v_dim = whole(r, "v_dim", 1);
    s.window = whole(r, "window", 0);
    s.scale = number(r, "scale");
    s.softcap = number(r, "softcap");
    const uint32_t layer = whole(r, "layer", 0);
    if (layer > 0xffff) fail("layer " + std::to_string(layer) + " is beyond 65535");
    if (s.softcap < 0) fail("softcap must not be negative; 0 is none");
    if (s.heads % s.kv_heads)
      fail(std::to_string(s.heads) + " query heads do not divide among " + std::to_string(s.kv_heads) +
           " key/value heads");
    expect_width(q, std::size_t{s.heads} * s.k_dim, "heads * k_dim is");
    expect_width(k, std::size_t{s.kv_heads} * s.k_dim, "kv_heads * k_dim is");
    expect_width(v, std::size_t{s.kv_heads} * s.v_dim, "kv_heads * v_dim is");
    expect_width(out, std::size_t{s.heads} * s.v_dim, "heads * v_dim is");
    if (is_selected(q) || is_selected(k) || is_selected(v)) fail("comes after select, but it needs all rows");
    if (!layers_.insert(layer).second) fail("layer " + std::to_string(layer) + " has an attention already");
    const auto same = [&s](const AttentionShape& o) {
      return o.heads == s.heads && o.kv_heads == s.kv_heads && o.k_dim == s.k_dim && o.v_dim == s.v_dim &&
             o.window == s.window && o.scale == s.scale && o.softcap == s.softcap;
    };
    const auto found = std::find_if(p_.shapes.begin(), p_.shapes.end(), same);
    const auto index = static_cast<std::size_t>(found - p_.shapes.begin());
    if (found == p_.shapes.end()) p_.shapes.push_back(s);
    Node& n = node(Node::Kind::attention, out, false);
    n.a = q;
    n.b = k;
    n.c = v;
    n.shape = index;
    n.attention = layers_.size() - 1;
    n.layer = layer;
  }

  void linear(const Record& r, int x, const std::vector<bool>& biased, int residual) {
    std::vector<Product> products;
    std::size_t w = 0;
    for (std::size_t i = 0; i < biased.size(); ++i) {
      const int out = static_cast<int>(r.outs[i]);
      if (w + (biased[i] ? 2 : 1) > r.weights.size()) fail("has fewer weights than its outs and biases need");
      const PackedMatrix* m = matrix(r.weights[w++], x, width(out));
      const float* bias = biased[i] ? vector(r.weights[w++], m->rows, "the bias") : nullptr;
      products.push_back({m, bias, out});
    }
    if (w != r.weights.size()) fail("has more weights than its outs and biases need");
    if (residual >= 0) {
      expect_width(residual, width(products[0].out), "the product has");
      if (is_selected(residual) != is_selected(x))
        fail("one input holds selected rows only, the other all rows");
    }
    for (const Product& p : products) p_.selected[static_cast<std::size_t>(p.out)] = is_selected(x);
    Node& n = node(Node::Kind::linear, products[0].out, is_selected(x));
    n.a = x;
    n.c = residual;
    n.products = std::move(products);
  }

  /// Whether the activation function that a record names is SiLU; the other one is GELU.
  bool is_silu(const Record& r) {
    const std::string& act = text(r, "act");
    if (act != "silu" && act != "gelu_tanh")
      fail("act must be \"silu\" or \"gelu_tanh\", not \"" + act + "\"");
    return act == "silu";
  }

  void dispatch(const Record& r) {
    const auto arg = [&r](std::size_t i) { return static_cast<int>(r.args[i]); };
    const int out = static_cast<int>(r.outs[0]);
    const std::string& op = r.op;
    if (op == "embed" || op == "embed_positions") {
      embed(r, out, op == "embed_positions");
    } else if (op == "linear") {
      linear(r, arg(0), {r.weights.size() == 2}, -1);
    } else if (op == "linear_add") {
      linear(r, arg(1), {r.weights.size() == 2}, arg(0));
    } else if (op == "linear_act") {
      const Elementwise act = is_silu(r) ? Elementwise::silu : Elementwise::gelu_tanh;
      linear(r, arg(0), {r.weights.size() == 2}, -1);
      p_.nodes.back().op = act;
    } else if (op == "linear_group") {
      const std::vector<double>& bias = numbers(r, "bias");
      if (bias.size() != r.outs.size())
        fail("bias has " + std::to_string(bias.size()) + " entries for " + std::to_string(r.outs.size()) +
             " outs");
      std::vector<bool> biased;
      for (const double b : bias) biased.push_back(b != 0);
      linear(r, arg(0), biased, -1);
    } else if (op == "glu") {
      const bool silu = is_silu(r);
      const PackedMatrix* gate = matrix(r.weights[0], arg(0), width(out));
      const PackedMatrix* up = matrix(r.weights[1], arg(0), width(out));
      Node& n = node(Node::Kind::glu, out, is_selected(arg(0)));
      n.a = arg(0);
      n.op = silu ? Elementwise::silu_mul : Elementwise::gelu_mul;
      n.products = {{gate, nullptr, out}, {up, nullptr, out}};
    } else if (op == "rms_norm") {
      rms_norm(r, arg(0), r.weights[0], out);
    } else if (op == "layer_norm") {
      layer_norm(r, arg(0), out);
    } else if (op == "add_rms_norm") {
      elementwise(Elementwise::add, arg(0), arg(1), 0, out);
      rms_norm(r, out, r.weights[0], static_cast<int>(r.outs[1]));
    } else if (op == "rms_norm_add") {
      const int normed = temporary(width(arg(1)), is_selected(arg(1)));
      rms_norm(r, arg(1), r.weights[0], normed);
      elementwise(Elementwise::add, arg(0), normed, 0, out);
    } else if (op == "rope") {
      rope(r, arg(0), out);
    } else if (op == "rope_norm") {
      const int normed = temporary(width(arg(0)), is_selected(arg(0)));
      rms_norm(r, arg(0), r.weights[0], normed);
      rope(r, normed, out);
    } else if (op == "attention") {
      attention(r, arg(0), arg(1), arg(2), out);
    } else if (op == "select") {
      if (is_selected(arg(0))) fail("its input holds selected rows only already");
      expect_width(out, width(arg(0)), "its input has");
      node(Node::Kind::select, out, true).a = arg(0);
    } else if (op == "add" || op == "mul") {
      elementwise(op == "add" ? Elementwise::add : Elementwise::mul, arg(0), arg(1), 0, out);
    } else if (op == "scale") {
      elementwise(Elementwise::scale, arg(0), -1, number(r, "by"), out);
    } else if (op == "softcap") {
      const float cap = number(r, "cap");
      if (!(cap > 0)) fail("cap must be positive");
      elementwise(Elementwise::softcap, arg(0), -1, cap, out);
    } else {
      elementwise(op == "silu" ? Elementwise::silu : Elementwise::gelu_tanh, arg(0), -1, 0, out);
    }
  }

  const std::vector<Record>& records_;
  const std::vector<const PackedMatrix*>& weights_;
  Program p_;
  std::vector<bool> made_;
  std::set<uint32_t> layers_;
  std::size_t at_ = 0;
};

}  // namespace

Program check(const std::vector<Record>& records, const std::vector<int64_t>& widths,
              const std::vector<const PackedMatrix*>& weights) {
  return Checker(records, widths, weights).run();
}

}  // namespace llamay
