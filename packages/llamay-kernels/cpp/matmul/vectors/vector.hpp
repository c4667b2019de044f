#pragma once

#include <stddef.h>
#include <stdint.h>

// The few vector operations of the matrix products, for the kernel set that is being compiled. LLAMAY_VECTOR
// is defined where the set has vectors; the portable set uses portable.hpp instead. A vector has kLanes lanes
// of 32 bits; the sixteen rows of a group are kSlices vectors.

#define LLAMAY_INLINE inline __attribute__((always_inline))

#if defined(__AVX2__) || defined(LLAMAY_NEON)
#define LLAMAY_VECTOR

namespace llamay {
namespace {

LLAMAY_INLINE int32_t load_i32(const void* at) {
  int32_t value;
  __builtin_memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace
}  // namespace llamay

#ifdef LLAMAY_NEON
#include "matmul/vectors/vector_neon.hpp"
#else
#include "matmul/vectors/vector_x86.hpp"
#endif

namespace llamay {
namespace {

constexpr int kSlices = 16 / kLanes;

/// A lane's low, its high 16 bits as a signed integer.
LLAMAY_INLINE Ints first_of_pair(Bytes pairs) { return shift_right32<16>(shift_left32<16>(pairs)); }
LLAMAY_INLINE Ints second_of_pair(Bytes pairs) { return shift_right32<16>(pairs); }

template <int i>
struct Index {
  static constexpr int value = i;
};
/// f(Index<0>{}), …, f(Index<n - 1>{}): a loop whose counter is a constant, as shift counts must be.
template <int n, int i = 0, class F>
LLAMAY_INLINE void unrolled(const F& f) {
  if constexpr (i < n) {
    f(Index<i>{});
    unrolled<n, i + 1>(f);
  }
}

}  // namespace
}  // namespace llamay
#endif
