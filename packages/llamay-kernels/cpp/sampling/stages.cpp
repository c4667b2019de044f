#include "sampling/stages.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace llamay {

void LogitBias::apply(Candidates& candidates, const Past&) const {
  float* logits = candidates.all();
  for (const auto& [token, bias] : bias_) {
    if (static_cast<uint64_t>(token) >= candidates.vocabulary())
      throw std::invalid_argument("logit_bias names token " + std::to_string(token) +
                                  " but the vocabulary has " + std::to_string(candidates.vocabulary()));
    logits[token] += bias;
  }
}

void Penalties::apply(Candidates& candidates, const Past& past) const {
  const std::size_t n = last_ < 0 ? past.n : std::min(past.n, static_cast<std::size_t>(last_));
  thread_local std::vector<int32_t> recent;
  recent.assign(past.tokens + (past.n - n), past.tokens + past.n);
  std::sort(recent.begin(), recent.end());
  float* logits = candidates.all();
  for (std::size_t i = 0, next; i < n; i = next) {
    const int32_t token = recent[i];
    next = i;
    while (next < n && recent[next] == token) ++next;
    if (token < 0 || static_cast<std::size_t>(token) >= candidates.vocabulary())
      throw std::invalid_argument("the history holds token " + std::to_string(token) +
                                  " but the vocabulary has " + std::to_string(candidates.vocabulary()));
    float& logit = logits[token];
    logit = logit <= 0.0f ? logit * repeat_ : logit / repeat_;
    logit -= static_cast<float>(next - i) * frequency_ + presence_;
  }
}

MinP::MinP(double p) : log_p_(static_cast<float>(std::log(p))) {}

}  // namespace llamay
