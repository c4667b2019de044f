#include "sampling/chain/mirostat.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace llamay {
namespace {

/// Version 1: the number of tokens to keep, from a Zipf exponent that is estimated from the hundred likeliest
/// tokens.
std::size_t kept(Candidates& candidates, double mu) {
  constexpr std::size_t kLooked = 100;
  const auto& ranked = candidates.rank(kLooked + 1);
  double both = 0, squares = 0;
  for (std::size_t i = 0; i + 1 < ranked.size(); ++i) {
    const double t = std::log(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    const double b = candidates.factor() * (static_cast<double>(candidates.value(ranked[i])) -
                                            static_cast<double>(candidates.value(ranked[i + 1])));
    both += t * b;
    squares += t * t;
  }
  const double s = both / squares, epsilon = s - 1;
  const auto n = static_cast<double>(candidates.vocabulary());
  const double k = std::pow(epsilon * std::pow(2.0, mu) / (1 - std::pow(n, -epsilon)), 1 / s);
  // With one candidate, or equal ones, nothing can be estimated.
  if (!(k < n)) return candidates.size();
  return k < 1 ? 1 : static_cast<std::size_t>(k);
}

}  // namespace

Mirostat::Step Mirostat::step(Candidates& candidates, double mu, double u) const {
  if (version == 1) {
    candidates.keep_likeliest(kept(candidates, mu));
  } else {
    // A surprise of more than mu bits is a logit below this.
    const double log_total = std::log(candidates.total());
    const double below = (log_total - mu * 0.69314718055994530942) / candidates.factor();
    if (below > 0)
      candidates.keep_likeliest(1);
    else
      candidates.keep_from(
          static_cast<float>(std::max(static_cast<double>(candidates.largest()) + below,
                                      static_cast<double>(std::numeric_limits<float>::lowest()))));
  }
  const Candidates::Drawn drawn = candidates.draw(u);
  return {drawn, mu - eta * (-std::log2(drawn.probability) - tau)};
}

}  // namespace llamay
