#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sampling/chain/past.hpp"
#include "sampling/chain/stages.hpp"

namespace llamay {

Dry::Dry(double multiplier, double base, int64_t allowed, int64_t last, const Breakers& breakers)
    : multiplier_(multiplier),
      base_(base),
      allowed_(static_cast<std::size_t>(allowed)),
      last_(last),
      breakers_(breakers) {
  std::erase_if(breakers_, [](const auto& b) { return b.empty() || b.front() < 0; });
  std::sort(breakers_.begin(), breakers_.end());
  breakers_.erase(std::unique(breakers_.begin(), breakers_.end()), breakers_.end());
  if (!breakers_.empty()) first_.resize(static_cast<std::size_t>(breakers_.back().front()) + 1);
  for (const auto& b : breakers_) first_[static_cast<std::size_t>(b.front())] = true;
}

template <class Back>
std::size_t Dry::unbroken(std::size_t n, Back back) const {
  const auto before = [](const std::vector<int32_t>& b, int32_t token) { return b.front() < token; };
  for (std::size_t i = 0; i < n; ++i) {
    const int32_t token = back(i);
    if (static_cast<std::size_t>(token) >= first_.size() || !first_[static_cast<std::size_t>(token)])
      continue;
    // The longest breaker that begins here and is complete.
    std::size_t longest = 0;
    auto it = std::lower_bound(breakers_.begin(), breakers_.end(), token, before);
    for (; it != breakers_.end() && it->front() == token; ++it) {
      const std::size_t length = it->size();
      if (length <= longest || length > i + 1) continue;
      bool same = true;
      for (std::size_t k = 1; k < length && same; ++k) same = (*it)[k] == back(i - k);
      if (same) longest = length;
    }
    if (longest) return i - (longest - 1);
  }
  return n;
}

void Dry::apply(Candidates& candidates, const StageInput& input) const {
  const std::size_t n = window(input, last_);
  if (n <= allowed_) return;
  const int32_t* last = input.tokens + (input.n - 1);
  for (std::size_t i = 0; i < n; ++i) checked_token(*(last - i), candidates);
  const auto back = [last](std::size_t i) { return *(last - i); };
  const std::size_t limit = unbroken(n, back);
  if (limit < allowed_) return;

  // Gusfield's Z values of the reversed text, in linear time: the length on which it agrees with itself
  // shifted by i.
  thread_local std::vector<uint32_t> agrees;
  thread_local PerToken lengths;
  agrees.assign(n, 0);
  lengths.begin(candidates.vocabulary());
  std::size_t left = 0, right = 0;  // the match that reaches furthest
  for (std::size_t i = 1; i < n; ++i) {
    std::size_t z = i < right ? std::min<std::size_t>(agrees[i - left], right - i) : 0;
    while (i + z < n && back(z) == back(i + z)) ++z;
    if (i + z > right) left = i, right = i + z;
    agrees[i] = static_cast<uint32_t>(z);
    // The token after the earlier occurrence would prolong the repetition; a length of 0 counts only where
    // allowed_ is 0.
    const std::size_t length = std::min(z, limit);
    if (length < allowed_) continue;
    uint32_t& most = lengths[static_cast<uint32_t>(back(i - 1))];
    most = std::max(most, static_cast<uint32_t>(length + 1));
  }

  candidates.edit();
  // Beyond this exponent the power overflows a float.
  const double bound = base_ > 1.000001 ? 88.7228391 / std::log(base_) : 0.0;
  for (const uint32_t token : lengths.touched()) {
    float* logit = candidates.logit(token);
    if (!logit) continue;
    double exponent = static_cast<double>(lengths[token] - 1 - static_cast<uint32_t>(allowed_));
    if (bound > 0) exponent = std::min(exponent, std::floor(bound));
    const double penalty = multiplier_ * std::pow(base_, exponent);
    *logit -= static_cast<float>(std::min(penalty, static_cast<double>(std::numeric_limits<float>::max())));
  }
}

}  // namespace llamay
