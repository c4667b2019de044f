#include <algorithm>

#include "plan/run.hpp"

namespace llamay {
namespace {

constexpr std::size_t kRowTile = 64;     // rows whose activations stay near while weights go by
constexpr std::size_t kGroupChunk = 16;  // groups of weights that stay near while tiles of rows go by
constexpr std::size_t kColumnChunk = 4096;
static_assert(kProductFloats >= kRowTile * kGroupChunk * 16);

std::size_t ceil_divide(std::size_t a, std::size_t b) { return (a + b - 1) / b; }

}  // namespace

Run::Cut Run::cut(std::size_t rows, std::size_t groups) const {
  Cut c{};
  c.row_tile = std::min(rows, kRowTile);
  c.row_tiles = ceil_divide(rows, c.row_tile);
  // Some pieces for each thread, so that none waits long for the last.
  const std::size_t pieces = n_threads_ == 1 ? 1 : ceil_divide(8 * n_threads_, c.row_tiles);
  c.chunk = std::max<std::size_t>(1, groups / pieces);
  if (rows > 4) c.chunk = std::min(c.chunk, kGroupChunk);
  c.items = ceil_divide(groups, c.chunk) * c.row_tiles;
  return c;
}

void Run::linear(const Stage& stage, const Node& n, Counter& counter, const Bases& at) const {
  const std::size_t n_rows = rows(stage.heavy_selected);
  std::size_t groups = 0;
  for (const Product& p : n.products) groups += p.matrix->groups;
  const Cut c = cut(n_rows, groups);
  for (std::size_t item; (item = take(counter)) < c.items;) {
    const std::size_t row = item % c.row_tiles * c.row_tile, count = std::min(c.row_tile, n_rows - row);
    std::size_t begin = item / c.row_tiles * c.chunk, end = std::min(begin + c.chunk, groups);
    // The products' groups stand in one line; a chunk may begin in one product and end in another.
    for (std::size_t i = 0;; ++i) {
      const Product& p = n.products[i];
      const PackedMatrix& m = *p.matrix;
      if (begin < m.groups) {
        const Activation& a = schedule_.activations[static_cast<std::size_t>(stage.activations[i])];
        const std::size_t width = m.rows;
        const float* residual = n.c < 0 ? nullptr : value(n.c, at) + row * width;
        matmul_.matmul(m, activation(stage.activations[i], at) + row * a.row_bytes, count, begin, std::min(end, m.groups),
                       value(p.out, at) + row * width, width, p.bias, residual, width);
      }
      if (end <= m.groups) break;
      end -= m.groups;
      begin = begin > m.groups ? begin - m.groups : 0;
    }
  }
}

void Run::glu(const Stage& stage, const Node& n, Counter& counter, const Bases& at) const {
  const std::size_t n_rows = rows(stage.heavy_selected), width = n.products[0].matrix->rows;
  Cut c = cut(n_rows, n.products[0].matrix->groups);
  if (c.row_tile * c.chunk * 16 > kProductFloats) {
    c.chunk = kProductFloats / 16 / c.row_tile;
    c.items = ceil_divide(n.products[0].matrix->groups, c.chunk) * c.row_tiles;
  }
  for (std::size_t item; (item = take(counter)) < c.items;) {
    const std::size_t row = item % c.row_tiles * c.row_tile, count = std::min(c.row_tile, n_rows - row);
    const std::size_t begin = item / c.row_tiles * c.chunk, end = std::min(begin + c.chunk, n.products[0].matrix->groups);
    const std::size_t first = begin * 16, columns = std::min(end * 16, width) - first;
    float* out = value(n.out, at) + row * width;
    const auto product = [&](std::size_t i, float* to, std::size_t stride) {
      const Activation& a = schedule_.activations[static_cast<std::size_t>(stage.activations[i])];
      matmul_.matmul(*n.products[i].matrix, activation(stage.activations[i], at) + row * a.row_bytes, count, begin, end, to, stride,
                     nullptr, nullptr, 0);
    };
    product(0, out, width);
    // Columns are counted from the matrix's first; only this chunk's are written.
    product(1, at.product - first, columns);
    for (std::size_t r = 0; r < count; ++r) {
      float* gate = out + r * width + first;
      ops_.elementwise(n.op, gate, at.product + r * columns, 0, gate, columns);
    }
  }
}

void Run::columns(const Node& n, Counter& counter, const Bases& at) const {
  const std::size_t width = program_.widths[static_cast<std::size_t>(n.out)], chunks = ceil_divide(width, kColumnChunk);
  const bool gathers = !program_.selected[static_cast<std::size_t>(n.a)];
  for (std::size_t item; (item = take(counter)) < chunks * step_.wanted;) {
    const std::size_t row = item / chunks, first = item % chunks * kColumnChunk;
    const std::size_t from = gathers ? static_cast<std::size_t>(step_.logits[row]) : row;
    const auto input = [&](int v) { return value(v, at) + from * width + first; };
    ops_.elementwise(n.op, input(n.a), n.b < 0 ? nullptr : input(n.b), n.by, value(n.out, at) + row * width + first,
                     std::min(kColumnChunk, width - first));
  }
}

}  // namespace llamay
