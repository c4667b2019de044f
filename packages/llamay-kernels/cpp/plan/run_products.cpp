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

Run::Cut Run::cut(const Stage& stage, const Node& n) const {
  if (n.kind != Node::Kind::glu) {
    std::size_t groups = 0;
    for (const Product& p : n.products) groups += p.matrix->groups;
    return cut(rows(stage.heavy_selected), groups);
  }
  const std::size_t groups = n.products[0].matrix->groups;
  Cut c = cut(rows(stage.heavy_selected), groups);
  c.chunk = std::min(c.chunk, kProductFloats / 16 / c.row_tile);
  c.items = ceil_divide(groups, c.chunk) * c.row_tiles;
  return c;
}

void Run::linear(const Stage& stage, const Node& n, const Cut& c, std::size_t item) const {
  const std::size_t row = item % c.row_tiles * c.row_tile,
                    count = std::min(c.row_tile, rows(stage.heavy_selected) - row);
  std::size_t begin = item / c.row_tiles * c.chunk, end = begin + c.chunk;
  // The products' groups stand in one line; a chunk may begin in one product and end in another.
  for (std::size_t i = 0; i < n.products.size(); ++i) {
    const Product& p = n.products[i];
    const PackedMatrix& m = *p.matrix;
    if (begin < m.groups) {
      const std::size_t width = m.rows;
      const std::byte* x =
          activation(stage.activations[i]) +
          row * schedule_.activations[static_cast<std::size_t>(stage.activations[i])].row_bytes;
      const float* residual = n.c < 0 ? nullptr : value(n.c) + row * width;
      matmul_.matmul(m, x, count, begin, std::min(end, m.groups), value(p.out) + row * width, width, p.bias,
                     residual, width);
    }
    if (end <= m.groups) break;
    end -= m.groups;
    begin = begin > m.groups ? begin - m.groups : 0;
  }
}

void Run::glu(const Stage& stage, const Node& n, const Cut& c, std::size_t item, const Own& own) const {
  const std::size_t groups = n.products[0].matrix->groups, width = n.products[0].matrix->rows;
  const std::size_t row = item % c.row_tiles * c.row_tile,
                    count = std::min(c.row_tile, rows(stage.heavy_selected) - row);
  const std::size_t begin = item / c.row_tiles * c.chunk, end = std::min(begin + c.chunk, groups);
  const std::size_t first = begin * 16, columns = std::min(end * 16, width) - first;
  float* out = value(n.out) + row * width;
  const auto product = [&](std::size_t i, float* to, std::size_t stride) {
    const std::byte* x =
        activation(stage.activations[i]) +
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

void Run::columns(const Node& n, std::size_t item) const {
  const std::size_t width = program_.widths[static_cast<std::size_t>(n.out)],
                    chunks = ceil_divide(width, kColumnChunk);
  const std::size_t row = item / chunks, first = item % chunks * kColumnChunk;
  const std::size_t from =
      program_.selected[static_cast<std::size_t>(n.a)] ? row : static_cast<std::size_t>(step_.logits[row]);
  const auto input = [&](int v) { return value(v) + from * width + first; };
  ops_.elementwise(n.op, input(n.a), n.b < 0 ? nullptr : input(n.b), n.by, value(n.out) + row * width + first,
                   std::min(kColumnChunk, width - first));
}

}  // namespace llamay
