#include <algorithm>

#include "plan/run.hpp"

namespace llamay {

void Run::fill_ropes(unsigned t, const Bases& at) const {
  // Once for all layers. With few rows each thread makes its own, otherwise its share of them.
  const std::size_t n = step_.rows, from = alone_ ? 0 : n * t / n_threads_, to = alone_ ? n : n * (t + 1) / n_threads_;
  for (std::size_t r = 0; r < program_.ropes.size(); ++r) {
    const Rope& rope = program_.ropes[r];
    float* tables = at.ropes + plan_.rope_floats_[r] * n;
    for (std::size_t row = from; row < to; ++row) rope.fill(step_.positions[row], tables + row * rope.floats());
  }
}

void Run::whole_rows(const Stage& stage, Counter& counter, unsigned t, const Bases& at) {
  const std::size_t n = rows(stage.selected);
  // A few rows go through all steps of the stage while they are near.
  const std::size_t chunk = alone_ ? n : std::clamp<std::size_t>(n / (4 * n_threads_), 1, 16);
  for (std::size_t from = alone_ ? 0 : take(counter) * chunk; from < n; from = alone_ ? n : take(counter) * chunk)
    for (const RowStep& step : stage.rows) {
      row_step(step, stage.selected, from, std::min(from + chunk, n), at);
      if (profile_)
        mark_record(t, step.node >= 0 ? program_.nodes[static_cast<std::size_t>(step.node)].record
                                      : program_.nodes[static_cast<std::size_t>(stage.heavy)].record);
    }
}

void Run::row_step(const RowStep& step, bool, std::size_t from, std::size_t to, const Bases& at) const {
  if (step.node >= 0) return row_node(program_.nodes[static_cast<std::size_t>(step.node)], from, to, at);
  const Activation& a = schedule_.activations[static_cast<std::size_t>(step.activation)];
  matmul_.quantize_rows(a.kind, value(a.value, at) + from * a.cols, a.cols, to - from, a.cols,
                        activation(step.activation, at) + from * a.row_bytes);
}

void Run::row_node(const Node& n, std::size_t from, std::size_t to, const Bases& at) const {
  const std::size_t width = program_.widths[static_cast<std::size_t>(n.out)], count = to - from;
  float* out = value(n.out, at) + from * width;
  const auto input = [&](int v) { return value(v, at) + from * width; };
  const bool selected = program_.selected[static_cast<std::size_t>(n.out)];
  switch (n.kind) {
    case Node::Kind::embed: matmul_.dequantize_rows(*n.table, step_.tokens + from, count, out); break;
    case Node::Kind::elementwise:
      ops_.elementwise(n.op, input(n.a), n.b < 0 ? nullptr : input(n.b), n.by, out, count * width);
      break;
    case Node::Kind::rms_norm: ops_.rms_norm(input(n.a), n.norm, count * n.groups, n.width, n.eps, out); break;
    case Node::Kind::select: {
      const float* x = value(n.a, at);
      for (std::size_t i = from; i < to; ++i, out += width)
        ops_.elementwise(Elementwise::copy, x + static_cast<std::size_t>(step_.logits[i]) * width, nullptr, 0, out, width);
      break;
    }
    case Node::Kind::rope: {
      const Rope& rope = program_.ropes[n.rope];
      const float* tables = at.ropes + plan_.rope_floats_[n.rope] * step_.rows;
      const auto rotate = rope.style == RopeStyle::half ? ops_.rope_half : ops_.rope_pairs;
      const float* x = input(n.a);
      for (std::size_t i = from; i < to; ++i, x += width, out += width) {
        const std::size_t row = selected ? static_cast<std::size_t>(step_.logits[i]) : i;
        rotate(x, tables + row * rope.floats(), n.heads, n.head_dim, rope.freqs.size(), out);
      }
      break;
    }
    default: break;
  }
}

}  // namespace llamay
