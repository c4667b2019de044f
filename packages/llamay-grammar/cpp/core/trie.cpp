#include "trie.h"

#include <algorithm>
#include <array>

namespace llamay::grammar {

uint32_t byte_class(uint8_t b) {
  static const std::array<uint8_t, 128> table = [] {
    std::array<uint8_t, 128> t{};
    uint8_t next = 8;
    for (int c = 0; c < 128; ++c) {
      if (c >= '0' && c <= '9')
        t[c] = 0;
      else if (c >= 'a' && c <= 'f')
        t[c] = 1;
      else if (c >= 'g' && c <= 'z')
        t[c] = 2;
      else if (c >= 'A' && c <= 'F')
        t[c] = 3;
      else if (c >= 'G' && c <= 'Z')
        t[c] = 4;
      else if (c == '\n')
        t[c] = 5;
      else if (c == '\t' || c == '\r')
        t[c] = 6;
      else if (c < 32 || c == 127)
        t[c] = 7;
      else
        t[c] = next++;  // space and 32 punctuation characters
    }
    return t;
  }();
  return table[b & 127];
}

void Trie::build(std::vector<std::pair<std::string_view, uint32_t>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  byte_.assign(1, 0), end_.assign(1, 0), first_.assign(1, 0), here_.assign(1, 0);
  tokens_.clear();
  std::vector<uint32_t> path{0};             // nodes on the path to the previous token
  std::vector<int> need{0};                  // continuation bytes still missing after each of them
  std::vector<uint32_t> lead{kClassBroken};  // the class of the character that they are inside of
  std::string_view last;
  for (auto& [text, id] : tokens) {
    size_t common = 0;
    while (common < text.size() && common < last.size() && text[common] == last[common]) ++common;
    while (path.size() > common + 1) {
      end_[path.back()] = static_cast<uint32_t>(end_.size());
      path.pop_back(), need.pop_back(), lead.pop_back();
    }
    for (size_t i = common; i < text.size(); ++i) {
      uint8_t b = static_cast<uint8_t>(text[i]);
      int before = need.back(), after;
      uint32_t cls = kClassBroken;
      if (b < 0x80) {
        after = 0;
        if (before == 0) cls = byte_class(b);
      } else if (b < 0xC0) {
        after = before > 0 ? before - 1 : 0;
        if (before > 0) cls = lead.back();
      } else {
        after = b < 0xE0 ? 1 : b < 0xF0 ? 2 : 3;
        // E0, ED and F0 to F4 restrict the byte after them; they are walked byte by byte.
        if (before == 0)
          for (uint32_t k = 0; k < std::size(kLeadClasses); ++k)
            if (b >= kLeadClasses[k].first && b <= kLeadClasses[k].last) cls = kFirstLeadClass + k;
      }
      lead.push_back(cls);
      path.push_back(static_cast<uint32_t>(end_.size()));
      need.push_back(after);
      byte_.push_back(b);
      end_.push_back(0);
      first_.push_back(static_cast<uint32_t>(tokens_.size()));
      here_.push_back(uint64_t{1} << cls);
    }
    tokens_.push_back(id);
    last = text;
  }
  for (uint32_t n : path) end_[n] = static_cast<uint32_t>(end_.size());
  below_.assign(end_.size(), 0);
  for (uint32_t n = size(); n-- > 0;)
    for (uint32_t c = n + 1; c < end_[n]; c = end_[c]) below_[n] |= here_[c] | below_[c];
}

}  // namespace llamay::grammar
