#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>

namespace llamay {

/// How much of each product a thread takes in a step of one row: in proportion to how fast it reads.
///
/// Cores differ a little in how fast they reach memory, even those of one processor, and all wait for the
/// slowest. Results do not depend on it.
class Portions {
 public:
  static constexpr unsigned kThreads = 13;
  /// Where each thread's part of a whole of 1 ends.
  using Ends = std::array<double, kThreads>;
  /// What a thread multiplied, and how long it took.
  struct Work {
    uint64_t bytes = 0, ns = 0;
  };

  /// 1 <= n <= kThreads.
  Ends ends(unsigned n) {
    const std::lock_guard lock(mutex_);
    use(n);
    Ends e{};
    double sum = 0;
    for (unsigned t = 0; t < n; ++t) e[t] = sum += part_[t];
    return e;
  }

  /// What the threads of one run did, with the parts of ends().
  void did(unsigned n, const Work* work) {
    double sum = 0;
    std::array<double, kThreads> speed{};
    for (unsigned t = 0; t < n; ++t) {
      if (!work[t].bytes || !work[t].ns) return;  // it came too late
      speed[t] = static_cast<double>(work[t].bytes) / static_cast<double>(work[t].ns);
      sum += speed[t];
    }
    const std::lock_guard lock(mutex_);
    use(n);
    double total = 0;
    for (unsigned t = 0; t < n; ++t) {
      // A thread from which the system took its processor for a while says little about its speed.
      const double off = speed[t] / sum / part_[t] - 1;
      part_[t] = std::max(part_[t] * (1 + kStep * std::clamp(off, -kMost, kMost)), kLeast / n);
      total += part_[t];
    }
    for (unsigned t = 0; t < n; ++t) part_[t] /= total;
  }

 private:
  static constexpr double kStep = 0.1, kMost = 0.1, kLeast = 0.25;

  void use(unsigned n) {
    if (n == n_) return;
    n_ = n;
    part_.fill(1.0 / n);
  }

  std::mutex mutex_;
  unsigned n_ = 0;
  std::array<double, kThreads> part_{};
};

}  // namespace llamay
