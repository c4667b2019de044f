// Limits on time, states and size that every stage of the compiler shares.
#pragma once

#include <cstdint>

namespace llamay::grammar {

// The limits of one compilation. Every stage of the compiler checks the limits before it grows, so that a
// hostile input is refused in bounded time and memory and leaves the process as it was.
struct Budget {
  double seconds = 5.0;
  uint32_t automaton_states = 20000;  // of one automaton
  uint64_t total_states = 2000000;    // table cells of all automata of one grammar, in units of a state
  uint32_t alternatives = 4096;       // of one value
  uint32_t nodes = 200000;            // distinct values, formulas
  uint32_t depth = 256;               // nesting of the source text

  double start = now();  // in seconds of a clock that never goes back
  uint32_t ticks = 0;

  // The form of check_time for inner loops: it reads the clock once in 256 calls.
  void tick() {
    if ((++ticks & 255u) == 0) check_time();
  }
  // Throws CompileError("budget", ...) once the time is used up.
  void check_time() const;
  static double now();
};

}  // namespace llamay::grammar
