#pragma once

#include <stddef.h>
#include <stdint.h>

// No C++ library header here: the sources of the kernel sets include this file.

namespace llamay {

/// What a kernel set's instructions can do at best, one table a set.
struct ProbeTable {
  /// Reads all bytes (a multiple of 512, 64-byte aligned), in one line; returns something that depends on
  /// them.
  uint64_t (*read)(const void* data, size_t bytes);
  /// Integer dot products in registers, `rounds` times; returns how many multiplications and additions of
  /// 8-bit integers that was, and in *sink something that depends on them.
  uint64_t (*dot)(uint64_t rounds, uint64_t* sink);
};

}  // namespace llamay
