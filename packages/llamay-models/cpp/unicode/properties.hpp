#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace llamay::unicode {

/// Every code point is in exactly one of these; a set of classes is their union.
enum Class : uint16_t {
  kUpper = 1 << 0,        ///< Lu, Lt
  kLower = 1 << 1,        ///< Ll
  kOtherLetter = 1 << 2,  ///< Lm, Lo
  kMark = 1 << 3,
  kDecimal = 1 << 4,  ///< Nd, what \d matches
  kPunctuation = 1 << 5,
  kSymbol = 1 << 6,
  kSpace = 1 << 7,        ///< White_Space, what \s matches
  kOther = 1 << 8,        ///< controls, unassigned, private use; and bytes that are no character
  kOtherNumber = 1 << 9,  ///< Nl, No
  kNumber = kDecimal | kOtherNumber,
  kLetter = kUpper | kLower | kOtherLetter,
};

/// The class of a code point; kOther for everything beyond U+10FFFF.
Class class_of(uint32_t code_point);

/// Simple lower case.
uint32_t lower(uint32_t code_point);

/// Canonical decomposition (NFD) in canonical order.
std::vector<uint32_t> nfd(const std::vector<uint32_t>& text);

}  // namespace llamay::unicode
