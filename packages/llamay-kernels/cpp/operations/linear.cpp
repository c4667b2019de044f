// Matrix products of one value with one matrix or several, and the operations that are fused with them. They
// are split over the rows of the weights.
#include <algorithm>

#include "cpu/prepare/preparation.hpp"
#include "cpu/run/sharing.hpp"
#include "operations/parts.hpp"

namespace llamay {
namespace {

constexpr std::size_t kFewRows = 4;  // decoding: reading the weights takes most of the time

/// A product, split into tiles of rows and chunks of groups.
struct ProductSplit {
  std::size_t row_tile, row_tiles, chunk, items;
  // A round gives each of `round` threads one chunk, together one `divisor`-th of the groups that are left:
  // with a divisor above 1, chunks get smaller towards the end. round 0: all chunks have one size.
  std::size_t round, divisor;
  std::size_t groups;
  // With `products`, the chunk of thread t ends at the share ends[t] of their bytes.
  std::span<const Product> products;
  const double* ends;

  struct Range {
    std::size_t begin, end;
  };
  Range range(std::size_t chunk_number) const;
  std::size_t bound(std::size_t chunk_number) const;  // the first group of a chunk
  std::size_t bytes(std::size_t chunk_number) const;  // 0 without products
  std::size_t size_at(std::size_t begin) const;       // groups in each chunk of the round that begins there
};

std::size_t ProductSplit::size_at(std::size_t begin) const {
  // Even, since kernels take two groups at once. A single round has to reach the end.
  const std::size_t part = divisor * round, left = groups - begin,
                    size = divisor == 1 ? ceil_divide(left, 2 * part) * 2 : left / part / 2 * 2;
  return std::clamp<std::size_t>(size, 2, std::max<std::size_t>(chunk, 2));
}

std::size_t ProductSplit::bound(std::size_t i) const {
  if (i == 0) return 0;
  if (i == items) return groups;
  std::size_t total = 0, first = 0;
  for (const Product& p : products) total += p.matrix->groups * p.matrix->group_bytes;
  auto left = static_cast<std::size_t>(static_cast<double>(total) * ends[i - 1]);
  for (const Product& p : products) {
    const std::size_t bytes = p.matrix->groups * p.matrix->group_bytes;
    if (left < bytes)  // even: kernels take two groups at once
      return first + std::min(p.matrix->groups, (left / p.matrix->group_bytes + 1) / 2 * 2);
    left -= bytes;
    first += p.matrix->groups;
  }
  return groups;
}

std::size_t ProductSplit::bytes(std::size_t i) const {
  auto [begin, end] = range(i);
  std::size_t total = 0;
  for (const Product& p : products) {
    const std::size_t to = std::min(end, p.matrix->groups);
    total += (to - std::min(begin, to)) * p.matrix->group_bytes;
    begin -= std::min(begin, p.matrix->groups);
    end -= to;
  }
  return total;
}

ProductSplit::Range ProductSplit::range(std::size_t i) const {
  if (!products.empty()) return {bound(i), bound(i + 1)};
  if (!round) return {i * chunk, std::min(i * chunk + chunk, groups)};
  std::size_t begin = 0, size = size_at(0);
  for (; i >= round; i -= round) {
    begin += size * round;
    size = size_at(begin);
  }
  begin += i * size;
  return {begin, std::min(begin + size, groups)};
}

/// most: the largest number of groups of a chunk.
ProductSplit split_product(const Run& run, std::size_t rows, std::size_t groups, std::size_t most) {
  ProductSplit c{};
  c.groups = groups;
  c.row_tile = std::min(rows, kRowTile);
  c.row_tiles = ceil_divide(rows, c.row_tile);
  if (rows <= kFewRows && run.n_threads() > 1) {
    // Weights are read once: in even shares, or in chunks that are long at first and short at the end, so
    // that no thread waits long.
    c.round = run.n_threads();
    c.divisor = run.even_shares() ? 1 : 2;
    c.chunk = most;
    for (std::size_t begin = 0; begin < groups;) {
      const std::size_t size = c.size_at(begin),
                        chunks = std::min(c.round, ceil_divide(groups - begin, size));
      c.items += chunks;
      begin += size * chunks;
    }
    return c;
  }
  // Several pieces for each thread, so that no thread waits long for the last one.
  const std::size_t pieces = run.n_threads() == 1 ? 1 : ceil_divide(8 * run.n_threads(), c.row_tiles);
  c.chunk = std::clamp<std::size_t>(groups / pieces, 1, most);
  if (rows > kFewRows) c.chunk = std::min(c.chunk, kGroupChunk);
  c.items = ceil_divide(groups, c.chunk) * c.row_tiles;
  return c;
}

/// One chunk for each thread, of its share of the products' bytes.
ProductSplit split_by_speed(const Run& run, std::span<const Product> products, std::size_t groups) {
  ProductSplit c{};
  c.row_tile = c.row_tiles = 1;
  c.items = c.round = run.n_threads();
  c.groups = groups;
  c.products = products;
  c.ends = run.ends().data();
  return c;
}

/// Calls piece(row, rows, chunk) for all tiles of rows and chunks of groups.
template <class F>
void share_split(Sharing& sharing, const ProductSplit& c, std::size_t n_rows, F piece) {
  sharing.products(
      c.row_tiles, c.items / c.row_tiles,
      [&](std::size_t item) {
        const std::size_t row = item % c.row_tiles * c.row_tile;
        piece(row, std::min(c.row_tile, n_rows - row), c.range(item / c.row_tiles));
      },
      [&](std::size_t item) { return c.bytes(item); });
}

struct Linear {
  std::vector<bool> biased;  // whether each product has a bias
  bool residual;             // whether the second input is added
  bool acts;
  UnaryKind act;
};

void prepare_linear(Preparation& p, const Node& n, Prepared& out) {
  const Linear& l = n.as<Linear>();
  std::size_t w = 0;
  for (std::size_t i = 0; i < n.outs.size(); ++i) {
    const PackedMatrix& m = p.matrix(n.weights[w++]);
    p.reads(m);
    out.products.push_back({&m, l.biased[i] ? p.vector(n.weights[w++]) : nullptr, n.outs[i]});
    out.reads.push_back({n.ins[0], traits(m.format).activation, m.cols, 1});
  }
}

void linear_chunk(const Run& run, const Stage& stage, const Prepared& n, std::size_t row, std::size_t count,
                  ProductSplit::Range range, const ThreadContext& thread) {
  const Linear& l = n.as<Linear>();
  auto [begin, end] = range;
  // The groups of all products are numbered through; a chunk may begin in one product and end in another.
  for (std::size_t i = 0; i < n.products.size(); ++i) {
    const Product& p = n.products[i];
    const PackedMatrix& m = *p.matrix;
    if (begin < std::min(end, m.groups)) {
      const std::size_t width = m.rows;
      const int a = stage.activations[i];
      const std::byte* x = run.activation(a, thread) + row * run.activation(a).row_bytes;
      const float* residual = l.residual ? run.value(n.ins[1], thread) + row * width : nullptr;
      float* out = run.value(p.out, thread) + row * width;
      run.matmul().matmul(m, x, count, begin, std::min(end, m.groups), out, width, p.bias, residual, width);
      if (l.acts) {
        const std::size_t first = begin * 16, columns = std::min(end * 16, width) - first;
        for (std::size_t r = 0; r < count; ++r) {
          float* product = out + r * width + first;
          unary_tables[run.isa()].apply(l.act, product, product, columns);
        }
      }
    }
    if (end <= m.groups) break;
    end -= m.groups;
    begin = begin > m.groups ? begin - m.groups : 0;
  }
}

void share_linear(Run& run, const Stage& stage, const Prepared& n, const ThreadContext& thread,
                  Sharing& sharing) {
  const std::size_t n_rows = run.rows(stage.shared_selected);
  std::size_t groups = 0;
  for (const Product& p : n.products) groups += p.matrix->groups;
  const ProductSplit c = run.copies() && run.even_shares() ? split_by_speed(run, n.products, groups)
                                                           : split_product(run, n_rows, groups, groups);
  share_split(sharing, c, n_rows, [&](std::size_t row, std::size_t count, ProductSplit::Range range) {
    linear_chunk(run, stage, n, row, count, range, thread);
  });
}

constexpr CpuWork linear_work{
    .primitive = {"linear"}, .prepare = prepare_linear, .share = share_linear, .writes_output = true};

void linear_node(Checker& c, const Record& r, int x, int residual, Linear linear) {
  std::size_t w = 0;
  std::vector<int> outs, weights;
  for (std::size_t i = 0; i < linear.biased.size(); ++i) {
    outs.push_back(out(r, i));
    if (w + (linear.biased[i] ? 2 : 1) > r.weights.size())
      c.fail("has fewer weights than its outs and biases need");
    const std::size_t rows = c.width(outs.back());
    c.matrix(r.weights[w], x, rows);
    weights.push_back(static_cast<int>(r.weights[w++]));
    if (!linear.biased[i]) continue;
    c.vector(r.weights[w], rows, "the bias");
    weights.push_back(static_cast<int>(r.weights[w++]));
  }
  if (w != r.weights.size()) c.fail("has more weights than its outs and biases need");
  std::vector<int> ins{x};
  if (residual >= 0) {
    c.expect_width(residual, c.width(outs[0]), "the product has");
    c.expect_same_rows(residual, x);
    ins.push_back(residual);
  }
  linear.residual = residual >= 0;
  c.node(linear_work.primitive, std::move(ins), std::move(outs), c.selected(x), std::move(weights),
         std::move(linear));
}

bool biased(const Record& r) { return r.weights.size() == 2; }

void check_linear(Checker& c, const Record& r) {
  linear_node(c, r, in(r, 0), -1, {{biased(r)}, false, false, {}});
}

void check_linear_add(Checker& c, const Record& r) {
  linear_node(c, r, in(r, 1), in(r, 0), {{biased(r)}, true, false, {}});
}

void check_linear_act(Checker& c, const Record& r) {
  linear_node(c, r, in(r, 0), -1, {{biased(r)}, false, true, unary_kind(c, r, "act")});
}

void check_linear_group(Checker& c, const Record& r) {
  const std::vector<double>& bias = c.numbers(r, "bias");
  if (bias.size() != r.outs.size())
    c.fail("bias has " + std::to_string(bias.size()) + " entries for " + std::to_string(r.outs.size()) +
           " outs");
  Linear linear{{}, false, false, {}};
  for (const double b : bias) linear.biased.push_back(b != 0);
  linear_node(c, r, in(r, 0), -1, std::move(linear));
}

void prepare_glu(Preparation& p, const Node& n, Prepared& out) {
  for (const int weight : n.weights) {
    const PackedMatrix& m = p.matrix(weight);
    p.reads(m);
    out.products.push_back({&m, nullptr, n.outs[0]});
    out.reads.push_back({n.ins[0], traits(m.format).activation, m.cols, 1});
  }
}

void glu_chunk(const Run& run, const Stage& stage, const Prepared& n, std::size_t row, std::size_t count,
               ProductSplit::Range range, const ThreadContext& thread) {
  const std::size_t width = n.products[0].matrix->rows;
  const auto [begin, end] = range;
  if (begin == end) return;
  const std::size_t first = begin * 16, columns = std::min(end * 16, width) - first;
  float* out = run.value(n.outs[0], thread) + row * width;
  const auto product = [&](std::size_t i, float* to, std::size_t stride) {
    const int a = stage.activations[i];
    const std::byte* x = run.activation(a, thread) + row * run.activation(a).row_bytes;
    run.matmul().matmul(*n.products[i].matrix, x, count, begin, end, to, stride, nullptr, nullptr, 0);
  };
  product(0, out, width);
  // Columns are counted from the matrix's first; only this chunk's are written.
  product(1, thread.product - first, columns);
  for (std::size_t r = 0; r < count; ++r) {
    float* gate = out + r * width + first;
    unary_tables[run.isa()].apply_mul(n.as<UnaryKind>(), gate, thread.product + r * columns, gate, columns);
  }
}

void share_glu(Run& run, const Stage& stage, const Prepared& n, const ThreadContext& thread,
               Sharing& sharing) {
  // The second product's chunk has to fit into a thread's own memory. Both products are split at the same
  // groups.
  const std::size_t n_rows = run.rows(stage.shared_selected), groups = n.products[0].matrix->groups,
                    most = kProductFloats / 16 / std::min(n_rows, kRowTile);
  const ProductSplit c = run.copies() && run.even_shares() && groups <= most
                             ? split_by_speed(run, {n.products.data(), 1}, groups)
                             : split_product(run, n_rows, groups, most);
  share_split(sharing, c, n_rows, [&](std::size_t row, std::size_t count, ProductSplit::Range range) {
    glu_chunk(run, stage, n, row, count, range, thread);
  });
}

constexpr CpuWork glu_work{
    .primitive = {"glu"}, .prepare = prepare_glu, .share = share_glu, .writes_output = true};

void check_glu(Checker& c, const Record& r) {
  const int x = in(r, 0);
  const UnaryKind act = unary_kind(c, r, "act");
  for (const int64_t w : r.weights) c.matrix(w, x, c.width(out(r)));
  c.node(glu_work.primitive, {x}, {out(r)}, c.selected(x),
         {static_cast<int>(r.weights[0]), static_cast<int>(r.weights[1])}, act);
}

const AttrSpec act{"act", AttrType::text};

const Operations entered{
    {"linear", 1, 1, {1, 2}, {}, check_linear},
    {"linear_add", 1, 2, {1, 2}, {}, check_linear_add},
    {"linear_act", 1, 1, {1, 2}, {act}, check_linear_act},
    {"linear_group", {1, Count::any}, 1, {1, Count::any}, {{"bias", AttrType::numbers}}, check_linear_group},
    {"glu", 1, 1, 2, {act}, check_glu},
};

}  // namespace
}  // namespace llamay
