// Mixing of words into a hash, for tables whose entries are compared in full.
#pragma once

#include <cstdint>

namespace llamay::grammar {

// One more word into a hash: the odd multiplier is 2^64 over the golden ratio (D. E. Knuth, "The Art of
// Computer Programming", volume 3, section 6.4); the shift brings its high bits to where tables look.
inline uint64_t hash_mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15ull;
  return hash ^ hash >> 32;
}

}  // namespace llamay::grammar
