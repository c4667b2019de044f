#include "sampling/bind/bindings.hpp"

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

#include "sampling/batch.hpp"
#include "sampling/philox.hpp"
#include "sampling/sampler.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace llamay {
namespace {

using Logits = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scored = std::vector<std::pair<uint32_t, double>>;

void check_logits(std::size_t n) {
  if (n < 1 || n > 0x7fffffff) throw nb::value_error("logits must hold 1 to 2^31 values");
}

const SamplerOptions kDefault;

void check_mu(double mu) {
  if (!(mu >= -1e12 && mu <= 1e12)) throw nb::value_error("mu must be a number from -1e12 to 1e12");
}

void make(Sampler* self, uint64_t seed, uint64_t sequence, double temperature, double dynatemp_range,
          double dynatemp_exponent, int64_t top_k, double top_p, double min_p, double typical_p,
          double top_n_sigma, double xtc_probability, double xtc_threshold, double repeat_penalty,
          int64_t repeat_last_n, double presence_penalty, double frequency_penalty, double dry_multiplier,
          double dry_base, int64_t dry_allowed_length, int64_t dry_penalty_last_n,
          std::vector<std::vector<int32_t>> dry_sequence_breakers, int64_t mirostat, double mirostat_tau,
          double mirostat_eta, std::optional<std::vector<std::string>> samplers,
          const std::optional<std::map<int64_t, double>>& logit_bias, std::optional<double> mu) {
  SamplerOptions o;
  o.seed = seed;
  o.sequence = sequence;
  o.temperature = temperature;
  o.dynatemp_range = dynatemp_range;
  o.dynatemp_exponent = dynatemp_exponent;
  o.top_k = top_k;
  o.top_p = top_p;
  o.min_p = min_p;
  o.typical_p = typical_p;
  o.top_n_sigma = top_n_sigma;
  o.xtc_probability = xtc_probability;
  o.xtc_threshold = xtc_threshold;
  o.repeat_penalty = repeat_penalty;
  o.repeat_last_n = repeat_last_n;
  o.presence_penalty = presence_penalty;
  o.frequency_penalty = frequency_penalty;
  o.dry_multiplier = dry_multiplier;
  o.dry_base = dry_base;
  o.dry_allowed_length = dry_allowed_length;
  o.dry_penalty_last_n = dry_penalty_last_n;
  o.dry_sequence_breakers = std::move(dry_sequence_breakers);
  o.mirostat = mirostat;
  o.mirostat_tau = mirostat_tau;
  o.mirostat_eta = mirostat_eta;
  if (samplers) o.samplers = std::move(*samplers);
  if (logit_bias)
    for (const auto& [token, bias] : *logit_bias) o.logit_bias.emplace_back(token, static_cast<float>(bias));
  if (mu) check_mu(*mu);
  new (self) Sampler(std::move(o));
  if (mu) self->mu = *mu;
}

nb::typed<nb::dict, nb::str, nb::any> state(const Sampler& self) {
  const SamplerOptions& o = self.options();
  nb::dict bias;
  for (const auto& [token, value] : o.logit_bias) bias[nb::int_(token)] = static_cast<double>(value);
  nb::dict out;
  out["seed"] = o.seed;
  out["sequence"] = o.sequence;
  out["temperature"] = o.temperature;
  out["dynatemp_range"] = o.dynatemp_range;
  out["dynatemp_exponent"] = o.dynatemp_exponent;
  out["top_k"] = o.top_k;
  out["top_p"] = o.top_p;
  out["min_p"] = o.min_p;
  out["typical_p"] = o.typical_p;
  out["top_n_sigma"] = o.top_n_sigma;
  out["xtc_probability"] = o.xtc_probability;
  out["xtc_threshold"] = o.xtc_threshold;
  out["repeat_penalty"] = o.repeat_penalty;
  out["repeat_last_n"] = o.repeat_last_n;
  out["presence_penalty"] = o.presence_penalty;
  out["frequency_penalty"] = o.frequency_penalty;
  out["dry_multiplier"] = o.dry_multiplier;
  out["dry_base"] = o.dry_base;
  out["dry_allowed_length"] = o.dry_allowed_length;
  out["dry_penalty_last_n"] = o.dry_penalty_last_n;
  out["dry_sequence_breakers"] = nb::cast(o.dry_sequence_breakers);
  out["mirostat"] = o.mirostat;
  out["mirostat_tau"] = o.mirostat_tau;
  out["mirostat_eta"] = o.mirostat_eta;
  out["samplers"] = nb::cast(o.samplers);
  out["logit_bias"] = bias;
  out["mu"] = self.mu;
  return out;
}

Choice choice(const float* logits, std::size_t n, uint64_t position, const std::optional<History>& history,
              const std::optional<Mask>& mask) {
  check_logits(n);
  if (mask && mask->shape(0) < (n + 31) / 32)
    throw nb::value_error(("the mask has " + std::to_string(mask->shape(0)) + " words but " +
                           std::to_string(n) + " tokens need " + std::to_string((n + 31) / 32))
                              .c_str());
  return {logits,
          n,
          position,
          history ? history->data() : nullptr,
          history ? history->shape(0) : 0,
          mask ? mask->data() : nullptr};
}

std::size_t check_top(int64_t top) {
  if (top < 0) throw nb::value_error("top must not be negative");
  return static_cast<std::size_t>(top);
}

uint32_t sample(Sampler& self, Logits logits, uint64_t position, const std::optional<History>& history,
                const std::optional<Mask>& mask) {
  const Choice c = choice(logits.data(), logits.shape(0), position, history, mask);
  nb::gil_scoped_release nogil;
  return self.sample(c);
}

std::tuple<uint32_t, double, Scored> sample_scored(Sampler& self, Logits logits, uint64_t position,
                                                   const std::optional<History>& history,
                                                   const std::optional<Mask>& mask, int64_t top) {
  const Choice c = choice(logits.data(), logits.shape(0), position, history, mask);
  const std::size_t count = check_top(top);
  nb::gil_scoped_release nogil;
  LogProbs p{};
  const uint32_t token = self.sample(c, &p, count);
  return {token, p.token, std::move(p.top)};
}

using Row = std::tuple<Sampler*, Logits, uint64_t, std::optional<History>, std::optional<Mask>>;

std::pair<std::vector<int64_t>, std::map<std::size_t, std::string>> sample_batch(
    const std::vector<Row>& rows, std::optional<Threads*> threads) {
  std::vector<BatchRow> work;
  work.reserve(rows.size());
  for (const auto& [sampler, logits, position, history, mask] : rows) {
    if (!sampler) throw nb::value_error("a row needs a sampler");
    work.push_back({sampler, choice(logits.data(), logits.shape(0), position, history, mask), -1, {}});
  }
  {
    nb::gil_scoped_release nogil;
    sample_rows(work, threads.value_or(nullptr));
  }
  return results(work);
}

std::pair<double, Scored> logprobs(Logits logits, int64_t token, int64_t top) {
  check_logits(logits.shape(0));
  const auto n = static_cast<int64_t>(logits.shape(0));
  if (token < 0 || token >= n)
    throw nb::value_error(
        ("token " + std::to_string(token) + " is not in a vocabulary of " + std::to_string(n)).c_str());
  const std::size_t count = check_top(top);
  nb::gil_scoped_release nogil;
  LogProbs p = log_probs(logits.data(), logits.shape(0), static_cast<uint32_t>(token), count);
  return {p.token, std::move(p.top)};
}

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  return philox4x32(counter, key);
}

}  // namespace

BatchRow batch_row(const Draw& draw, const float* logits, std::size_t rows, std::size_t width) {
  const auto& [sampler, row, position, history, mask] = draw;
  if (!sampler) throw nb::value_error("a draw needs a sampler");
  if (row >= rows)
    throw nb::value_error(
        ("a draw is from output " + std::to_string(row) + " but there are " + std::to_string(rows)).c_str());
  return {sampler, choice(logits + row * width, width, position, history, mask), -1, {}};
}

std::pair<std::vector<int64_t>, std::map<std::size_t, std::string>> results(
    const std::vector<BatchRow>& work) {
  std::vector<int64_t> tokens;
  std::map<std::size_t, std::string> errors;
  for (std::size_t i = 0; i < work.size(); ++i) {
    tokens.push_back(work[i].token);
    if (work[i].token < 0) errors[i] = work[i].error;
  }
  return {std::move(tokens), std::move(errors)};
}

}  // namespace llamay

void bind_sampling(nb::module_& m) {
  using namespace llamay;
  const SamplerOptions& d = kDefault;
  nb::class_<Sampler>(
      m, "Sampler",
      "Chooses tokens from logits with llama.cpp's options, meaning and order; docs/sampling.md has each.\n\n"
      "Random numbers are Philox 4x32-10, keyed by seed and counted by (sequence, position), so a choice is "
      "a function of\n"
      "these options and of sample's arguments alone: nothing advances, and asking again gives the same "
      "token. Only mirostat\nlearns from its choices; its state is `mu`. temperature 0 takes the likeliest "
      "token, among "
      "equals the lowest id.\n"
      "samplers: the stages in the order they are applied, None for penalties, dry, top_n_sigma, top_k, "
      "typ_p, top_p, min_p,\n"
      "xtc, temperature; mirostat 1 or 2 stands in place of all but the temperature. logit_bias: token -> "
      "bias to add;\n-inf excludes the token. dry_sequence_breakers: sequences of tokens. Raises ValueError "
      "naming the option.")
      .def("__init__", &make, "seed"_a = 0, "sequence"_a = 0, nb::kw_only(), "temperature"_a = d.temperature,
           "dynatemp_range"_a = d.dynatemp_range, "dynatemp_exponent"_a = d.dynatemp_exponent,
           "top_k"_a = d.top_k, "top_p"_a = d.top_p, "min_p"_a = d.min_p, "typical_p"_a = d.typical_p,
           "top_n_sigma"_a = d.top_n_sigma, "xtc_probability"_a = d.xtc_probability,
           "xtc_threshold"_a = d.xtc_threshold, "repeat_penalty"_a = d.repeat_penalty,
           "repeat_last_n"_a = d.repeat_last_n, "presence_penalty"_a = d.presence_penalty,
           "frequency_penalty"_a = d.frequency_penalty, "dry_multiplier"_a = d.dry_multiplier,
           "dry_base"_a = d.dry_base, "dry_allowed_length"_a = d.dry_allowed_length,
           "dry_penalty_last_n"_a = d.dry_penalty_last_n, "dry_sequence_breakers"_a = nb::make_tuple(),
           "mirostat"_a = d.mirostat, "mirostat_tau"_a = d.mirostat_tau, "mirostat_eta"_a = d.mirostat_eta,
           "samplers"_a = nb::none(), "logit_bias"_a = nb::none(), "mu"_a = nb::none())
      .def("sample", &sample, "logits"_a.noconvert(), "position"_a, "history"_a.noconvert() = nb::none(),
           "mask"_a.noconvert() = nb::none(),
           "The token for `position` of the sequence.\n\n"
           "logits: float32 (V,). history: int32, the tokens before it, for penalties and dry. mask: uint32 "
           "(ceil(V / 32),), bit\n"
           "i % 32 of word i // 32 allows token i. Releases the GIL. Raises ValueError for a NaN, or if "
           "nothing can be chosen.")
      .def("sample_scored", &sample_scored, "logits"_a.noconvert(), "position"_a,
           "history"_a.noconvert() = nb::none(), "mask"_a.noconvert() = nb::none(), "top"_a = 0,
           "As `sample`, with natural-log probabilities of the distribution that the token was drawn from, "
           "after all stages:\n"
           "(token, its own, (id, logarithm) of the `top` likeliest, likeliest first).")
      .def("state", &state, "All options and `mu` as plain values: Sampler(**state) makes the same choices.")
      .def_prop_rw(
          "mu", [](const Sampler& self) { return self.mu; },
          [](Sampler& self, double mu) {
            check_mu(mu);
            self.mu = mu;
          },
          "The state of mirostat: the bits of surprise to cut at. Begins at 2 tau.")
      .def("__getstate__", &state)
      .def("__setstate__", [](nb::handle self, const nb::typed<nb::dict, nb::str, nb::any>& state) {
        self.attr("__init__")(**state);
      });
  m.def(
      "sample_batch", &sample_batch, "rows"_a, "threads"_a = nb::none(),
      "One token for each row (sampler, logits, position, history, mask), arguments as of Sampler.sample, "
      "in one call\n"
      "without the GIL and with the help of threads where there are several. The same tokens as one by "
      "one.\n\n"
      "Returns the tokens, -1 where a row failed, and the error messages of those rows. A sampler may be in "
      "several rows\n"
      "unless it is a mirostat: that is a ValueError.");
  m.def("logprobs", &logprobs, "logits"_a.noconvert(), "token"_a, "top"_a = 0,
        "Natural logarithms of the probabilities of float32 (V,) logits, before any sampling option: of "
        "`token`, and (id, logarithm) of the `top` likeliest, likeliest first.");
  m.def("philox4x32", &philox, "counter"_a, "key"_a,
        "Philox 4x32-10: four random words of four counter and two key words.");
}
