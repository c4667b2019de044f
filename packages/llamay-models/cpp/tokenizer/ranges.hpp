#pragma once
// Sets of code points, and runs of them, which the passes share.

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tokenizer/characters.hpp"

namespace llamay::tokenizer::passes {

inline constexpr uint32_t kAnything = 0xFFFF;  ///< every class

struct Range {
  uint32_t first, last;
};

template <size_t N>
bool in(uint32_t c, const Range (&ranges)[N]) {
  const auto after = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                      [](uint32_t v, const Range& r) { return v < r.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

inline bool is_newline(uint32_t c) { return c == '\r' || c == '\n'; }
inline bool is_ascii_letter(uint32_t c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
inline bool is_ascii_digit(uint32_t c) { return c >= '0' && c <= '9'; }
inline bool is_ascii_punctuation(uint32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

template <class Holds>
uint32_t run_while(const Characters& t, uint32_t at, uint32_t end, Holds holds) {
  while (at < end && holds(t.code(at))) ++at;
  return at;
}

}  // namespace llamay::tokenizer::passes
