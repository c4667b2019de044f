#include <algorithm>

#include "cpu/sharing.hpp"

namespace llamay {
namespace {

// Of an elementwise stage over outputs: 16 KiB a thread and value, so that a vocabulary is many pieces, each
// much longer than taking one.
constexpr std::size_t kColumnChunk = 4096;

}  // namespace

float* Run::rope_tables(std::size_t rope, const Own& own) const {
  return ropes_ + plan_.rope_floats_[rope] * step_.rows + own.copy / sizeof(float);
}

void Run::fill_ropes(std::size_t from, std::size_t to, const Own& own) const {
  // Once for all layers, and for all operations that rotate alike.
  for (std::size_t r = 0; r < plan_.cpu_.ropes.size(); ++r) {
    const Rope& rope = plan_.cpu_.ropes[r];
    float* tables = rope_tables(r, own);
    for (std::size_t row = from; row < to; ++row)
      rope.fill(step_.positions + row * step_.axes, step_.axes, tables + row * rope.floats());
  }
}

void Run::whole_rows(const Stage& stage, std::size_t from, std::size_t to, const Own& own) {
  for (const RowStep& step : stage.rows) {
    const Prepared& n = plan_.cpu_.nodes[static_cast<std::size_t>(step.node >= 0 ? step.node : stage.shared)];
    if (step.node >= 0)
      n.work->rows(*this, n, from, to, own);
    else
      quantize(step.activation, from, to, own);
    mark_record(own.thread, n.record);
  }
}

void Run::quantize(int index, std::size_t from, std::size_t to, const Own& own) const {
  const Activation& a = activation(index);
  matmul_.quantize_rows(a.kind, value(a.value, own) + from * a.cols * a.parts, a.cols, (to - from) * a.parts,
                        a.cols, activation(index, own) + from * a.row_bytes);
}

void Run::last_columns(const Prepared& n, const Own& own, Sharing& sharing) const {
  const std::size_t width = this->width(n.outs[0]), chunks = ceil_divide(width, kColumnChunk);
  const bool all = !selected(n.ins[0]);
  sharing.pieces(chunks * step_.wanted, [&](std::size_t item) {
    const std::size_t row = item / chunks, first = item % chunks * kColumnChunk;
    const std::size_t from = all ? static_cast<std::size_t>(step_.logits[row]) : row;
    n.work->columns(*this, n, row, from, first, std::min(kColumnChunk, width - first), own);
  });
}

}  // namespace llamay
