#include "unicode/properties.hpp"

#include <algorithm>
#include <iterator>
#include <memory>

namespace llamay::unicode {
namespace {

struct RangeStart {
  uint32_t first;
  uint8_t value;
};
struct Pair {
  uint32_t from;
  uint32_t to;
};
struct Decomposition {
  uint32_t from;
  uint32_t to[4];
};

#include "unicode/tables.inc"

constexpr uint32_t kEnd = 0x110000;

/// One byte for every code point: a lookup is one load, and text touches only a few of its pages.
struct ClassTable {
  std::unique_ptr<uint8_t[]> shift{new uint8_t[kEnd]};
  ClassTable() {
    for (size_t i = 0; i < std::size(kClassRanges); ++i) {
      const uint32_t end = i + 1 < std::size(kClassRanges) ? kClassRanges[i + 1].first : kEnd;
      std::fill(&shift[kClassRanges[i].first], &shift[0] + end, kClassRanges[i].value);
    }
  }
};

uint8_t combining_class(uint32_t c) {
  const auto after = std::upper_bound(std::begin(kCombiningRanges), std::end(kCombiningRanges), c,
                                      [](uint32_t v, const RangeStart& r) { return v < r.first; });
  return std::prev(after)->value;
}

template <class Row, size_t N>
const Row* find(const Row (&rows)[N], uint32_t c) {
  const auto at = std::lower_bound(std::begin(rows), std::end(rows), c,
                                   [](const Row& r, uint32_t v) { return r.from < v; });
  return at != std::end(rows) && at->from == c ? at : nullptr;
}

void decompose(uint32_t c, std::vector<uint32_t>& out) {
  constexpr uint32_t kHangul = 0xAC00, kLeads = 19, kVowels = 21, kTails = 28;  // Unicode 3.12
  if (c >= kHangul && c < kHangul + kLeads * kVowels * kTails) {
    const uint32_t index = c - kHangul;
    out.push_back(0x1100 + index / (kVowels * kTails));
    out.push_back(0x1161 + index % (kVowels * kTails) / kTails);
    if (index % kTails) out.push_back(0x11A7 + index % kTails);
  } else if (const auto* row = find(kDecompositions, c)) {
    for (const uint32_t part : row->to)
      if (part) out.push_back(part);
  } else {
    out.push_back(c);
  }
}

}  // namespace

Class class_of(uint32_t code_point) {
  static const ClassTable table;
  return code_point < kEnd ? static_cast<Class>(1u << table.shift[code_point]) : kOther;
}

uint32_t lower(uint32_t code_point) {
  if (code_point < 0x80) return code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point;
  const auto* row = find(kLowercase, code_point);
  return row ? row->to : code_point;
}

std::vector<uint32_t> nfd(const std::vector<uint32_t>& text) {
  std::vector<uint32_t> out;
  out.reserve(text.size());
  for (const uint32_t c : text) decompose(c, out);
  for (size_t i = 0; i < out.size();) {
    size_t end = i;
    while (end < out.size() && combining_class(out[end]) != 0) ++end;
    std::stable_sort(out.begin() + static_cast<ptrdiff_t>(i), out.begin() + static_cast<ptrdiff_t>(end),
                     [](uint32_t a, uint32_t b) { return combining_class(a) < combining_class(b); });
    i = end + 1;
  }
  return out;
}

}  // namespace llamay::unicode
