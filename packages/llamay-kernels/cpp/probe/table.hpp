#pragma once

#include <stddef.h>
#include <stdint.h>

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// Probes of the highest rates of a kernel set's instructions, one table for each set.
struct ProbeTable {
  /// Reads all bytes (a multiple of 512, 64-byte aligned), in increasing order; returns a value that depends
  /// on all of them.
  uint64_t (*read)(const void* data, size_t bytes);
  /// Integer dot products in registers, `rounds` times; returns the number of multiplications and additions
  /// of 8-bit integers, and in *sink a value that depends on them.
  uint64_t (*dot)(uint64_t rounds, uint64_t* sink);
};

}  // namespace llamay
