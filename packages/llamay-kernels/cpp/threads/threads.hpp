#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace llamay {

/// Waits for an atomic to leave a value: spins for a moment, since the others are usually nearly there, then sleeps.
class Waiter {
 public:
  explicit Waiter(bool crowded) : spin_ns_(crowded ? 2'000 : 50'000) {}
  void while_equal(const std::atomic<uint32_t>& value, uint32_t old) const;

 private:
  uint32_t spin_ns_;
};

/// The threads of one job meet here, again and again.
class Barrier {
 public:
  explicit Barrier(const Waiter& waiter) : waiter_(waiter) {}
  void reset(uint32_t count) { count_ = count; }
  void wait();

 private:
  const Waiter& waiter_;
  uint32_t count_ = 1;
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

/// A pool of threads that stay. The caller is thread 0 of every job; the others sleep while there is none.
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
  /// Runs body(context, thread) on `count` threads at once, 1 <= count <= size(), and returns when all have finished.
  /// body must not throw. Jobs of several callers take turns. Throws std::runtime_error in a forked child.
  void run(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// For the threads of the job that runs.
  Barrier& barrier() { return barrier_; }

 private:
  struct Worker {
    alignas(64) std::atomic<uint32_t> jobs{0};  // raised by one for each job, and to stop
    std::thread thread;
  };

  void work(Worker& self, unsigned index);

  const unsigned n_;
  const uint64_t grain_;
  const uint32_t forks_;
  const Waiter waiter_;
  Barrier barrier_{waiter_};
  std::mutex turn_;
  std::unique_ptr<std::vector<Worker>> workers_;
  void (*body_)(void*, unsigned) = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> running_{0};
};

}  // namespace llamay
