// A plan learns the speed of its threads: each gets as much as it reads in the time of the others.
#include <cmath>

#include "check.hpp"
#include "cpu/partition/speed_shares.hpp"

using namespace llamay;

namespace {

/// Runs steps on two threads that read `first` and `second` bytes a nanosecond; returns the first thread's
/// share.
double run(SpeedShares& shares, int steps, double first, double second) {
  for (int i = 0; i < steps; ++i) {
    const SpeedShares::Ends ends = shares.ends(2);
    const double bytes = 1e9;
    const auto work = [&](double part, double speed) {
      return SpeedShares::Work{static_cast<uint64_t>(bytes * part),
                               static_cast<uint64_t>(bytes * part / speed)};
    };
    const SpeedShares::Work did[] = {work(ends[0], first), work(ends[1] - ends[0], second)};
    shares.record(2, did);
  }
  CHECK(std::abs(shares.ends(2)[1] - 1) < 1e-9);
  return shares.ends(2)[0];
}

void shares_follow_speeds() {
  SpeedShares shares;
  CHECK(shares.ends(2)[0] == 0.5);
  CHECK(std::abs(run(shares, 500, 30, 30) - 0.5) < 1e-3);
  CHECK(std::abs(run(shares, 500, 30, 20) - 0.6) < 1e-3);
  CHECK(std::abs(run(shares, 500, 20, 30) - 0.4) < 1e-3);
  CHECK(run(shares, 5000, 1, 1000) >=
        0.12);  // a share never gets so small that the thread could not be measured again
  CHECK(shares.ends(3)[0] == 1.0 / 3);  // for another number of threads nothing is known
}

void one_slow_run_changes_little() {
  SpeedShares shares;
  const SpeedShares::Work lost[] = {{500'000'000, 5'000'000'000}, {500'000'000, 20'000'000}};
  shares.record(2, lost);
  CHECK(shares.ends(2)[0] > 0.49);
  const SpeedShares::Work late[] = {{1'000'000'000, 20'000'000}, {0, 0}};
  SpeedShares fresh;
  fresh.record(2, late);
  CHECK(fresh.ends(2)[0] == 0.5);
}

}  // namespace

int main() {
  shares_follow_speeds();
  one_slow_run_changes_little();
}
