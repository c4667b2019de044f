#include "threads/threads.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

#include "threads/float_environment.hpp"

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <signal.h>
#define LLAMAY_PTHREAD
#endif

namespace llamay {
namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

/// How often this process is a forked child: threads do not survive a fork.
std::atomic<uint32_t> forks{0};
void count_forks() {
#ifdef LLAMAY_PTHREAD
  static const int once = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  (void)once;
#endif
}

/// New threads inherit the signal mask; Ctrl-C is for the thread that runs Python.
class BlockSignals {
 public:
#ifdef LLAMAY_PTHREAD
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
#endif
};

unsigned checked(unsigned n) {
  if (n < 1 || n > 1024) throw std::invalid_argument("a pool has 1 to 1024 threads, not " + std::to_string(n));
  return n;
}

bool crowded(unsigned n) {
  const unsigned cpus = std::thread::hardware_concurrency();
  return cpus && n > cpus;
}

}  // namespace

void Waiter::while_equal(const std::atomic<uint32_t>& value, uint32_t old) const {
  using clock = std::chrono::steady_clock;
  clock::time_point until{};
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause();
    }
    const auto now = clock::now();
    if (until == clock::time_point{})
      until = now + std::chrono::nanoseconds(spin_ns_);
    else if (now >= until)
      break;
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old);
}

void Barrier::wait() {
  if (count_ == 1) return;
  const uint32_t generation = generation_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    // Sequentially consistent: it must not pass the look for sleepers inside notify_all.
    generation_.store(generation + 1);
    generation_.notify_all();
  } else {
    waiter_.while_equal(generation_, generation);
  }
}

Threads::Threads(unsigned n, uint64_t grain)
    : n_(checked(n)), grain_(grain), forks_(forks.load()), waiter_(crowded(n)), workers_(new std::vector<Worker>(n - 1)) {
  count_forks();
  const BlockSignals blocked;
  try {
    for (unsigned i = 0; i < n - 1; ++i) {
      Worker& worker = (*workers_)[i];
      worker.thread = std::thread([this, &worker, i] { work(worker, i + 1); });
    }
  } catch (...) {
    stop_ = true;
    for (Worker& worker : *workers_) {
      worker.jobs.store(1);
      worker.jobs.notify_one();
      if (worker.thread.joinable()) worker.thread.join();
    }
    throw;
  }
}

Threads::~Threads() {
  if (forks.load() != forks_) {
    workers_.release();  // there is nobody to join, and a joinable std::thread may not be destroyed
    return;
  }
  stop_ = true;
  for (Worker& worker : *workers_) {
    worker.jobs.fetch_add(1);
    worker.jobs.notify_one();
  }
  for (Worker& worker : *workers_) worker.thread.join();
}

void Threads::work(Worker& self, unsigned index) {
  const FloatEnvironment environment;
  for (uint32_t seen = 0;; ++seen) {
    waiter_.while_equal(self.jobs, seen);
    if (stop_) return;
    body_(context_, index);
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

void Threads::run(unsigned count, void (*body)(void*, unsigned), void* context) {
  if (forks.load(std::memory_order_relaxed) != forks_)
    throw std::runtime_error("these Threads were made before a fork and did not survive it; make new ones in the child");
  const std::lock_guard<std::mutex> mine(turn_);
  const FloatEnvironment environment;
  barrier_.reset(count);
  if (count > 1) {
    body_ = body;
    context_ = context;
    running_.store(count - 1);
    for (unsigned i = 0; i + 1 < count; ++i) {
      Worker& worker = (*workers_)[i];
      worker.jobs.fetch_add(1);
      worker.jobs.notify_one();
    }
  }
  body(context, 0);
  for (uint32_t left; (left = running_.load(std::memory_order_acquire)) != 0;) waiter_.while_equal(running_, left);
}

}  // namespace llamay
