#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "cpu/run.hpp"

namespace llamay {

/// A run that the other threads begin while the caller does something else.
class Running {
 public:
  /// Checks everything that changes; what the step points at has to stay. An error leaves nothing behind:
  /// pages are written only once nothing can fail any more. Throws std::invalid_argument, std::bad_alloc.
  Running(const Plan& plan, const Step& step, Threads& threads);
  /// Leaves what nobody finished.
  ~Running() { leave(); }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  /// The other threads begin. The second returns false, and nothing has begun, if it would have to wait for
  /// them. Throws std::runtime_error in a forked child.
  void begin();
  bool try_begin();
  /// Helps, and returns when the outputs are there.
  void finish();
  /// Ends it before that: outputs, and what was written to reserved positions, mean nothing. Returns when
  /// nobody works on it any more. Nothing if it has ended.
  void leave() noexcept;

 private:
  void end() noexcept;

  const Plan& plan_;
  Threads& threads_;
  const Step step_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::unique_ptr<Profile> profile_;
  std::unique_ptr<Scratch> scratch_;
  std::optional<Run> run_;
  bool begun_ = false;
};

}  // namespace llamay
