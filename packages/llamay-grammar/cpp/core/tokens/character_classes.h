// Classes of characters, by which tokens are grouped: in ASCII the trie's classes of bytes, beyond ASCII the
// classes of first bytes. Whitespace is a separate class, since regular expressions distinguish whitespace
// from its neighbours.
#pragma once

#include <cstdint>
#include <string_view>

#include "tokens/trie.h"

namespace llamay::grammar {

constexpr uint32_t kClassSpace = kFirstLeadClass + sizeof(kLeadClasses) / sizeof(kLeadClasses[0]);
static_assert(kClassSpace < kClassBroken);

// The classes of the characters from lo to hi, one bit each.
uint64_t character_classes(uint32_t lo, uint32_t hi);

// The classes of all characters that begin with `bytes`, the first `n` bytes of a well-formed character of
// `length` bytes; one class where n is length.
uint64_t character_classes(const char* bytes, uint32_t n, uint32_t length);

// Returns the number of characters of a text. A character that is cut off at the end counts; a character
// without its first byte does not count.
uint32_t count_code_points(std::string_view text);

}  // namespace llamay::grammar
