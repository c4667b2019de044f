#include <algorithm>

#include "cpu/run/sharing.hpp"

namespace llamay {
namespace {

// Columns of a piece of an elementwise stage over outputs: 16 KiB for each value, so that a vocabulary is
// many pieces, each of which takes much longer than claiming it.
constexpr std::size_t kColumnChunk = 4096;

}  // namespace

float* Run::rope_tables(std::size_t rope, const ThreadContext& thread) const {
  return ropes_ + plan_.rope_floats_[rope] * step_.rows + thread.copy / sizeof(float);
}

void Run::fill_ropes(std::size_t from, std::size_t to, const ThreadContext& thread) const {
  // Once for all layers, and for all operations that rotate alike.
  for (std::size_t r = 0; r < plan_.cpu_.ropes.size(); ++r) {
    const Rope& rope = plan_.cpu_.ropes[r];
    float* tables = rope_tables(r, thread);
    for (std::size_t row = from; row < to; ++row)
      rope.fill(step_.positions + row * step_.axes, step_.axes, tables + row * rope.floats());
  }
}

void Run::whole_rows(const Stage& stage, std::size_t from, std::size_t to, const ThreadContext& thread) {
  for (const RowStep& step : stage.rows) {
    const Prepared& n = plan_.cpu_.nodes[static_cast<std::size_t>(step.node >= 0 ? step.node : stage.shared)];
    if (step.node >= 0)
      n.work->rows(*this, n, from, to, thread);
    else
      quantize(step.activation, from, to, thread);
    mark_record(thread.index, n.record);
  }
}

void Run::quantize(int index, std::size_t from, std::size_t to, const ThreadContext& thread) const {
  const Activation& a = activation(index);
  matmul_.quantize_rows(a.kind, value(a.value, thread) + from * a.cols * a.parts, a.cols,
                        (to - from) * a.parts, a.cols, activation(index, thread) + from * a.row_bytes);
}

void Run::last_columns(const Prepared& n, const ThreadContext& thread, Sharing& sharing) const {
  const std::size_t width = this->width(n.outs[0]), chunks = ceil_divide(width, kColumnChunk);
  const bool all = !selected(n.ins[0]);
  sharing.pieces(chunks * step_.wanted, [&](std::size_t item) {
    const std::size_t row = item / chunks, first = item % chunks * kColumnChunk;
    const std::size_t from = all ? static_cast<std::size_t>(step_.logits[row]) : row;
    n.work->columns(*this, n, row, from, first, std::min(kColumnChunk, width - first), thread);
  });
}

}  // namespace llamay
