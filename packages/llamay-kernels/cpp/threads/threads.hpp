#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "threads/thread_limit.hpp"

namespace llamay {

/// Waits for an atomic to leave a value: spins for a moment, since the other threads have usually nearly
/// finished, then sleeps.
class Waiter {
 public:
  // 50 us: several times the longest stage of a small model's step, and a sleeper takes that long
  // to wake. From 5 to 200 us, decoding was as fast; shorter ones sleep in the middle of a step when the
  // system takes a processor for a moment, longer ones burn time that other processes could use. Crowded, the
  // thread that is waited for needs this processor.
  explicit Waiter(bool crowded) : spin_ns_(crowded ? 2'000 : 50'000) {}
  /// Returns the nanoseconds waited; 0 for less than about one microsecond.
  uint64_t while_equal(const std::atomic<uint32_t>& value, uint32_t old) const;

 private:
  uint32_t spin_ns_;
};

/// A pool of persistent threads. The caller is thread 0 of every job; the others sleep while there is no job.
class Threads {
 public:
  /// n: 1..1024. grain: multiplications that are worth another thread; 0: always use all.
  /// Throws std::invalid_argument, std::system_error.
  explicit Threads(unsigned n, uint64_t grain = 0);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  unsigned size() const { return n_; }
  uint64_t grain() const { return grain_; }
  const Waiter& waiter() const { return waiter_; }

  /// Runs body(context, thread) on `count` threads at once, 1 <= count <= size(), and returns when all have
  /// finished. body must not throw. Jobs of several callers take turns. Throws std::runtime_error in a forked
  /// child.
  void run(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// Like `run`, for work that any number of threads can do: a thread that has not woken up when the caller
  /// has finished is not waited for.
  void help(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// `help` in two halves, between which the caller does something else while the other threads work. Jobs of
  /// other callers wait meanwhile, so each post must be followed by one join. With a null body, join does no
  /// work and only waits for the threads that have begun.
  void post(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// `post`, unless a job of another caller is running, or another caller waits for its turn. Returns whether
  /// the job was posted.
  bool try_post(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  void join(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// The number of callers that wait for another caller's job to end.
  unsigned waiting() const { return waiting_.load(std::memory_order_relaxed); }
  /// Whether this process is a child that was forked after the threads were made: a forked child has none of
  /// them.
  bool forked() const;

  /// Return how many threads a job of `work` multiplications should use at the moment.
  unsigned useful(uint64_t work) const;
  /// Records the time of a job of `work` multiplications, and how much of it the caller waited: where other
  /// processes need the processors, fewer threads may be faster.
  void learn(unsigned used, uint64_t work, uint64_t total_ns, uint64_t waited_ns);

 private:
  enum State : uint32_t { idle, posted, running, stopping };
  struct Worker {
    alignas(64) std::atomic<uint32_t> state{idle};
    std::thread thread;
  };

  void work(Worker& self, unsigned index);
  void start(unsigned count, void (*body)(void*, unsigned), void* context);
  void finish(unsigned count, bool all);
  void stop();
  void check_fork() const;
  void take_turn();

  const unsigned n_;
  const uint64_t grain_;
  const uint32_t forks_;
  const Waiter waiter_;
  std::atomic<uint32_t> waiting_{0};  // callers that wait for their turn
  std::binary_semaphore turn_{1};     // not a mutex: the thread that joins may not be the one that posted
  std::unique_ptr<std::vector<Worker>> workers_;
  void (*body_)(void*, unsigned) = nullptr;
  void* context_ = nullptr;
  ThreadLimit limit_;
};

}  // namespace llamay
