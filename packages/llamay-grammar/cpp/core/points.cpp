#include "points.h"

#include <algorithm>

namespace llamay::grammar {

namespace {

// White_Space of the Unicode Character Database beyond Latin-1's controls, and the byte order mark, which
// ECMAScript counts too.
struct Interval {
  uint32_t lo, hi;
};
constexpr Interval kSpaces[] = {{0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                                {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};

}  // namespace

uint64_t point_classes(uint32_t lo, uint32_t hi) {
  uint64_t out = 0;
  for (uint32_t c = lo; c <= hi && c < 128; ++c) out |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
  for (const Interval& x : kSpaces)
    if (lo <= x.hi && hi >= x.lo) out |= uint64_t{1} << kClassSpace;
  uint64_t bit = uint64_t{1} << kFirstLeadClass;
  for (const LeadClass& x : kLeadClasses) {
    uint32_t from = std::max(lo, x.lo), to = std::min(hi, x.hi);
    // Without the spaces at either end, something must be left; what lies between two of them is.
    for (const Interval& s : kSpaces)
      if (from >= s.lo && from <= s.hi) from = s.hi + 1;
    for (const Interval& s : kSpaces)
      if (to >= s.lo && to <= s.hi) to = s.lo - 1;
    if (from <= to) out |= bit;
    bit <<= 1;
  }
  return out;
}

uint64_t point_classes(const char* bytes, uint32_t n, uint32_t length) {
  const uint8_t first = static_cast<uint8_t>(bytes[0]);
  if (length == 1) return uint64_t{1} << byte_class(first);
  uint32_t point = first & (0x7Fu >> length);
  for (uint32_t i = 1; i < n; ++i) point = point << 6 | (static_cast<uint8_t>(bytes[i]) & 63u);
  const uint32_t missing = 6 * (length - n), lo = point << missing;
  const uint32_t hi = lo + ((uint32_t{1} << missing) - 1);
  for (const LeadClass& x : kLeadClasses)
    if (first >= x.first && first <= x.last) return point_classes(std::max(lo, x.lo), std::min(hi, x.hi));
  return uint64_t{1} << kClassBroken;
}

}  // namespace llamay::grammar
