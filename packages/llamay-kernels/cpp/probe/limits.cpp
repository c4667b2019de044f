#include "probe/limits.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "dispatch.hpp"
#include "probe/table.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

LLAMAY_DECLARE_TABLES(llamay::ProbeTable, probe);

namespace llamay {
namespace {

constexpr Tables<ProbeTable> tables = LLAMAY_TABLES(probe);
constexpr std::size_t kHugePage = std::size_t{1} << 21;
using Clock = std::chrono::steady_clock;

double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

/// Several times the size of the last-level cache, so that reading the buffer means reading memory.
std::size_t buffer_bytes() {
  long cache = 0;
#if defined(_SC_LEVEL3_CACHE_SIZE)
  cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
  return std::clamp<std::size_t>(cache > 0 ? 4 * static_cast<std::size_t>(cache) : 0, std::size_t{64} << 20,
                                 std::size_t{256} << 20);
}

/// Work of all threads over the time from the common start to the last one's end; the best of `tries`.
template <class F>
double best_rate(Threads& threads, int tries, F work) {
  struct Job {
    Threads& threads;
    F& work;
    Clock::time_point start;
    std::atomic<uint32_t> ready{0};
    std::atomic<uint64_t> done{0};
  };
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    Job job{threads, work, {}, {}, {}};
    threads.run(
        threads.size(),
        [](void* p, unsigned t) {
          Job& j = *static_cast<Job*>(p);
          // All begin together, when the last has woken up.
          j.ready.fetch_add(1);
          j.ready.notify_all();
          for (uint32_t is; (is = j.ready.load()) < j.threads.size();)
            j.threads.waiter().while_equal(j.ready, is);
          if (t == 0) j.start = Clock::now();
          j.done.fetch_add(j.work(t), std::memory_order_relaxed);
        },
        &job);
    best = std::max(best, static_cast<double>(job.done.load()) / seconds(Clock::now() - job.start));
  }
  return best;
}

}  // namespace

Limits measure_limits(Threads& threads) {
  const Isa isa = active_isa();
  const ProbeTable& table = tables[isa];
  Limits limits{0, 0, threads.size(), name(isa)};
  std::atomic<uint64_t> sink{0};

  const std::size_t share = buffer_bytes() / threads.size() / 4096 * 4096, bytes = share * threads.size();
  struct Free {
    void operator()(void* p) const { ::operator delete(p, std::align_val_t{kHugePage}); }
  };
  const std::unique_ptr<void, Free> buffer(::operator new(bytes, std::align_val_t{kHugePage}));
  auto* data = static_cast<char*>(buffer.get());
#if defined(__linux__)
  madvise(data, bytes, MADV_HUGEPAGE);  // as for weights; a refusal costs a few percent
#endif
  best_rate(threads, 1, [&](unsigned t) {
    std::memset(data + share * t, 1,
                share);  // written by the thread that will read it, so that the pages are near its core
    return uint64_t{0};
  });
  limits.read_bandwidth = best_rate(threads, 12, [&](unsigned t) {
    sink += table.read(data + share * t, share);
    return uint64_t{share};
  });

  uint64_t rounds = 1 << 12;
  for (double took = 0; took < 0.002 && rounds < uint64_t{1} << 40; rounds *= 4) {
    const auto start = Clock::now();
    uint64_t out = 0;
    table.dot(rounds, &out);
    sink += out;
    took = seconds(Clock::now() - start);
  }
  limits.int8_ops = best_rate(threads, 30, [&](unsigned) {
    uint64_t out = 0;
    const uint64_t ops = table.dot(rounds, &out);
    sink += out;
    return ops;
  });
  return limits;
}

}  // namespace llamay
