// Code points and how texts write them: UTF-8 (RFC 3629), surrogate pairs and hexadecimal digits of escapes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace llamay::grammar {

constexpr uint32_t kMaxCodePoint = 0x10FFFF;

// Code points that are no characters: UTF-16 writes those beyond U+FFFF as a high one and a low one.
constexpr uint32_t kFirstSurrogate = 0xD800, kFirstLowSurrogate = 0xDC00, kBehindSurrogates = 0xE000;

inline bool is_surrogate(uint32_t cp) { return cp >= kFirstSurrogate && cp < kBehindSurrogates; }
inline bool is_high_surrogate(uint32_t cp) { return cp >= kFirstSurrogate && cp < kFirstLowSurrogate; }
inline bool is_low_surrogate(uint32_t cp) { return cp >= kFirstLowSurrogate && cp < kBehindSurrogates; }
inline uint32_t from_surrogates(uint32_t high, uint32_t low) {
  return 0x10000 + ((high - kFirstSurrogate) << 10) + (low - kFirstLowSurrogate);
}

// The value of a hexadecimal digit, -1 for any other character.
inline int hex_value(uint32_t c) {
  if (c >= '0' && c <= '9') return static_cast<int>(c - '0');
  const uint32_t lower = c | 32;
  return lower >= 'a' && lower <= 'f' ? static_cast<int>(lower - 'a' + 10) : -1;
}

// Throws CompileError when a source is not well-formed UTF-8, on which every reader of it relies.
void require_utf8(std::string_view source);

void append_utf8(std::string& out, uint32_t cp);

// Reads the code point that begins at text[at], in bytes, and moves `at` behind it. A character that is cut
// off at the end of the text is made of the bytes that are there, so that no caller reads past it.
inline uint32_t next_code_point(std::string_view text, size_t& at) {
  const uint8_t lead = static_cast<uint8_t>(text[at]);
  const size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t cp = length == 1 ? lead : lead & (0x7Fu >> length);
  for (size_t k = 1; k < length && at + k < text.size(); ++k)
    cp = cp << 6 | (static_cast<uint8_t>(text[at + k]) & 63u);
  at += length;
  return cp;
}

std::vector<uint32_t> code_points(std::string_view utf8);

}  // namespace llamay::grammar
