#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <semaphore>
#include <thread>
#include <vector>

#include "threads/company.hpp"

namespace llamay {

/// Waits for an atomic to leave a value: spins for a moment, since the others are usually nearly there, then
/// sleeps.
class Waiter {
 public:
  // 50 us: several times what the longest stage of a small model's step takes, and a sleeper takes that long
  // to wake. From 5 to 200 us, decoding was as fast; shorter ones sleep in the middle of a step when the
  // system takes a processor for a moment, longer ones burn what others could use. Crowded, the one that is
  // waited for wants this processor.
  explicit Waiter(bool crowded) : spin_ns_(crowded ? 2'000 : 50'000) {}
  /// Returns the nanoseconds that it took; 0 for less than about one microsecond.
  uint64_t while_equal(const std::atomic<uint32_t>& value, uint32_t old) const;

 private:
  uint32_t spin_ns_;
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
  const Waiter& waiter() const { return waiter_; }

  /// Runs body(context, thread) on `count` threads at once, 1 <= count <= size(), and returns when all have
  /// finished. body must not throw. Jobs of several callers take turns. Throws std::runtime_error in a forked
  /// child.
  void run(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// The same for work that any number of threads can do: who has not woken up when the caller is through is
  /// not waited for.
  void help(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// `help` in two halves, between which the caller does something else while the others work. Jobs of other
  /// callers wait meanwhile, so each post is followed by one join. body null: this thread does not
  /// help; who has begun is waited for.
  void post(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// `post`, unless it would have to wait for a job of another caller, or another caller waits for one.
  bool try_post(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  void join(unsigned count, void (*body)(void* context, unsigned thread), void* context);
  /// How many callers wait for a job of another to end.
  unsigned waiting() const { return waiting_.load(std::memory_order_relaxed); }
  /// Whether this process is a child that was forked after the threads were made: it has none of them.
  bool forked() const;

  /// How many threads a job of so many multiplications should use, now.
  unsigned useful(uint64_t work) const;
  /// What a job of so many multiplications cost its caller, of that waiting: where others need the
  /// processors, fewer threads may be faster.
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
  std::atomic<uint32_t> waiting_{0};  // callers for their turn
  std::binary_semaphore turn_{1};     // not a mutex: who joins may be another thread than who posted
  std::unique_ptr<std::vector<Worker>> workers_;
  void (*body_)(void*, unsigned) = nullptr;
  void* context_ = nullptr;
  Company company_;
};

}  // namespace llamay
