#include "sampling/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "dispatch.hpp"
#include "sampling/chain/table.hpp"
#include "sampling/options.hpp"
#include "sampling/philox.hpp"
#include "threads/float_environment.hpp"

LLAMAY_DECLARE_TABLES(llamay::SamplingTable, sampling);

namespace llamay {
namespace {

constexpr Tables<SamplingTable> tables = LLAMAY_TABLES(sampling);
constexpr double kNothing = -std::numeric_limits<double>::infinity();

/// Adds the log-probabilities of the likeliest remaining candidates.
void rank(Candidates& candidates, std::size_t top, LogProbs& out) {
  const double log_total = std::log(candidates.total()), factor = candidates.factor();
  const double largest = static_cast<double>(candidates.largest());
  for (const uint32_t i : candidates.rank(top))
    out.top.emplace_back(candidates.token(i),
                         factor * (static_cast<double>(candidates.value(i)) - largest) - log_total);
}

}  // namespace

Sampler::Sampler(SamplerOptions options) : mu(2 * options.mirostat_tau), options_(std::move(options)) {
  const SamplerOptions& o = options_;
  check(o);
  if (!o.logit_bias.empty()) stages_.push_back(std::make_unique<LogitBias>(o.logit_bias));
  if (o.mirostat) {
    if (o.temperature != 1) stages_.push_back(std::make_unique<Temperature>(o.temperature, 0.0, 1.0));
    return;
  }
  const auto has = [&o](const char* name, auto end) {
    return std::find(o.samplers.begin(), end, name) != end;
  };
  const auto cooled = std::find(o.samplers.begin(), o.samplers.end(), "temperature");
  // These two stages may cut the likeliest token; the other cuts never do, so before a temperature of 0 they
  // change nothing.
  const bool eccentric =
      (has("typ_p", cooled) && o.typical_p < 1) || (has("xtc", cooled) && o.xtc_probability > 0);
  greedy_ = o.temperature == 0 && o.dynatemp_range == 0 && cooled != o.samplers.end() && !eccentric;
  for (const std::string& name : o.samplers) {
    if (greedy_ && name != "penalties" && name != "dry") {
      if (name == "temperature") break;
      continue;
    }
    if (auto stage = make_stage(name, o)) stages_.push_back(std::move(stage));
  }
}

uint32_t Sampler::choose(Candidates& candidates, const Choice& choice, double u) {
  if (candidates.largest() == -std::numeric_limits<float>::infinity())
    throw std::invalid_argument("no token can be chosen: the mask, the biases and the logits exclude all " +
                                std::to_string(choice.n));
  if (greedy_) return candidates.likeliest();
  if (!options_.mirostat) return candidates.draw(u).token;
  const Mirostat mirostat{static_cast<int>(options_.mirostat), options_.mirostat_tau, options_.mirostat_eta};
  const Mirostat::Step step = mirostat.step(candidates, mu, u);
  mu = step.mu;
  return step.drawn.token;
}

uint32_t Sampler::sample(const Choice& choice, LogProbs* scores, std::size_t top) {
  const FloatEnvironment environment;
  thread_local Candidates candidates;
  const auto [chance, u] = uniforms(options_.seed, options_.sequence, choice.position);
  const StageInput input{choice.past, choice.past_n, chance};
  candidates.begin(tables[active_isa()], choice.logits, choice.mask, choice.n);
  for (const auto& stage : stages_) stage->apply(candidates, input);
  const uint32_t token = choose(candidates, choice, u);
  if (scores) {
    if (greedy_) candidates.keep_likeliest(1);
    const double log_total = std::log(candidates.total());
    scores->token = candidates.factor() * (static_cast<double>(candidates.logit_of(token)) -
                                           static_cast<double>(candidates.largest())) -
                    log_total;
    rank(candidates, top, *scores);
  }
  return token;
}

LogProbs log_probs(const float* logits, std::size_t n, uint32_t token, std::size_t top) {
  const FloatEnvironment environment;
  thread_local Candidates candidates;
  candidates.begin(tables[active_isa()], logits, nullptr, n);
  const double largest = static_cast<double>(candidates.largest());
  if (largest == kNothing) throw std::invalid_argument("every logit is -infinity");
  LogProbs out{static_cast<double>(logits[token]) - largest - std::log(candidates.total()), {}};
  rank(candidates, top, out);
  return out;
}

}  // namespace llamay
