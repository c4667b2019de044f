#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace llamay {

/// Chooses how a product with one row is split among threads: into an even share for each thread, or into
/// pieces that shrink towards the end and are taken by whichever thread is free.
///
/// Every piece costs about a microsecond, mostly the latency of the first read at a new address, and a token
/// passes a hundred products: on equal cores even shares are up to a fifth faster. Where one core is slower
/// than another, the other threads would wait for it in every product. The choice is measured: now and then a
/// step tries the split that is not in use. Results do not depend on it.
class SplitChoice {
 public:
  /// Whether the next run uses even shares. `learns`: the run will report its time to `record`.
  bool even_shares(bool learns) {
    const std::lock_guard lock(mutex_);
    return (learns && ++runs_ % kTry == 0) != best_even_;
  }

  /// Records the time of a run. All recorded runs must do about the same work.
  void record(bool even_shares, uint64_t ns) {
    const std::lock_guard lock(mutex_);
    double& mean = mean_[even_shares];
    // The time of a run that the system interrupted for a while says little.
    const double now = mean > 0 ? std::min(static_cast<double>(ns), 2 * mean) : static_cast<double>(ns);
    mean += (mean > 0 ? even_shares == best_even_ ? 0.05 : 0.3 : 1) * (now - mean);
    const double best = mean_[best_even_], other = mean_[!best_even_];
    if (best > 0 && other > 0 && other < kBetter * best) best_even_ = !best_even_;
  }

 private:
  // A trial that is a fifth slower then costs less than a hundredth of the time.
  static constexpr uint32_t kTry = 32;
  static constexpr double kBetter = 0.95;  // chance alone rarely makes such a difference
  std::mutex mutex_;
  uint32_t runs_ = 0;
  bool best_even_ = true;
  double mean_[2] = {};  // recent nanoseconds of a run by its split; 0: not measured yet
};

}  // namespace llamay
