#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <vector>

#include "cpu/plan.hpp"

namespace llamay {

using Matrix = nanobind::ndarray<float, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

/// A plan and what keeps its weights alive.
struct OwnedPlan {
  std::vector<nanobind::object> weights;
  std::optional<Plan> plan;
};

/// Plan.run_rows, Plan.begin_rows, Running.
void bind_rows(nanobind::module_& m, nanobind::class_<OwnedPlan>& plan);

}  // namespace llamay
