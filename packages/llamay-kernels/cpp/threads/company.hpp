#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

namespace llamay {

/// How many threads of a pool are worth having, now.
///
/// All of them, where the machine is theirs. Where others want the processors, a step ends when its
/// unluckiest thread does, and whether company still helps depends on who they are and how the system shares:
/// beside one busy neighbour on two cores a second thread was a loss of a quarter, beside two a gain of a
/// third. So while threads wait for each other much of the time, jobs take longer than they did, or fewer
/// threads are used because of that, it is tried now and then which number is faster, in short turns, with
/// jobs of one size.
class Company {
 public:
  explicit Company(unsigned n) : n_(n), now_(n), limit_(n) {}

  /// Threads that the next job may use.
  unsigned limit() const { return now_.load(std::memory_order_relaxed); }

  /// A job of so much work (in any unit) used so many threads, its caller took so long, of that waiting for
  /// others.
  void took(unsigned used, uint64_t work, uint64_t ns, uint64_t waited_ns) {
    const std::lock_guard lock(mutex_);
    spent_ += ns;
    if (!trying_) {
      if (used != limit_) return;  // it began before the last decision, or is too small for more
      watch(work, static_cast<double>(ns), static_cast<double>(waited_ns));
      const bool worth = limit_ < n_ || waits() || mean_ > kSlow * best_;
      if (spent_ >= until_ && worth && mean_ <= kLongJob) begin(work);
    } else if (used == (turn_ ? rival_ : limit_)) {
      // In the first job of a turn threads may still sleep; a job of another size says nothing.
      if (fresh_)
        fresh_ = false;
      else if (alike(work))
        count(ns);
      else if (++strange_ >= kStrange)
        end(false);
    }
  }

 private:
  static constexpr double kMuch = 0.15;    // of the time, waiting: on a quiet machine it is a few hundredths
  static constexpr double kSlow = 1.2;     // times the best: the caller itself may be the one who is put off
  static constexpr double kBetter = 0.98;  // or it stays as it is
  // Long enough for what a system owes a thread that has slept, or the other way round, to be settled.
  static constexpr uint64_t kTurn = 50'000'000;
  static constexpr uint32_t kTurnJobs = 2, kRounds = 2, kStrange = 24;
  // Longer jobs are not tried out: each would cost as much as all of a trial may, and they take longer from
  // one to the next by themselves, as the pieces of a long prompt do.
  static constexpr double kLongJob = 25e6;
  // Time in jobs between two trials: a trial costs at most what half of its jobs lose, and that rarely.
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
  double waiting_ = 0;                                           // the recent share of time
  double mean_ = 0, best_ = 0;                                   // nanoseconds of recent jobs of work_
  uint64_t spent_ = 0, until_ = 0, began_ = 0, pause_ = kShort;  // nanoseconds in jobs
  // A trial: jobs with limit_ threads in turns with jobs of rival_ threads.
  bool trying_ = false, turn_ = false, fresh_ = false;
  unsigned rival_ = 0;
  uint32_t strange_ = 0, rounds_ = 0, turn_jobs_ = 0;
  uint64_t turn_ns_ = 0;
  double per_job_[2] = {};  // nanoseconds, added up over turns
};

}  // namespace llamay
