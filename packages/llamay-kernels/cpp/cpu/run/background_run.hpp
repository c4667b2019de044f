#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "cpu/run/run.hpp"

namespace llamay {

/// A run that the other threads begin while the caller does something else.
class BackgroundRun {
 public:
  /// Checks the step; the memory that it points at has to stay valid. After an error no page has been
  /// written: pages are written only once nothing can fail any more. Throws std::invalid_argument,
  /// std::bad_alloc.
  BackgroundRun(const Plan& plan, const Step& step, Threads& threads);
  /// Abandons a run that was not finished.
  ~BackgroundRun() { leave(); }
  BackgroundRun(const BackgroundRun&) = delete;
  BackgroundRun& operator=(const BackgroundRun&) = delete;

  /// Lets the other threads begin. try_begin returns false, and nothing has begun, where it would have to
  /// wait for them. Throws std::runtime_error in a forked child.
  void begin();
  bool try_begin();
  /// Lets the calling thread work too, and returns when the outputs are complete.
  void finish();
  /// Abandons the run: its outputs, and the contents of reserved positions, are undefined. Returns when no
  /// thread works on the run any more. Does nothing after the run has ended.
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
