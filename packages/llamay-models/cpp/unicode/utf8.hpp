#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace llamay::unicode {

/// The value that decode() returns for a byte that starts no well-formed character.
inline constexpr uint32_t kInvalid = 0xFFFFFFFF;

struct Decoded {
  uint32_t code_point;  ///< kInvalid for a malformed byte
  uint32_t length;      ///< bytes taken: 1 to 4, always 1 for a malformed byte
};

/// The character at text[at]. Well-formed in the sense of Unicode 3.9, table 3-7: no overlong forms, no
/// surrogates.
inline Decoded decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t left = text.size() - at;
  const auto trail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  if (lead >= 0xC2 && lead <= 0xDF && left >= 2 && trail(1))
    return {(lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead >= 0xE0 && lead <= 0xEF && left >= 3 && trail(1) && trail(2)) {
    const uint32_t c = (lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) return {c, 3};
  }
  if (lead >= 0xF0 && lead <= 0xF4 && left >= 4 && trail(1) && trail(2) && trail(3)) {
    const uint32_t c =
        (lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu);
    if (c >= 0x10000 && c <= 0x10FFFF) return {c, 4};
  }
  return {kInvalid, 1};
}

inline bool is_valid(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Decoded d = decode(text, at);
    if (d.code_point == kInvalid) return false;
    at += d.length;
  }
  return true;
}

inline void append(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

}  // namespace llamay::unicode
