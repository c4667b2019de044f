#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "ops/bind/arrays.hpp"
#include "ops/bind/bindings.hpp"
#include "ops/recurrent/conv.hpp"
#include "ops/recurrent/scan.hpp"
#include "threads/float_environment.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Out = nb::ndarray<nb::numpy, float>;

std::tuple<Out, Out> conv(FloatRows x, FloatRows weight, std::optional<Floats> bias,
                          std::optional<FloatRows> carried, const std::vector<std::size_t>& cuts) {
  const std::size_t n = x.shape(0), channels = x.shape(1), taps = weight.shape(1);
  expect(weight.shape(0) == channels && taps > 0 && channels > 0, "weight is not (channels, taps)");
  expect(!bias || bias->shape(0) == channels, "bias is not (channels,)");
  expect(!carried || (carried->shape(0) == taps - 1 && carried->shape(1) == channels),
         "carried is not (taps - 1, channels)");
  std::vector<float> packed(channels * taps);
  pack_conv(weight.data(), channels, taps, packed.data());
  auto out = make_array<float>({n, channels}), state = make_array<float>({taps - 1, channels});
  const Conv c{taps, channels, packed.data(), bias ? bias->data() : nullptr};
  const ConvRows rows{x.data(), channels, carried ? carried->data() : nullptr, out.data(), channels};
  const FloatEnvironment environment;
  std::size_t from = 0;
  const auto part = [&](std::size_t to) {
    expect(from <= to && to <= channels, "cuts do not increase up to the number of channels");
    conv_tables[active_isa()].rows(c, rows, n, from, to);
    conv_state(c, rows, n, from, to, state.data());
    from = to;
  };
  for (const std::size_t cut : cuts) part(cut);
  part(channels);
  return {out, state};
}

std::tuple<Out, Out> scan(FloatRows r, FloatRows w, FloatRows k, FloatRows v, std::optional<FloatRows> a,
                          std::optional<FloatRows> b, std::optional<FloatRows> state,
                          const std::vector<std::size_t>& cuts, bool in_place) {
  const std::size_t n = r.shape(0), k_dim = r.shape(1), v_dim = v.shape(1);
  const auto is = [n](const FloatRows& x, std::size_t width) {
    return x.shape(0) == n && x.shape(1) == width;
  };
  expect(n > 0 && k_dim > 0 && is(k, k_dim) && is(v, v_dim) && (is(w, 1) || is(w, k_dim)),
         "r, w, k and v are not rows of one text and shape");
  expect(a.has_value() == b.has_value() && (!a || (is(*a, k_dim) && is(*b, k_dim))),
         "a and b are not both (rows, k_dim)");
  expect(!state || (state->shape(0) == v_dim && state->shape(1) == k_dim), "state is not (v_dim, k_dim)");
  auto out = make_array<float>({n, v_dim}), after = make_array<float>({v_dim, k_dim});
  const float* before = state ? state->data() : nullptr;
  if (in_place && before) {
    std::copy_n(before, v_dim * k_dim, after.data());
    before = after.data();
  }
  const auto rows = [](const FloatRows& x) { return ScanRows{x.data(), x.shape(1)}; };
  const ScanRows none{nullptr, 0};
  const Scan s{k_dim,
               v_dim,
               rows(r),
               rows(k),
               rows(v),
               rows(w),
               w.shape(1) == k_dim && k_dim > 1,
               a ? rows(*a) : none,
               b ? rows(*b) : none,
               before,
               after.data(),
               out.data(),
               v_dim};
  const FloatEnvironment environment;
  std::size_t from = 0;
  const auto part = [&](std::size_t to) {
    expect(from <= to && to <= v_dim, "cuts do not increase up to v_dim");
    scan_tables[active_isa()].rows(s, n, from, to);
    from = to;
  };
  for (const std::size_t cut : cuts) part(cut);
  part(v_dim);
  return {out, after};
}

}  // namespace
}  // namespace llamay

void bind_recurrent(nb::module_& m) {
  m.def("conv", &llamay::conv, "x"_a, "weight"_a, "bias"_a = nb::none(), "carried"_a = nb::none(),
        "cuts"_a = std::vector<std::size_t>{},
        "A causal depthwise convolution of float32 rows (n, channels) of one text by (channels, taps), and "
        "the inputs that are carried over after them, (taps - 1, channels). The channels are computed in "
        "parts that end at cuts.");
  m.def(
      "scan", &llamay::scan, "r"_a, "w"_a, "k"_a, "v"_a, "a"_a = nb::none(), "b"_a = nb::none(),
      "state"_a = nb::none(), "cuts"_a = std::vector<std::size_t>{}, "in_place"_a = false,
      "A scan of one head over float32 rows of one text: its outputs (n, v_dim) and its state (v_dim, k_dim) "
      "after them. The state's rows are computed in parts that end at cuts.");
}
