#include "ops/bind.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <string>

#include "dispatch.hpp"
#include "ops/rope_table.hpp"
#include "ops/table.hpp"
#include "threads/float_environment.hpp"

LLAMAY_DECLARE_TABLES(llamay::OpsTable, ops);

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Doubles = nb::ndarray<const double, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
nb::ndarray<nb::numpy, T> make_array(std::initializer_list<std::size_t> shape, std::size_t count) {
  T* data = new T[count];
  return nb::ndarray<nb::numpy, T>(data, shape,
                                   nb::capsule(data, [](void* p) noexcept { delete[] static_cast<T*>(p); }));
}

constexpr Tables<OpsTable> tables = LLAMAY_TABLES(ops);

nb::ndarray<nb::numpy, float> elementary(const std::string& name, Floats x) {
  if (name != "exp" && name != "tanh") throw nb::value_error("there are exp and tanh");
  auto out = make_array<float>({x.shape(0)}, x.shape(0));
  const FloatEnvironment environment;
  tables[active_isa()].elementwise(name == "exp" ? Elementwise::exp : Elementwise::tanh, x.data(), nullptr, 0,
                                   out.data(), x.shape(0));
  return out;
}

nb::ndarray<nb::numpy, double> sines(Doubles x) {
  auto out = make_array<double>({x.shape(0), 2}, 2 * x.shape(0));
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
  m.def("elementary", &llamay::elementary, "name"_a, "x"_a,
        "exp or tanh of float32 values, as the kernel set in use computes it.");
  m.def("sincos", &llamay::sines, "x"_a,
        "Sine and cosine of float64 angles up to 2^31, as the rotations compute them: (n, 2).");
}
