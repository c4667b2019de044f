#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "ops/bind/arrays.hpp"
#include "ops/bind/bindings.hpp"
#include "ops/experts/combine.hpp"
#include "ops/experts/route.hpp"
#include "threads/float_environment.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Out = nb::ndarray<nb::numpy, float>;

std::tuple<Out, Out> route(FloatRows logits, const std::string& kind, std::size_t k,
                           std::optional<Floats> bias, std::size_t groups, std::size_t groups_used, bool norm,
                           float scale) {
  const std::size_t rows = logits.shape(0), experts = logits.shape(1);
  const auto* found = std::find(std::begin(kRouteNames), std::end(kRouteNames), kind);
  expect(found != std::end(kRouteNames), "there are softmax, sigmoid, softmax_chosen and sqrt_softplus");
  expect(experts <= kMaxExperts && groups >= 1 && experts % groups == 0 && groups_used >= 1 &&
             groups_used <= groups && k >= 1 && k <= groups_used * (experts / groups),
         "so many cannot be chosen");
  expect(!bias || bias->shape(0) == experts, "bias is not (experts,)");
  const Route r{static_cast<RouteKind>(found - std::begin(kRouteNames)),
                experts,
                k,
                groups,
                groups_used,
                norm,
                scale,
                bias ? bias->data() : nullptr};
  auto ids = make_array<float>({rows, k}), weights = make_array<float>({rows, k});
  const FloatEnvironment environment;
  for (std::size_t i = 0; i < rows; ++i)
    route_tables[active_isa()].row(r, logits.data() + i * experts, ids.data() + i * k,
                                   weights.data() + i * k);
  return {ids, weights};
}

Out combine(Floats weights, FloatRows y, const std::vector<std::size_t>& cuts) {
  const std::size_t n = y.shape(0), width = y.shape(1);
  expect(n >= 1 && weights.shape(0) == n, "weights is not one for each row");
  std::vector<const float*> rows;
  for (std::size_t j = 0; j < n; ++j) rows.push_back(y.data() + j * width);
  auto out = make_array<float>({width});
  const FloatEnvironment environment;
  std::size_t from = 0;
  const auto part = [&](std::size_t to) {
    expect(from <= to && to <= width, "cuts do not increase up to the width");
    combine_tables[active_isa()].combine(weights.data(), rows.data(), n, from, to, out.data());
    from = to;
  };
  for (const std::size_t cut : cuts) part(cut);
  part(width);
  return out;
}

}  // namespace
}  // namespace llamay

void bind_experts(nb::module_& m) {
  m.def("route", &llamay::route, "logits"_a, "kind"_a, "k"_a, "bias"_a = nb::none(), "groups"_a = 1,
        "groups_used"_a = 1, "norm"_a = false, "scale"_a = 1.0f,
        "The ids, as float32, and weights of the k experts that each row of logits (n, experts) takes: (n, "
        "k) each.");
  m.def("combine", &llamay::combine, "weights"_a, "y"_a, "cuts"_a = std::vector<std::size_t>{},
        "The float32 rows y (n, width), weighed and added up in order.");
}
