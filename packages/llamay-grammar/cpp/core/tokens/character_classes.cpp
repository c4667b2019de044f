#include "tokens/character_classes.h"

#include <algorithm>

#include "text/charset.h"

namespace llamay::grammar {

uint64_t character_classes(uint32_t lo, uint32_t hi) {
  uint64_t out = 0;
  for (uint32_t c = lo; c <= hi && c < 128; ++c) out |= uint64_t{1} << byte_class(static_cast<uint8_t>(c));
  for (const auto& [first, last] : kWideSpaces)
    if (lo <= last && hi >= first) out |= uint64_t{1} << kClassSpace;
  uint64_t bit = uint64_t{1} << kFirstLeadClass;
  for (const LeadClass& x : kLeadClasses) {
    uint32_t from = std::max(lo, x.lo), to = std::min(hi, x.hi);
    // The rest of the range without whitespace at either end must not be empty. A range between two
    // whitespace characters is not empty.
    for (const auto& [first, last] : kWideSpaces) {
      if (from >= first && from <= last) from = last + 1;
      if (to >= first && to <= last) to = first - 1;
    }
    if (from <= to) out |= bit;
    bit <<= 1;
  }
  return out;
}

uint64_t character_classes(const char* bytes, uint32_t n, uint32_t length) {
  const uint8_t first = static_cast<uint8_t>(bytes[0]);
  if (length == 1) return uint64_t{1} << byte_class(first);
  uint32_t point = first & (0x7Fu >> length);
  for (uint32_t i = 1; i < n; ++i) point = point << 6 | (static_cast<uint8_t>(bytes[i]) & 63u);
  const uint32_t missing = 6 * (length - n), lo = point << missing;
  const uint32_t hi = lo + ((uint32_t{1} << missing) - 1);
  for (const LeadClass& x : kLeadClasses)
    if (first >= x.first && first <= x.last) return character_classes(std::max(lo, x.lo), std::min(hi, x.hi));
  return uint64_t{1} << kClassBroken;
}

uint32_t count_code_points(std::string_view text) {
  uint32_t n = 0;
  for (const char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace llamay::grammar
