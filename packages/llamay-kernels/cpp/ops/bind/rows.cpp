#include "ops/bind/bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>

#include "dispatch.hpp"
#include "ops/bind/arrays.hpp"
#include "ops/rows/affine.hpp"
#include "ops/rows/rope_table.hpp"
#include "ops/rows/table.hpp"
#include "ops/rows/unary.hpp"
#include "threads/float_environment.hpp"

LLAMAY_DECLARE_TABLES(llamay::OpsTable, ops);

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using MaybeFloats = std::optional<Floats>;

constexpr Tables<OpsTable> tables = LLAMAY_TABLES(ops);

std::optional<UnaryKind> kind_of(const std::string& name) {
  const auto* found = std::find(std::begin(kUnaryNames), std::end(kUnaryNames), name);
  if (found == std::end(kUnaryNames)) return std::nullopt;
  return static_cast<UnaryKind>(found - std::begin(kUnaryNames));
}

nb::ndarray<nb::numpy, float> elementary(const std::string& name, Floats x, MaybeFloats by) {
  const std::size_t n = x.shape(0);
  expect(!by || by->shape(0) == n, "x and by have different lengths");
  auto out = make_array<float>({n});
  const UnaryTable& table = unary_tables[active_isa()];
  const FloatEnvironment environment;
  if (const auto kind = kind_of(name)) {
    if (by)
      table.apply_mul(*kind, x.data(), by->data(), out.data(), n);
    else
      table.apply(*kind, x.data(), out.data(), n);
    return out;
  }
  expect((name == "erf" || name == "log1p") && !by, "there are erf, log1p and the kinds of unary");
  (name == "erf" ? table.erf : table.log1p)(x.data(), out.data(), n);
  return out;
}

nb::ndarray<nb::numpy, float> affine(Floats x, MaybeFloats w, MaybeFloats b) {
  const std::size_t width = x.shape(0);
  const auto part_values = [&](const MaybeFloats& p) -> PartValues {
    if (!p) return {nullptr, 0};
    expect(p->shape(0) != 0 && width % p->shape(0) == 0, "a vector's length does not divide the row's");
    return {p->data(), p->shape(0)};
  };
  auto out = make_array<float>({width});
  const FloatEnvironment environment;
  affine_tables[active_isa()].affine(x.data(), part_values(w), part_values(b), width, out.data());
  return out;
}

nb::ndarray<nb::numpy, float> normalise(const std::string& kind, FloatRows x, float eps, MaybeFloats w,
                                        MaybeFloats b) {
  const std::size_t rows = x.shape(0), width = x.shape(1);
  expect(kind == "rms" || kind == "layer", "there are rms and layer");
  expect((!w || w->shape(0) == width) && (!b || (b->shape(0) == width && kind == "layer")),
         "a vector is not as long as a row, or rms has a bias");
  auto out = make_array<float>({rows, width});
  const float *weight = w ? w->data() : nullptr, *bias = b ? b->data() : nullptr;
  const OpsTable& table = tables[active_isa()];
  const FloatEnvironment environment;
  if (kind == "rms")
    table.rms_norm(x.data(), weight, rows, width, eps, out.data());
  else
    table.layer_norm(x.data(), weight, bias, rows, width, eps, out.data());
  return out;
}

nb::ndarray<nb::numpy, double> sines(Array<double, 1> x) {
  auto out = make_array<double>({x.shape(0), 2});
  const FloatEnvironment environment;
  for (std::size_t i = 0; i < x.shape(0); ++i) {
    const SinCos at = sincos(x.data()[i]);
    out.data()[2 * i] = at.sin;
    out.data()[2 * i + 1] = at.cos;
  }
  return out;
}

}  // namespace
}  // namespace llamay

void bind_ops(nb::module_& m) {
  m.def(
      "compiled_for", [] { return llamay::tables[llamay::active_isa()].compiled_for; },
      "The kernel set in use, as the compiler of its operations knew it.");
  m.def("elementary", &llamay::elementary, "name"_a, "x"_a, "by"_a = nb::none(),
        "A function of float32 values, as the kernel set in use computes it: a kind of the operation unary, "
        "or erf or log1p, of which some kinds consist. With `by`, a kind's result times it.");
  m.def("affine", &llamay::affine, "x"_a, "w"_a = nb::none(), "b"_a = nb::none(),
        "x * w + b of one float32 row; a vector of n values has one for each of n equal parts of the row.");
  m.def("normalise", &llamay::normalise, "kind"_a, "x"_a, "eps"_a, "w"_a = nb::none(), "b"_a = nb::none(),
        "Rows of float32 values, normalised each by itself: kind rms or layer.");
  m.def("sincos", &llamay::sines, "x"_a,
        "Sine and cosine of float64 angles up to 2^31, as the rotations compute them: (n, 2).");
}
