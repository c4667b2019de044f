#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "cpu/bind_view.hpp"
#include "cpu/plan.hpp"
#include "sampling/batch.hpp"

namespace llamay {

/// The rows of a step as those of each text, and what keeps alive what they point at.
class Rows {
 public:
  /// texts: tuples (lease or None, tokens, position of the first, how many of the last want an output[,
  /// inputs]). Raises ValueError and TypeError naming the text.
  void take(nanobind::handle texts, const Plan& plan);

  Step step(float* out) const;
  std::size_t wanted() const { return wanted_.size(); }

  /// Makes them those of the step after, with the tokens that were chosen. False, and they stay, unless each
  /// text has one row, one token that is no end, and a position reserved for it, and the state that it leaves
  /// where there are any.
  bool follow(const std::vector<BatchRow>& work, const std::vector<int64_t>& ends, const float* out,
              std::size_t width);

 private:
  using Floats = nanobind::ndarray<const float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

  void add(nanobind::handle text, const Plan& plan);
  void add_inputs(nanobind::handle inputs, std::size_t begin, const Plan& plan);
  void add_vectors(nanobind::handle vectors, std::size_t begin, const Plan& plan);
  void add_positions(nanobind::handle positions, std::size_t begin);
  void add_types(nanobind::handle types, std::size_t begin);
  /// Gives every row so many positions; those that have one have it on every axis.
  void widen(std::size_t axes);

  std::vector<int32_t> tokens_, positions_, wanted_, types_;
  std::size_t axes_ = 1;
  std::vector<const float*> vectors_;
  std::vector<uint32_t> counts_;
  std::vector<HeldView> held_;
  std::vector<const llamay_kv_view*> views_;
  std::vector<llamay_kv_view> later_;  // as they are once rows have been computed
  std::vector<Floats> kept_;
};

}  // namespace llamay
