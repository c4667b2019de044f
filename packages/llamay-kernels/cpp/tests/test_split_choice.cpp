// A plan learns to split work: it uses the faster split, and notices when another one becomes faster.
#include "check.hpp"
#include "cpu/partition/split_choice.hpp"

using namespace llamay;

namespace {

/// Runs steps that take `shares_ns` or `pieces_ns`; returns how many of the last hundred used even shares.
int run(SplitChoice& choice, int steps, uint64_t shares_ns, uint64_t pieces_ns) {
  int last = 0;
  for (int i = 0; i < steps; ++i) {
    const bool shares = choice.even_shares(true);
    choice.record(shares, shares ? shares_ns : pieces_ns);
    if (i >= steps - 100) last += shares;
  }
  return last;
}

void takes_what_is_faster() {
  SplitChoice choice;
  CHECK(choice.even_shares(false));
  CHECK(run(choice, 1000, 1000, 1200) >= 96);  // all but the trials
  CHECK(run(choice, 1000, 1000, 700) <= 4);    // a core became slow
  CHECK(!choice.even_shares(false));
  CHECK(run(choice, 1000, 1000, 1200) >= 96);
  CHECK(run(choice, 1000, 1000, 990) >= 96);  // not worth a change
}

void one_slow_run_changes_nothing() {
  SplitChoice choice;
  run(choice, 1000, 1000, 1200);
  choice.record(true, 1'000'000'000);
  CHECK(run(choice, 100, 1000, 1200) >= 96);
}

}  // namespace

int main() {
  takes_what_is_faster();
  one_slow_run_changes_nothing();
}
