// What a plan learns about cutting work: it takes what is faster, and finds out when that changes.
#include "check.hpp"
#include "cpu/cutting.hpp"

using namespace llamay;

namespace {

/// Runs steps that take so long; returns how many of the last hundred took shares.
int run(Cutting& cutting, int steps, uint64_t shares_ns, uint64_t pieces_ns) {
  int last = 0;
  for (int i = 0; i < steps; ++i) {
    const bool shares = cutting.shares(true);
    cutting.took(shares, shares ? shares_ns : pieces_ns);
    if (i >= steps - 100) last += shares;
  }
  return last;
}

void takes_what_is_faster() {
  Cutting cutting;
  CHECK(cutting.shares(false));
  CHECK(run(cutting, 1000, 1000, 1200) >= 96);  // all but the tries
  CHECK(run(cutting, 1000, 1000, 700) <= 4);    // a core became slow
  CHECK(!cutting.shares(false));
  CHECK(run(cutting, 1000, 1000, 1200) >= 96);
  CHECK(run(cutting, 1000, 1000, 990) >= 96);  // not worth a change
}

void one_slow_run_changes_nothing() {
  Cutting cutting;
  run(cutting, 1000, 1000, 1200);
  cutting.took(true, 1'000'000'000);
  CHECK(run(cutting, 100, 1000, 1200) >= 96);
}

}  // namespace

int main() {
  takes_what_is_faster();
  one_slow_run_changes_nothing();
}
