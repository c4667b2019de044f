// What a plan learns about its threads: each gets as much as it reads in the time of the others.
#include <cmath>

#include "check.hpp"
#include "cpu/portions.hpp"

using namespace llamay;

namespace {

/// Runs steps of so many bytes on two threads that read so many a nanosecond; returns the first one's part.
double run(Portions& portions, int steps, double first, double second) {
  for (int i = 0; i < steps; ++i) {
    const Portions::Ends ends = portions.ends(2);
    const double bytes = 1e9;
    const auto work = [&](double part, double speed) {
      return Portions::Work{static_cast<uint64_t>(bytes * part), static_cast<uint64_t>(bytes * part / speed)};
    };
    const Portions::Work did[] = {work(ends[0], first), work(ends[1] - ends[0], second)};
    portions.did(2, did);
  }
  CHECK(std::abs(portions.ends(2)[1] - 1) < 1e-9);
  return portions.ends(2)[0];
}

void portions_follow_speeds() {
  Portions portions;
  CHECK(portions.ends(2)[0] == 0.5);
  CHECK(std::abs(run(portions, 500, 30, 30) - 0.5) < 1e-3);
  CHECK(std::abs(run(portions, 500, 30, 20) - 0.6) < 1e-3);
  CHECK(std::abs(run(portions, 500, 20, 30) - 0.4) < 1e-3);
  CHECK(run(portions, 5000, 1, 1000) >= 0.12);  // nobody gets next to nothing, or it could never show better
  CHECK(portions.ends(3)[0] == 1.0 / 3);        // of another number of threads nothing is known
}

void one_slow_run_changes_little() {
  Portions portions;
  const Portions::Work lost[] = {{500'000'000, 5'000'000'000}, {500'000'000, 20'000'000}};
  portions.did(2, lost);
  CHECK(portions.ends(2)[0] > 0.49);
  const Portions::Work late[] = {{1'000'000'000, 20'000'000}, {0, 0}};
  Portions fresh;
  fresh.did(2, late);
  CHECK(fresh.ends(2)[0] == 0.5);
}

}  // namespace

int main() {
  portions_follow_speeds();
  one_slow_run_changes_little();
}
