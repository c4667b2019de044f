#pragma once

#include <cstddef>

#include "threads/threads.hpp"

namespace llamay {

/// Rates that this machine gives the measuring threads at the moment: the best of a few short tries.
struct Limits {
  double read_bandwidth;  // bytes a second, from memory
  double int8_ops;        // multiplications and additions a second, in the kernel set in use
  unsigned threads;
  const char* isa;
};

/// Takes about a second and 64 to 256 MiB.
Limits measure_limits(Threads& threads);

}  // namespace llamay
