#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cpu/memory.hpp"
#include "cpu/work.hpp"
#include "ops/rope_table.hpp"

namespace llamay {

/// A program made ready for the CPU.
struct CpuProgram {
  std::vector<Prepared> nodes;
  std::vector<Rope> ropes;  // that differ
  MemoryNeeds memory;
  std::vector<std::unique_ptr<float[]>> vectors;  // weights of one row
  std::size_t weight_bytes = 0;                   // that a row reads
};

/// What a work's `prepare` asks and tells.
class Preparation {
 public:
  Preparation(const Program& program, const std::vector<const PackedMatrix*>& weights)
      : program_(program), weights_(weights) {}
  CpuProgram run();

  const Program& program() const { return program_; }
  std::size_t width(int v) const { return program_.widths[static_cast<std::size_t>(v)]; }
  const PackedMatrix& matrix(int weight) const { return *weights_[static_cast<std::size_t>(weight)]; }
  /// A weight of one row as plain floats, which live as long as the plan.
  const float* vector(int weight);
  /// Floats that live as long as the plan, zeros at first.
  float* floats(std::size_t n);
  /// A matrix that every row reads whole, or `parts` of its `whole`.
  void reads(const PackedMatrix& m, std::size_t parts = 1, std::size_t whole = 1) {
    cpu_.weight_bytes += m.groups * m.group_bytes / whole * parts;
  }
  /// The number of a rotation's table.
  std::size_t rope(const Rope& rope);
  MemoryNeeds& memory() { return cpu_.memory; }

 private:
  const Program& program_;
  const std::vector<const PackedMatrix*>& weights_;
  CpuProgram cpu_;
};

}  // namespace llamay
