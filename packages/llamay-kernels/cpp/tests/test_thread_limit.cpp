// A pool learns its best number of threads: all threads unless fewer are faster, measured again when that
// changes.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "threads/thread_limit.hpp"

using namespace llamay;

namespace {

struct Machine {
  std::vector<uint64_t> ns;     // nanoseconds of a job, by the number of threads
  std::vector<double> waiting;  // the share of this time that the caller waits
};
const Machine kQuiet{{0, 4'000'000, 2'000'000, 0, 1'000'000}, {0, 0, 0.03, 0, 0.03}};
const Machine kLoss{{0, 4'000'000, 5'000'000, 0, 7'000'000}, {0, 0, 0.4, 0, 0.6}};
const Machine kGain{{0, 8'000'000, 5'000'000, 0, 4'000'000}, {0, 0, 0.4, 0, 0.4}};

struct Time {
  explicit Time(unsigned threads) : n(threads), limit(threads) {}
  unsigned n;
  ThreadLimit limit;
  int64_t now = 1;

  /// Runs jobs for `seconds`; returns the share of that time that the best number of threads would have
  /// needed.
  double run(const Machine& machine, double seconds) {
    const int64_t end = now + static_cast<int64_t>(seconds * 1e9);
    uint64_t best = UINT64_MAX, jobs = 0;
    for (unsigned used = 1; used <= n; used *= 2) best = std::min(best, machine.ns[used]);
    const int64_t began = now;
    for (; now < end; ++jobs) {
      const unsigned used = limit.limit();
      const uint64_t ns = machine.ns[used];
      now += static_cast<int64_t>(ns);
      limit.record(used, 1000, ns, static_cast<uint64_t>(static_cast<double>(ns) * machine.waiting[used]));
    }
    return static_cast<double>(best * jobs) / static_cast<double>(now - began);
  }
};

void a_quiet_machine_is_used_whole_all_the_time() {
  for (const unsigned n : {2u, 4u}) {
    Time time(n);
    for (int i = 0; i < 10'000; ++i) {
      CHECK(time.limit.limit() == n);
      time.limit.record(n, 1000, 1'000'000, 40'000);
    }
  }
}

void threads_that_cost_time_are_given_up_and_tried_again() {
  for (const unsigned n : {2u, 4u}) {
    Time time(n);
    time.run(kQuiet, 1);
    time.run(kLoss, 2);  // time to notice
    CHECK(time.run(kLoss, 20) > 0.97);
    time.run(kQuiet, 8);
    CHECK(time.run(kQuiet, 20) > 0.99);
    time.run(kGain, 2);
    CHECK(time.run(kGain, 20) > 0.95);  // busy, yet worth it
  }
}

void the_pieces_of_long_prompts_are_read_by_all() {
  // Each chunk takes longer than the one before, since its context is longer; then the next prompt begins.
  ThreadLimit limit(2);
  for (int i = 0; i < 2'000; ++i) {
    CHECK(limit.limit() == 2);
    limit.record(2, 1000, 200'000'000 + static_cast<uint64_t>(i % 4) * 60'000'000, 6'000'000);
  }
}

void jobs_of_other_sizes_decide_nothing() {
  Time time(2);
  for (int i = 0; i < 50'000; ++i) {
    // Sizes never repeat, so no trial can be decided, and no trial may go on for ever.
    const unsigned used = time.limit.limit();
    time.limit.record(used, uint64_t{1000} << (i % 7 * 3), 1'000'000, used == 2 ? 400'000 : 0);
  }
  CHECK(time.run(kQuiet, 20) > 0.9);
}

}  // namespace

int main() {
  a_quiet_machine_is_used_whole_all_the_time();
  threads_that_cost_time_are_given_up_and_tried_again();
  the_pieces_of_long_prompts_are_read_by_all();
  jobs_of_other_sizes_decide_nothing();
}
