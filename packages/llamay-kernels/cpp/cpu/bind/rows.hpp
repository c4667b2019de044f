#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <vector>

#include "cpu/run/plan.hpp"

namespace llamay {

using Matrix = nanobind::ndarray<float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

/// A plan, and references that keep its weights alive.
struct OwnedPlan {
  std::vector<nanobind::object> weights;
  std::optional<Plan> plan;
};

/// Binds Plan.run_rows, Plan.begin_rows, BegunRows and Brake.
void bind_rows(nanobind::module_& m, nanobind::class_<OwnedPlan>& plan);

}  // namespace llamay
