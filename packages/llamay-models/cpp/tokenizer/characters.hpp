#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "unicode/properties.hpp"

namespace llamay::tokenizer {

/// A text as characters: what the pre-tokenizers look at. A byte that is no character counts as one of class
/// kOther.
class Characters {
 public:
  explicit Characters(std::string_view bytes);

  std::string_view bytes() const { return bytes_; }
  uint32_t size() const { return static_cast<uint32_t>(code_.size()); }
  uint32_t code(uint32_t i) const { return code_[i]; }
  bool is(uint32_t i, uint32_t classes) const { return (class_[i] & classes) != 0; }
  /// Byte at which character i starts; size() gives the end of the text.
  uint32_t start(uint32_t i) const { return start_[i]; }

  /// First position in [from, end) that is not in `classes`, or end.
  uint32_t run(uint32_t from, uint32_t end, uint32_t classes) const {
    while (from < end && is(from, classes)) ++from;
    return from;
  }

 private:
  std::string_view bytes_;
  std::vector<uint32_t> code_;
  std::vector<uint16_t> class_;
  std::vector<uint32_t> start_;
};

}  // namespace llamay::tokenizer
