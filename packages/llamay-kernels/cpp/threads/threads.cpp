#include "threads/threads.hpp"

#include <algorithm>
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

/// The number of forks between the process that loaded this module and this one: threads do not survive a
/// fork.
std::atomic<uint32_t> forks{0};
void count_forks() {
#ifdef LLAMAY_PTHREAD
  static const int once =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
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
  if (n < 1 || n > 1024)
    throw std::invalid_argument("a pool has 1 to 1024 threads, not " + std::to_string(n));
  return n;
}

bool crowded(unsigned n) {
  const unsigned cpus = std::thread::hardware_concurrency();
  return cpus && n > cpus;
}

int64_t now_ns() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

uint64_t Waiter::while_equal(const std::atomic<uint32_t>& value, uint32_t old) const {
  int64_t began = 0;
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old)
        return began ? static_cast<uint64_t>(now_ns() - began) : 0;
      pause();
    }
    if (!began)
      began = now_ns();
    else if (now_ns() - began > spin_ns_)
      break;
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old);
  return static_cast<uint64_t>(now_ns() - began);
}

Threads::Threads(unsigned n, uint64_t grain)
    : n_(checked(n)),
      grain_(grain),
      forks_((count_forks(), forks.load())),
      waiter_(crowded(n)),
      workers_(new std::vector<Worker>(n - 1)),
      limit_(n) {
  const BlockSignals blocked;
  try {
    for (unsigned i = 0; i < n - 1; ++i) {
      Worker& worker = (*workers_)[i];
      worker.thread = std::thread([this, &worker, i] { work(worker, i + 1); });
    }
  } catch (...) {
    stop();
    throw;
  }
}

Threads::~Threads() {
  if (forks.load() != forks_)
    workers_.release();  // there is no thread to join, and a joinable std::thread must not be destroyed
  else
    stop();
}

void Threads::stop() {
  for (Worker& worker : *workers_) {
    worker.state.store(stopping);
    worker.state.notify_one();
  }
  for (Worker& worker : *workers_)
    if (worker.thread.joinable()) worker.thread.join();
}

void Threads::work(Worker& self, unsigned index) {
  const FloatEnvironment environment;
  for (;;) {
    waiter_.while_equal(self.state, idle);
    uint32_t expected = posted;
    if (self.state.compare_exchange_strong(expected, running)) {
      body_(context_, index);
      // Sequentially consistent, like every store here: the store must not be reordered with the check for
      // sleepers inside notify.
      self.state.store(idle);
      self.state.notify_one();
    } else if (expected == stopping) {
      return;
    }
  }
}

bool Threads::forked() const { return forks.load(std::memory_order_relaxed) != forks_; }

void Threads::check_fork() const {
  if (forked())
    throw std::runtime_error(
        "these Threads were made before a fork and did not survive it; make new ones in the child");
}

void Threads::start(unsigned count, void (*body)(void*, unsigned), void* context) {
  body_ = body;
  context_ = context;
  for (unsigned i = 0; i + 1 < count; ++i) {
    Worker& worker = (*workers_)[i];
    worker.state.store(posted);
    worker.state.notify_one();
  }
}

void Threads::finish(unsigned count, bool all) {
  for (unsigned i = 0; i + 1 < count; ++i) {
    std::atomic<uint32_t>& state = (*workers_)[i].state;
    uint32_t expected = posted;
    if (!all && state.compare_exchange_strong(expected, idle)) continue;
    for (uint32_t is; (is = state.load(std::memory_order_acquire)) != idle;) waiter_.while_equal(state, is);
  }
}

void Threads::take_turn() {
  if (turn_.try_acquire()) return;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  turn_.acquire();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

void Threads::run(unsigned count, void (*body)(void*, unsigned), void* context) {
  check_fork();
  take_turn();
  const FloatEnvironment environment;
  start(count, body, context);
  body(context, 0);
  finish(count, true);
  turn_.release();
}

void Threads::help(unsigned count, void (*body)(void*, unsigned), void* context) {
  post(count, body, context);
  join(count, body, context);
}

void Threads::post(unsigned count, void (*body)(void*, unsigned), void* context) {
  check_fork();
  take_turn();
  start(count, body, context);
}

bool Threads::try_post(unsigned count, void (*body)(void*, unsigned), void* context) {
  check_fork();
  if (waiting_.load(std::memory_order_relaxed) || !turn_.try_acquire()) return false;
  start(count, body, context);
  return true;
}

void Threads::join(unsigned count, void (*body)(void*, unsigned), void* context) {
  if (body) {
    const FloatEnvironment environment;
    body(context, 0);
  }
  finish(count, false);
  turn_.release();
}

unsigned Threads::useful(uint64_t work) const {
  if (!grain_) return n_;
  return static_cast<unsigned>(std::min<uint64_t>(limit_.limit(), 1 + work / grain_));
}

void Threads::learn(unsigned used, uint64_t work, uint64_t total_ns, uint64_t waited_ns) {
  // A job that is too small for all threads says nothing about other processes.
  if (!grain_ || !total_ns || 1 + work / grain_ < n_) return;
  limit_.record(used, work, total_ns, waited_ns);
}

}  // namespace llamay
