#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <vector>

#include "cpu/bind/view.hpp"
#include "cpu/run/plan.hpp"
#include "sampling/batch.hpp"

namespace llamay {

/// The rows of a step, collected text by text, with references to the Python objects that they point into.
class StepRows {
 public:
  /// texts: tuples (lease or None, tokens, position of the first token, how many of the last tokens want an
  /// output[, inputs]). Raises ValueError and TypeError naming the text.
  void take(nanobind::handle texts, const Plan& plan);

  Step step(float* out) const;
  std::size_t wanted() const { return wanted_.size(); }

  /// Turns the rows into those of the next step, with the tokens that were chosen. Returns false, and changes
  /// nothing, unless each text has one row, one chosen token that is no end, a reserved position for that
  /// token and, where there are recurrent states, a listed state after it.
  bool follow(const std::vector<BatchRow>& work, const std::vector<int64_t>& ends, const float* out,
              std::size_t width);

 private:
  using Floats = nanobind::ndarray<const float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

  void add(nanobind::handle text, const Plan& plan);
  void add_inputs(nanobind::handle inputs, std::size_t begin, const Plan& plan);
  void add_vectors(nanobind::handle vectors, std::size_t begin, const Plan& plan);
  void add_positions(nanobind::handle positions, std::size_t begin);
  void add_types(nanobind::handle types, std::size_t begin);
  /// Gives every row positions on `axes` axes; the one position of a row is repeated on every axis.
  void widen(std::size_t axes);

  std::vector<int32_t> tokens_, positions_, wanted_, types_;
  std::size_t axes_ = 1;
  std::vector<const float*> vectors_;
  std::vector<uint32_t> counts_;
  std::vector<HeldView> held_;
  std::vector<const llamay_kv_view*> views_;
  std::vector<llamay_kv_view> next_views_;  // the views as they are once the rows have been computed
  std::vector<Floats> input_arrays_;
};

}  // namespace llamay
