#include "sampling/chain/stages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "sampling/chain/past.hpp"

namespace llamay {

void LogitBias::apply(Candidates& candidates, const StageInput&) const {
  candidates.edit();
  for (const auto& [token, bias] : bias_) {
    if (static_cast<uint64_t>(token) >= candidates.vocabulary())
      throw std::invalid_argument("logit_bias names token " + std::to_string(token) +
                                  " but the vocabulary has " + std::to_string(candidates.vocabulary()));
    if (float* logit = candidates.logit(static_cast<uint32_t>(token))) *logit += bias;
  }
}

void Penalties::apply(Candidates& candidates, const StageInput& input) const {
  const std::size_t n = window(input, last_);
  thread_local PerToken counts;
  counts.begin(candidates.vocabulary());
  for (std::size_t i = input.n - n; i < input.n; ++i) ++counts[checked_token(input.tokens[i], candidates)];
  candidates.edit();
  for (const uint32_t token : counts.touched()) {
    float* at = candidates.logit(token);
    if (!at) continue;
    float logit = *at;
    logit = logit <= 0.0f ? logit * repeat_ : logit / repeat_;
    *at = logit - (static_cast<float>(counts[token]) * frequency_ + presence_);
  }
}

void TopNSigma::apply(Candidates& candidates, const StageInput&) const {
  // A temperature scales both sides alike, so it does not matter here.
  const double threshold = static_cast<double>(candidates.largest()) - n_ * candidates.deviation();
  candidates.keep_from(
      static_cast<float>(std::max(threshold, static_cast<double>(std::numeric_limits<float>::lowest()))));
}

MinP::MinP(double p) : log_p_(std::log(p)) {}

void MinP::apply(Candidates& candidates, const StageInput&) const {
  candidates.keep_from(candidates.largest() + static_cast<float>(log_p_ / candidates.factor()));
}

void Xtc::apply(Candidates& candidates, const StageInput& input) const {
  if (input.chance < probability_) candidates.drop_likely(threshold_);
}

void Temperature::apply(Candidates& candidates, const StageInput&) const {
  double t = temperature_;
  if (range_ > 0) {
    const std::size_t alive = candidates.alive();
    if (alive < 2) return;
    const double low = std::max(0.0, t - range_), high = t + range_;
    const double share = std::clamp(candidates.entropy() / std::log(static_cast<double>(alive)), 0.0, 1.0);
    t = low + (high - low) * std::pow(share, exponent_);
  }
  if (t > 0)
    candidates.multiply(1.0 / t);
  else
    candidates.keep_likeliest(1);
}

}  // namespace llamay
