// A position in a text of code points, for the readers of regular expressions and of grammars.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "text/unicode.h"

namespace llamay::grammar {

class TextCursor {
 protected:
  explicit TextCursor(std::string_view utf8) : p_(code_points(utf8)) {}

  bool more() const { return i_ < p_.size(); }
  bool at(uint32_t c) const { return i_ < p_.size() && p_[i_] == c; }
  bool at(std::string_view ascii) const {
    if (p_.size() - i_ < ascii.size()) return false;
    return std::equal(ascii.begin(), ascii.end(), p_.begin() + static_cast<std::ptrdiff_t>(i_));
  }
  // Steps over the character `c` if it is the next one, and tells whether it was.
  bool consume(uint32_t c) { return at(c) ? (++i_, true) : false; }
  // A decimal number, or `most` where it is larger; nothing where there is no digit.
  std::optional<uint32_t> decimal(uint32_t most) {
    if (!more() || p_[i_] < '0' || p_[i_] > '9') return std::nullopt;
    uint64_t v = 0;
    while (more() && p_[i_] >= '0' && p_[i_] <= '9') v = std::min<uint64_t>(v * 10 + p_[i_++] - '0', most);
    return static_cast<uint32_t>(v);
  }

  std::vector<uint32_t> p_;
  size_t i_ = 0;
};

}  // namespace llamay::grammar
