// Classes of characters, by which the groups of tokens are told apart: in ASCII the trie's classes of bytes,
// beyond it those of first bytes, but for whitespace, which regular expressions tell from its neighbours.
#pragma once

#include <cstdint>
#include <string_view>

#include "tokens/trie.h"

namespace llamay::grammar {

constexpr uint32_t kClassSpace = kFirstLeadClass + sizeof(kLeadClasses) / sizeof(kLeadClasses[0]);
static_assert(kClassSpace < kClassBroken);

// The classes of the characters from lo to hi, one bit each.
uint64_t character_classes(uint32_t lo, uint32_t hi);

// The classes of all characters that begin with these bytes: of one, where they are all of it. `bytes` is
// part of a well-formed character of `length` bytes.
uint64_t character_classes(const char* bytes, uint32_t n, uint32_t length);

// How many characters a text has: one that is cut off at its end counts, one whose beginning is missing does
// not.
uint32_t count_code_points(std::string_view text);

}  // namespace llamay::grammar
