#include "cpu/prepare/preparation.hpp"

#include <algorithm>

#include "cpu/prepare/tables.hpp"

namespace llamay {

CpuProgram Preparation::run() {
  for (const Node& n : program_.nodes) {
    Prepared p{.work = reinterpret_cast<const CpuWork*>(n.primitive),
               .record = n.record,
               .ins = n.ins,
               .outs = n.outs};
    p.data = n.config;
    if (p.work->prepare) p.work->prepare(*this, n, p);
    cpu_.nodes.push_back(std::move(p));
  }
  return std::move(cpu_);
}

const float* Preparation::vector(int weight) {
  const PackedMatrix& w = matrix(weight);
  float* out = floats(w.cols);
  const int32_t row = 0;
  matmul_tables[Isa::portable].dequantize_rows(w, &row, 1, out);
  return out;
}

float* Preparation::floats(std::size_t n) {
  cpu_.vectors.push_back(std::make_unique<float[]>(n));
  return cpu_.vectors.back().get();
}

std::size_t Preparation::rope(const Rope& rope) {
  const auto found = std::find(cpu_.ropes.begin(), cpu_.ropes.end(), rope);
  const auto index = static_cast<std::size_t>(found - cpu_.ropes.begin());
  if (found == cpu_.ropes.end()) cpu_.ropes.push_back(rope);
  return index;
}

}  // namespace llamay
