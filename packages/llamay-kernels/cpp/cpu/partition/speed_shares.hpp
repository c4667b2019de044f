#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

namespace llamay {

/// Each thread's share of a matrix product in a step of one row, in proportion to its measured reading speed.
///
/// Cores differ a little in how fast they reach memory, even on one processor, and a product lasts as long as
/// its slowest thread. Results do not depend on the shares.
class SpeedShares {
 public:
  static constexpr unsigned kMaxThreads = 13;
  /// The end of each thread's share; all shares add up to 1.
  using Ends = std::array<double, kMaxThreads>;
  /// The bytes of weights that a thread multiplied, and the nanoseconds that this took.
  struct Work {
    uint64_t bytes = 0, ns = 0;
  };

  /// 1 <= n <= kMaxThreads.
  Ends ends(unsigned n) {
    const std::lock_guard lock(mutex_);
    use(n);
    Ends e{};
    double sum = 0;
    for (unsigned t = 0; t < n; ++t) e[t] = sum += share_[t];
    return e;
  }

  /// Adapts the shares to the work that the threads of one run did with the shares of ends().
  void record(unsigned n, const Work* work) {
    double sum = 0;
    std::array<double, kMaxThreads> speed{};
    for (unsigned t = 0; t < n; ++t) {
      if (!work[t].bytes || !work[t].ns) return;  // the thread came too late to do any work
      speed[t] = static_cast<double>(work[t].bytes) / static_cast<double>(work[t].ns);
      sum += speed[t];
    }
    const std::lock_guard lock(mutex_);
    use(n);
    double total = 0;
    for (unsigned t = 0; t < n; ++t) {
      // A thread from which the system took its processor for a while says little about its speed.
      const double off = speed[t] / sum / share_[t] - 1;
      share_[t] = std::max(share_[t] * (1 + kStep * std::clamp(off, -kMost, kMost)), kLeast / n);
      total += share_[t];
    }
    for (unsigned t = 0; t < n; ++t) share_[t] /= total;
  }

 private:
  static constexpr double kStep = 0.1, kMost = 0.1, kLeast = 0.25;

  void use(unsigned n) {
    if (n == n_) return;
    n_ = n;
    share_.fill(1.0 / n);
  }

  std::mutex mutex_;
  unsigned n_ = 0;
  std::array<double, kMaxThreads> share_{};
};

}  // namespace llamay
