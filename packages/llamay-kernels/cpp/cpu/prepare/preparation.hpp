#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "cpu/prepare/leases.hpp"
#include "cpu/prepare/work.hpp"
#include "ops/rows/rope_table.hpp"

namespace llamay {

/// A program prepared for the CPU.
struct CpuProgram {
  std::vector<Prepared> nodes;
  std::vector<Rope> ropes;  // the distinct rotations
  LeaseNeeds lease_needs;
  std::vector<std::unique_ptr<float[]>> vectors;  // weights of one row, widened to float32
  std::size_t weight_bytes = 0;                   // bytes of weights that one row reads
};

/// The interface of CpuWork::prepare to the plan that is being prepared.
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
  /// Counts a matrix among the weights that every row reads: all of it, or `parts` of `whole` equal parts.
  void reads(const PackedMatrix& m, std::size_t parts = 1, std::size_t whole = 1) {
    cpu_.weight_bytes += m.groups * m.group_bytes / whole * parts;
  }
  /// The index of a rotation's table; equal rotations share one.
  std::size_t rope(const Rope& rope);
  LeaseNeeds& lease_needs() { return cpu_.lease_needs; }

 private:
  const Program& program_;
  const std::vector<const PackedMatrix*>& weights_;
  CpuProgram cpu_;
};

}  // namespace llamay
