#include "plan/run.hpp"

namespace llamay {

float* Run::ropes(std::size_t rope, const Own& own) const {
  return ropes_ + plan_.rope_floats_[rope] * step_.rows + own.copy / sizeof(float);
}

void Run::fill_ropes(std::size_t from, std::size_t to, const Own& own) const {
  // Once for all layers, and for all operations that rotate alike.
  for (std::size_t r = 0; r < program_.ropes.size(); ++r) {
    const Rope& rope = program_.ropes[r];
    float* tables = ropes(r, own);
    for (std::size_t row = from; row < to; ++row)
      rope.fill(step_.positions[row], tables + row * rope.floats());
  }
}

void Run::whole_rows(const Stage& stage, std::size_t from, std::size_t to, const Own& own) {
  for (const RowStep& step : stage.rows) {
    const Node& n = program_.nodes[static_cast<std::size_t>(step.node >= 0 ? step.node : stage.heavy)];
    if (step.node >= 0)
      row_node(n, from, to, own);
    else
      quantize(step.activation, from, to, own);
    mark_record(own.thread, n.record);
  }
}

void Run::quantize(int index, std::size_t from, std::size_t to, const Own& own) const {
  const Activation& a = schedule_.activations[static_cast<std::size_t>(index)];
  matmul_.quantize_rows(a.kind, value(a.value, own) + from * a.cols, a.cols, to - from, a.cols,
                        activation(index, own) + from * a.row_bytes);
}

void Run::row_node(const Node& n, std::size_t from, std::size_t to, const Own& own) const {
  const std::size_t width = program_.widths[static_cast<std::size_t>(n.out)], count = to - from;
  float* out = value(n.out, own) + from * width;
  const auto input = [&](int v) { return value(v, own) + from * width; };
  const bool selected = program_.selected[static_cast<std::size_t>(n.out)];
  switch (n.kind) {
    case Node::Kind::embed:
      matmul_.dequantize_rows(*n.table, (n.by_position ? step_.positions : step_.tokens) + from, count, out);
      break;
    case Node::Kind::elementwise:
      ops_.elementwise(n.op, input(n.a), n.b < 0 ? nullptr : input(n.b), n.by, out, count * width);
      break;
    case Node::Kind::rms_norm:
      ops_.rms_norm(input(n.a), n.norm, count * n.groups, n.width, n.eps, out);
      break;
    case Node::Kind::layer_norm:
      ops_.layer_norm(input(n.a), n.norm, n.norm_bias, count, width, n.eps, out);
      break;
    case Node::Kind::select: {
      const float* x = value(n.a, own);
      for (std::size_t i = from; i < to; ++i, out += width)
        ops_.elementwise(Elementwise::copy, x + static_cast<std::size_t>(step_.logits[i]) * width, nullptr, 0,
                         out, width);
      break;
    }
    case Node::Kind::rope: {
      const Rope& rope = program_.ropes[n.rope];
      const float* tables = ropes(n.rope, own);
      const auto rotate = rope.style == RopeStyle::half ? ops_.rope_half : ops_.rope_pairs;
      const float* x = input(n.a);
      for (std::size_t i = from; i < to; ++i, x += width, out += width) {
        const std::size_t row = selected ? static_cast<std::size_t>(step_.logits[i]) : i;
        rotate(x, tables + row * rope.floats(), n.heads, n.head_dim, rope.freqs.size(), out);
      }
      break;
    }
    default:
      break;
  }
}

}  // namespace llamay
