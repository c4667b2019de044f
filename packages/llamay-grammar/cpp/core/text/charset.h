// Sets of Unicode scalar values as sorted ranges.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "text/unicode.h"

namespace llamay::grammar {

// Whitespace beyond ASCII as ECMA-262 has it: WhiteSpace and LineTerminator, the byte order mark among them.
constexpr std::pair<uint32_t, uint32_t> kWideSpaces[] = {{0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
                                                         {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                                                         {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

// Ranges may be added in any order; every other method needs them normalised.
struct CharSet {
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // inclusive, sorted, disjoint, not adjacent

  static CharSet of(std::initializer_list<std::pair<uint32_t, uint32_t>> r) {
    CharSet s;
    s.ranges.assign(r.begin(), r.end());
    s.normalise();
    return s;
  }
  static CharSet all() { return of({{0, kFirstSurrogate - 1}, {kBehindSurrogates, kMaxCodePoint}}); }
  void add(uint32_t lo, uint32_t hi) { ranges.emplace_back(lo, hi); }
  void add(const CharSet& o) { ranges.insert(ranges.end(), o.ranges.begin(), o.ranges.end()); }
  void normalise() {
    std::sort(ranges.begin(), ranges.end());
    std::vector<std::pair<uint32_t, uint32_t>> out;
    for (auto r : ranges) {
      if (!out.empty() && r.first <= out.back().second + 1)
        out.back().second = std::max(out.back().second, r.second);
      else
        out.push_back(r);
    }
    ranges = std::move(out);
  }
  CharSet complement() const {  // within the scalar values
    CharSet s;
    uint32_t next = 0;
    for (auto r : ranges) {
      if (r.first > next) s.add(next, r.first - 1);
      next = r.second + 1;
    }
    if (next <= kMaxCodePoint) s.add(next, kMaxCodePoint);
    return s.without_surrogates();
  }
  CharSet without_surrogates() const {
    CharSet s;
    for (auto r : ranges) {
      if (r.first < kFirstSurrogate) s.add(r.first, std::min(r.second, kFirstSurrogate - 1));
      if (r.second >= kBehindSurrogates) s.add(std::max(r.first, kBehindSurrogates), r.second);
    }
    s.normalise();
    return s;
  }
};

}  // namespace llamay::grammar
