#include "sampling/bind.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>

#include "sampling/philox.hpp"
#include "sampling/sampler.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using History = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Mask = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check_logits(const Logits& logits) {
  if (logits.shape(0) < 1 || logits.shape(0) > 0x7fffffff)
    throw nb::value_error("logits must hold 1 to 2^31 values");
}

void make(Sampler* self, uint64_t seed, uint64_t sequence, double temperature, int64_t top_k, double top_p,
          double min_p, double repeat_penalty, int64_t repeat_last_n, double presence_penalty,
          double frequency_penalty, const std::optional<std::map<int64_t, double>>& logit_bias) {
  SamplerOptions o{seed,          sequence,         temperature,       top_k, top_p, min_p, repeat_penalty,
                   repeat_last_n, presence_penalty, frequency_penalty, {}};
  if (logit_bias)
    for (const auto& [token, bias] : *logit_bias) o.logit_bias.emplace_back(token, static_cast<float>(bias));
  new (self) Sampler(std::move(o));
}

uint32_t sample(const Sampler& self, Logits logits, uint64_t position, const std::optional<History>& history,
                const std::optional<Mask>& mask) {
  check_logits(logits);
  const std::size_t n = logits.shape(0);
  if (mask && mask->shape(0) < (n + 31) / 32)
    throw nb::value_error(("the mask has " + std::to_string(mask->shape(0)) + " words but " +
                           std::to_string(n) + " tokens need " + std::to_string((n + 31) / 32))
                              .c_str());
  const Past past{history ? history->data() : nullptr, history ? history->shape(0) : 0};
  nb::gil_scoped_release nogil;
  return self.sample(logits.data(), n, position, past, mask ? mask->data() : nullptr);
}

nb::typed<nb::dict, nb::str, nb::any> state(const Sampler& self) {
  const SamplerOptions& o = self.options();
  nb::dict bias;
  for (const auto& [token, value] : o.logit_bias) bias[nb::int_(token)] = static_cast<double>(value);
  nb::dict out;
  out["seed"] = o.seed;
  out["sequence"] = o.sequence;
  out["temperature"] = o.temperature;
  out["top_k"] = o.top_k;
  out["top_p"] = o.top_p;
  out["min_p"] = o.min_p;
  out["repeat_penalty"] = o.repeat_penalty;
  out["repeat_last_n"] = o.repeat_last_n;
  out["presence_penalty"] = o.presence_penalty;
  out["frequency_penalty"] = o.frequency_penalty;
  out["logit_bias"] = bias;
  return out;
}

std::pair<double, std::vector<std::pair<uint32_t, double>>> logprobs(Logits logits, int64_t token,
                                                                     int64_t top) {
  check_logits(logits);
  const auto n = static_cast<int64_t>(logits.shape(0));
  if (token < 0 || token >= n)
    throw nb::value_error(
        ("token " + std::to_string(token) + " is not in a vocabulary of " + std::to_string(n)).c_str());
  if (top < 0) throw nb::value_error("top must not be negative");
  nb::gil_scoped_release nogil;
  LogProbs p =
      log_probs(logits.data(), logits.shape(0), static_cast<uint32_t>(token), static_cast<std::size_t>(top));
  return {p.token, std::move(p.top)};
}

}  // namespace
}  // namespace llamay

void bind_sampling(nb::module_& m) {
  using namespace llamay;
  nb::class_<Sampler>(m, "Sampler",
                      "Chooses tokens from logits, in llama.cpp's order: bias, penalties, top-k, top-p, "
                      "min-p, temperature.\n\n"
                      "Random numbers are Philox 4x32-10, keyed by seed and counted by (sequence, position), "
                      "so a choice is a function of\n"
                      "these options and of sample's arguments alone: nothing advances, and asking again "
                      "gives the same token.\n"
                      "temperature 0 takes the likeliest token, among equals the lowest id. top_k 0, top_p "
                      "1, min_p 0, repeat_penalty 1,\n"
                      "the others 0 switch a stage off. logit_bias: token -> what to add; -inf excludes it.\n"
                      "Raises ValueError naming the option.")
      .def("__init__", &make, "seed"_a = 0, "sequence"_a = 0, nb::kw_only(), "temperature"_a = 0.8,
           "top_k"_a = 40, "top_p"_a = 0.95, "min_p"_a = 0.05, "repeat_penalty"_a = 1.0,
           "repeat_last_n"_a = 64, "presence_penalty"_a = 0.0, "frequency_penalty"_a = 0.0,
           "logit_bias"_a = nb::none())
      .def("sample", &sample, "logits"_a.noconvert(), "position"_a, "history"_a.noconvert() = nb::none(),
           "mask"_a.noconvert() = nb::none(),
           "The token for `position` of the sequence.\n\n"
           "logits: float32 (V,). history: int32, the tokens before it, for the penalties. mask: uint32 "
           "(ceil(V / 32),), bit i % 32\n"
           "of word i // 32 allows token i. Releases the GIL. Raises ValueError for a NaN, or if nothing can "
           "be chosen.")
      .def("state", &state, "The options as plain values: Sampler(**state) chooses as this one does.")
      .def("__getstate__", &state)
      .def("__setstate__", [](nb::handle self, const nb::typed<nb::dict, nb::str, nb::any>& state) {
        self.attr("__init__")(**state);
      });
  m.def("logprobs", &logprobs, "logits"_a.noconvert(), "token"_a, "top"_a = 0,
        "Natural logarithms of the probabilities that float32 (V,) logits mean, before any sampling option: "
        "that of\n"
        "`token`, and (id, logarithm) of the `top` likeliest, likeliest first.");
  m.def("philox4x32", &philox4x32, "counter"_a, "key"_a,
        "Philox 4x32-10: four random words of four counter and two key words.");
}
