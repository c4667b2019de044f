#include <algorithm>

#include "plan/run.hpp"

namespace llamay {
namespace {

// Rows whose activations stay near while weights go by, and groups of weights that do while tiles of rows go
// by. With 64 and 16, both fit into a second-level cache of 1 MiB for widths up to about 5,000. Tiles of 128
// to 512 rows and chunks of 2 to 32 groups were as fast within what repetitions differ by; tiles of 32 rows a
// fifth slower.
constexpr std::size_t kRowTile = 64;
constexpr std::size_t kGroupChunk = 16;
constexpr std::size_t kFewRows = 4;  // decoding: weights are what takes time
// Of an elementwise stage over outputs: 16 KiB a thread and value, so that a vocabulary is many pieces, each
// much longer than taking one.
constexpr std::size_t kColumnChunk = 4096;
static_assert(kProductFloats >= kRowTile * kGroupChunk * 16);

std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

std::size_t Run::Cut::size_at(std::size_t begin) const {
  // Even: kernels take two groups at once. An only round has to reach the end.
  const std::size_t part = divisor * round, left = groups - begin,
                    size = divisor == 1 ? ceil_divide(left, 2 * part) * 2 : left / part / 2 * 2;
  return std::clamp<std::size_t>(size, 2, std::max<std::size_t>(chunk, 2));
}

std::size_t Run::Cut::bound(std::size_t i) const {
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

std::size_t Run::Cut::bytes(std::size_t i) const {
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

Run::Cut::Range Run::Cut::range(std::size_t i) const {
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

Run::Cut Run::cut(std::size_t rows, std::size_t groups, std::size_t most) const {
  Cut c{};
  c.groups = groups;
  c.row_tile = std::min(rows, kRowTile);
  c.row_tiles = ceil_divide(rows, c.row_tile);
  if (rows <= kFewRows && n_threads_ > 1) {
    // Weights stream by once: in equal shares, or in long stretches first and short ones at the end, so that
    // nobody waits long.
    c.round = n_threads_;
    c.divisor = shares_ ? 1 : 2;
    c.chunk = most;
    for (std::size_t begin = 0; begin < groups;) {
      const std::size_t size = c.size_at(begin),
                        chunks = std::min(c.round, ceil_divide(groups - begin, size));
      c.items += chunks;
      begin += size * chunks;
    }
    return c;
  }
  // Some pieces for each thread, so that none waits long for the last.
  const std::size_t pieces = n_threads_ == 1 ? 1 : ceil_divide(8 * n_threads_, c.row_tiles);
  c.chunk = std::clamp<std::size_t>(groups / pieces, 1, most);
  if (rows > kFewRows) c.chunk = std::min(c.chunk, kGroupChunk);
  c.items = ceil_divide(groups, c.chunk) * c.row_tiles;
  return c;
}

Run::Cut Run::cut(const Stage& stage, const Node& n) const {
  const std::size_t n_rows = rows(stage.heavy_selected);
  std::size_t groups = n.products[0].matrix->groups;
  // Of two products combined, the second one's chunk has to fit into a thread's own memory.
  if (n.kind == Node::Kind::glu) {
    const std::size_t most = kProductFloats / 16 / std::min(n_rows, kRowTile);
    return copies_ && shares_ && groups <= most ? cut_by_bytes(n, groups) : cut(n_rows, groups, most);
  }
  for (std::size_t i = 1; i < n.products.size(); ++i) groups += n.products[i].matrix->groups;
  return copies_ && shares_ ? cut_by_bytes(n, groups) : cut(n_rows, groups, groups);
}

Run::Cut Run::cut_by_bytes(const Node& n, std::size_t groups) const {
  Cut c{};
  c.row_tile = c.row_tiles = 1;
  c.items = c.round = n_threads_;
  c.groups = groups;
  // Two products combined are cut at the same groups.
  c.products = {n.products.data(), n.kind == Node::Kind::glu ? 1 : n.products.size()};
  c.ends = ends_.data();
  return c;
}

void Run::linear(const Stage& stage, const Node& n, const Cut& c, std::size_t item, const Own& own) const {
  const std::size_t row = item % c.row_tiles * c.row_tile,
                    count = std::min(c.row_tile, rows(stage.heavy_selected) - row);
  auto [begin, end] = c.range(item / c.row_tiles);
  // The products' groups stand in one line; a chunk may begin in one product and end in another.
  for (std::size_t i = 0; i < n.products.size(); ++i) {
    const Product& p = n.products[i];
    const PackedMatrix& m = *p.matrix;
    if (begin < std::min(end, m.groups)) {
      const std::size_t width = m.rows;
      const std::byte* x =
          activation(stage.activations[i], own) +
          row * schedule_.activations[static_cast<std::size_t>(stage.activations[i])].row_bytes;
      const float* residual = n.c < 0 ? nullptr : value(n.c, own) + row * width;
      float* out = value(p.out, own) + row * width;
      matmul_.matmul(m, x, count, begin, std::min(end, m.groups), out, width, p.bias, residual, width);
      if (n.op != Elementwise::copy) {
        const std::size_t first = begin * 16, columns = std::min(end * 16, width) - first;
        for (std::size_t r = 0; r < count; ++r) {
          float* product = out + r * width + first;
          ops_.elementwise(n.op, product, nullptr, 0, product, columns);
        }
      }
    }
    if (end <= m.groups) break;
    end -= m.groups;
    begin = begin > m.groups ? begin - m.groups : 0;
  }
}

void Run::glu(const Stage& stage, const Node& n, const Cut& c, std::size_t item, const Own& own) const {
  const std::size_t width = n.products[0].matrix->rows;
  const std::size_t row = item % c.row_tiles * c.row_tile,
                    count = std::min(c.row_tile, rows(stage.heavy_selected) - row);
  const auto [begin, end] = c.range(item / c.row_tiles);
  if (begin == end) return;
  const std::size_t first = begin * 16, columns = std::min(end * 16, width) - first;
  float* out = value(n.out, own) + row * width;
  const auto product = [&](std::size_t i, float* to, std::size_t stride) {
    const std::byte* x =
        activation(stage.activations[i], own) +
        row * schedule_.activations[static_cast<std::size_t>(stage.activations[i])].row_bytes;
    matmul_.matmul(*n.products[i].matrix, x, count, begin, end, to, stride, nullptr, nullptr, 0);
  };
  product(0, out, width);
  // Columns are counted from the matrix's first; only this chunk's are written.
  product(1, own.product - first, columns);
  for (std::size_t r = 0; r < count; ++r) {
    float* gate = out + r * width + first;
    ops_.elementwise(n.op, gate, own.product + r * columns, 0, gate, columns);
  }
}

std::size_t Run::column_items(const Node& n) const {
  return ceil_divide(program_.widths[static_cast<std::size_t>(n.out)], kColumnChunk) * step_.wanted;
}

void Run::columns(const Node& n, std::size_t item, const Own& own) const {
  const std::size_t width = program_.widths[static_cast<std::size_t>(n.out)],
                    chunks = ceil_divide(width, kColumnChunk);
  const std::size_t row = item / chunks, first = item % chunks * kColumnChunk;
  const std::size_t from =
      program_.selected[static_cast<std::size_t>(n.a)] ? row : static_cast<std::size_t>(step_.logits[row]);
  const auto input = [&](int v) { return value(v, own) + from * width + first; };
  ops_.elementwise(n.op, input(n.a), n.b < 0 ? nullptr : input(n.b), n.by,
                   value(n.out, own) + row * width + first, std::min(kColumnChunk, width - first));
}

}  // namespace llamay
