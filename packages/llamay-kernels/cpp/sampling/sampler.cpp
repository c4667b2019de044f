#include "sampling/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"
#include "sampling/philox.hpp"
#include "sampling/table.hpp"
#include "threads/float_environment.hpp"

LLAMAY_DECLARE_TABLES(llamay::SamplingTable, sampling);

namespace llamay {
namespace {

constexpr Tables<SamplingTable> tables = LLAMAY_TABLES(sampling);

void require(bool holds, const char* option, double value, const char* range) {
  if (holds) return;
  std::string number = std::to_string(value);
  throw std::invalid_argument(std::string(option) + " must be " + range + ", not " + number);
}

}  // namespace

Sampler::Sampler(SamplerOptions options) : options_(std::move(options)) {
  const SamplerOptions& o = options_;
  require(o.temperature >= 0 && o.temperature <= 1e6, "temperature", o.temperature, "0 to 1e6");
  require(o.top_p >= 0 && o.top_p <= 1, "top_p", o.top_p, "0 to 1");
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "0 to 1");
  require(o.repeat_penalty > 0 && o.repeat_penalty <= 1e6, "repeat_penalty", o.repeat_penalty,
          "more than 0, up to 1e6");
  require(std::abs(o.presence_penalty) <= 1e6, "presence_penalty", o.presence_penalty, "-1e6 to 1e6");
  require(std::abs(o.frequency_penalty) <= 1e6, "frequency_penalty", o.frequency_penalty, "-1e6 to 1e6");
  require(o.repeat_last_n >= -1, "repeat_last_n", static_cast<double>(o.repeat_last_n),
          "-1 (all), 0 (none) or more");
  for (const auto& [token, bias] : o.logit_bias) {
    require(token >= 0, "a token in logit_bias", static_cast<double>(token), "0 or more");
    require(bias <= 1e6f, "a bias in logit_bias", static_cast<double>(bias),
            "a number up to 1e6 (-inf excludes)");
  }

  // llama.cpp's order: edits, then cuts on the distribution as the model has it, and the temperature last.
  if (!o.logit_bias.empty()) stages_.push_back(std::make_unique<LogitBias>(o.logit_bias));
  if (o.repeat_last_n && (o.repeat_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0))
    stages_.push_back(std::make_unique<Penalties>(o.repeat_last_n, static_cast<float>(o.repeat_penalty),
                                                  static_cast<float>(o.frequency_penalty),
                                                  static_cast<float>(o.presence_penalty)));
  if (o.temperature == 0) return;  // cuts never lose the likeliest
  if (o.top_k > 0) stages_.push_back(std::make_unique<TopK>(static_cast<std::size_t>(o.top_k)));
  if (o.top_p < 1) stages_.push_back(std::make_unique<TopP>(o.top_p));
  if (o.min_p > 0) stages_.push_back(std::make_unique<MinP>(o.min_p));
}

uint32_t Sampler::sample(const float* logits, std::size_t n, uint64_t position, const Past& past,
                         const uint32_t* mask) const {
  const FloatEnvironment environment;
  thread_local Candidates candidates;
  candidates.begin(tables[active_isa()], logits, mask, n);
  for (std::size_t i = 0; i < stages_.size(); ++i) stages_[i]->apply(candidates, past);
  if (candidates.largest() == -std::numeric_limits<float>::infinity())
    throw std::invalid_argument("no token can be chosen: the mask, the biases and the logits exclude all " +
                                std::to_string(n));
  if (options_.temperature == 0) return candidates.likeliest();
  return candidates.draw(static_cast<float>(options_.temperature),
                         uniform(options_.seed, options_.sequence, position));
}

LogProbs log_probs(const float* logits, std::size_t n, uint32_t token, std::size_t top) {
  const FloatEnvironment environment;
  thread_local Candidates candidates;
  candidates.begin(tables[active_isa()], logits, nullptr, n);
  const double largest = static_cast<double>(candidates.largest());
  if (largest == -std::numeric_limits<double>::infinity())
    throw std::invalid_argument("every logit is -infinity");
  const double log_sum = std::log(candidates.total());
  const auto log_prob = [&](float logit) { return static_cast<double>(logit) - largest - log_sum; };
  LogProbs out{log_prob(logits[token]), {}};
  if (top) {
    candidates.keep_likeliest(std::min(top, n));
    for (std::size_t i = 0; i < candidates.size(); ++i)
      out.top.emplace_back(candidates.token(i), log_prob(logits[candidates.token(i)]));
    std::sort(out.top.begin(), out.top.end(), [](const auto& a, const auto& b) {
      return a.second != b.second ? a.second > b.second : a.first < b.first;
    });
  }
  return out;
}

}  // namespace llamay
