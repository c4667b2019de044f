#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace llamay {

/// Finds out how many threads of a pool are worth using at the moment.
///
/// All of them, where no other process needs the processors. Otherwise a step ends when its most delayed
/// thread does, and whether more threads still help depends on the other processes and on the scheduler:
/// beside one busy process on two cores a second thread was a loss of a quarter, beside two busy processes a
/// gain of a third. So while threads wait for each other much of the time, jobs take longer than they did, or
/// fewer threads are in use for these reasons, a trial compares the limit with a rival number of threads now
/// and then, in short turns, with jobs of one size.
class ThreadLimit {
 public:
  explicit ThreadLimit(unsigned n) : n_(n), now_(n), limit_(n) {}

  /// Threads that the next job may use.
  unsigned limit() const { return now_.load(std::memory_order_relaxed); }

  /// Records a job: the threads that it used, its amount of work (in any unit), the nanoseconds of its
  /// caller, and how many of these the caller waited for other threads.
  void record(unsigned used, uint64_t work, uint64_t ns, uint64_t waited_ns) {
    const std::lock_guard lock(mutex_);
    spent_ += ns;
    if (!trying_) {
      if (used != limit_) return;  // the job began before the last decision, or is too small for more threads
      watch(work, static_cast<double>(ns), static_cast<double>(waited_ns));
      const bool worth = limit_ < n_ || waits() || mean_ > kSlow * best_;
      if (spent_ >= until_ && worth && mean_ <= kLongJob) begin(work);
    } else if (used == (turn_ ? rival_ : limit_)) {
      // In the first job of a turn threads may still sleep; a job of another size cannot be compared.
      if (fresh_)
        fresh_ = false;
      else if (alike(work))
        count(ns);
      else if (++strange_ >= kStrange)
        end(false);
    }
  }

 private:
  // The share of time waited that allows a trial: on a quiet machine callers wait a few hundredths of it.
  static constexpr double kMuch = 0.15;
  // The slowdown against the best time that allows a trial: the caller itself may be the delayed thread.
  static constexpr double kSlow = 1.2;
  static constexpr double kBetter = 0.98;  // the rival wins where it takes less than this share of the time
  // Long enough for the scheduler to settle its debt to a thread that has slept, or the thread's to it.
  static constexpr uint64_t kTurn = 50'000'000;
  static constexpr uint32_t kTurnJobs = 2, kRounds = 2, kStrange = 24;
  // Longer jobs begin no trial: each would cost as much as a whole trial may, and their time grows from one
  // job to the next anyway, as with the chunks of a long prompt.
  static constexpr double kLongJob = 25e6;
  // Nanoseconds of jobs between two trials: a trial costs at most the loss of half of its jobs, and trials
  // are rare.
  static constexpr uint64_t kShort = 200'000'000, kLong = 3'200'000'000, kRarely = 16;

  bool waits() const { return waiting_ >= kMuch; }
  bool alike(uint64_t work) const { return work > work_ / 4 * 3 && work < work_ / 4 * 5; }

  void watch(uint64_t work, double ns, double waited_ns) {
    if (!alike(work)) {
      work_ = work;
      mean_ = best_ = ns;
    }
    mean_ += 0.1 * (ns - mean_);
    best_ = std::min(ns, 1.001 * best_);
    waiting_ += 0.2 * (waited_ns / ns - waiting_);
  }

  void begin(uint64_t work) {
    rival_ = limit_ == n_ || (waits() && limit_ > 1) ? limit_ / 2 : std::min(n_, 2 * limit_);
    trying_ = true;
    began_ = spent_;
    work_ = work;
    strange_ = rounds_ = 0;
    per_job_[0] = per_job_[1] = 0;
    turn(false);
  }

  void turn(bool rival) {
    turn_ = rival;
    fresh_ = true;
    turn_ns_ = turn_jobs_ = 0;
    now_.store(rival ? rival_ : limit_, std::memory_order_relaxed);
  }

  void count(uint64_t ns) {
    turn_ns_ += ns;
    if (++turn_jobs_ < kTurnJobs || turn_ns_ < kTurn) return;
    per_job_[turn_] += static_cast<double>(turn_ns_) / turn_jobs_;
    if (turn_ && ++rounds_ == kRounds) return end(per_job_[1] < kBetter * per_job_[0]);
    turn(!turn_);
  }

  void end(bool rival_won) {
    if (rival_won) limit_ = rival_;
    pause_ = rival_won ? kShort : std::min(2 * pause_, kLong);
    until_ = spent_ + (rival_won ? pause_ : std::max(pause_, kRarely * (spent_ - began_)));
    waiting_ = 0;
    work_ = 0;
    trying_ = false;
    now_.store(limit_, std::memory_order_relaxed);
  }

  const unsigned n_;
  std::atomic<unsigned> now_;
  std::mutex mutex_;
  unsigned limit_;
  uint64_t work_ = 0;
  double waiting_ = 0;          // the recent share of time that callers waited
  double mean_ = 0, best_ = 0;  // nanoseconds of recent jobs of work_
  uint64_t spent_ = 0, until_ = 0, began_ = 0, pause_ = kShort;  // nanoseconds in jobs
  // A trial: jobs with limit_ threads in turns with jobs of rival_ threads.
  bool trying_ = false, turn_ = false, fresh_ = false;
  unsigned rival_ = 0;
  uint32_t strange_ = 0, rounds_ = 0, turn_jobs_ = 0;
  uint64_t turn_ns_ = 0;
  double per_job_[2] = {};  // nanoseconds, added up over turns
};

}  // namespace llamay
