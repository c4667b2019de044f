#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace llamay {

/// How a product with one row is cut for several threads: an equal share for each, or pieces that shrink
/// towards the end, which whoever is free takes.
///
/// Every piece costs about a microsecond, most of it memory's first answer at a new place, and a token passes
/// a hundred products: on equal cores shares are up to a fifth faster. Where one core is slower than another,
/// the others would wait for it with every product. Which of the two it is here is measured: now and then a
/// step tries what is not in use. Results do not depend on it.
class Cutting {
 public:
  /// Whether the next run takes shares. `learns`: it will say what it took.
  bool shares(bool learns) {
    const std::lock_guard lock(mutex_);
    return (learns && ++runs_ % kTry == 0) != best_shares_;
  }

  /// What a run took; all that say so are to be alike.
  void took(bool shares, uint64_t ns) {
    const std::lock_guard lock(mutex_);
    double& mean = mean_[shares];
    // A run from which the system took its processor for a while says little.
    const double now = mean > 0 ? std::min(static_cast<double>(ns), 2 * mean) : static_cast<double>(ns);
    mean += (mean > 0 ? shares == best_shares_ ? 0.05 : 0.3 : 1) * (now - mean);
    const double best = mean_[best_shares_], other = mean_[!best_shares_];
    if (best > 0 && other > 0 && other < kBetter * best) best_shares_ = !best_shares_;
  }

 private:
  static constexpr uint32_t kTry = 32;     // a try that loses a fifth then costs less than a hundredth
  static constexpr double kBetter = 0.95;  // what chance alone rarely reaches
  std::mutex mutex_;
  uint32_t runs_ = 0;
  bool best_shares_ = true;
  double mean_[2] = {};  // nanoseconds of a run, recently; 0: none yet
};

}  // namespace llamay
