// Reading text byte by byte into code points: UTF-8, and inside JSON strings also escapes and surrogate
// pairs.
//
// The state of the scanner is one word. After each byte the scanner asks the caller whether the automaton can
// read a code point that is still possible, so a token that ends inside a character or an escape is judged
// exactly.
#pragma once

#include <cstdint>

#include "text/unicode.h"

namespace llamay::grammar {

enum class Scan : uint8_t { Dead, Live, Close };

namespace scan {
constexpr uint32_t kText = 0, kUtf8 = 1, kEscape = 2, kHex = 3, kPairSlash = 4, kPairU = 5, kPairHex = 6;
}

// Whether `any` holds for a control character without a short escape; JSON can write such a character only
// with \u and digits.
template <class Any>
inline bool any_in_digits(uint32_t lo, uint32_t hi, Any any) {
  constexpr uint32_t ranges[3][2] = {{0, 7}, {11, 11}, {14, 31}};
  for (const auto& r : ranges)
    if (lo <= r[1] && hi >= r[0] && any(lo > r[0] ? lo : r[0], hi < r[1] ? hi : r[1])) return true;
  return false;
}

// `canonical`: every character has one spelling: itself where JSON allows that, else its short escape, else
// the escape with digits. consume(cp) takes a code point and returns false if no text goes on with it.
// any(lo, hi) tells whether some code point of the range could be consumed.
template <bool kJson, class Consume, class Any>
inline Scan scan_byte(uint32_t& state, uint8_t b, Consume consume, Any any, bool canonical = false) {
  using namespace scan;
  const uint32_t kind = state & 7;
  auto live = [](bool ok) { return ok ? Scan::Live : Scan::Dead; };
  switch (kind) {
    case kText: {
      if (b < 0x80) {
        if constexpr (kJson) {
          if (b == '"') return Scan::Close;
          if (b == '\\') {
            state = kEscape;
            return live(canonical ? any(0, 31) || any('"', '"') || any('\\', '\\') : any(0, 0x10FFFF));
          }
          if (b < 0x20) return Scan::Dead;
        }
        return live(consume(b));
      }
      if (b < 0xC2 || b > 0xF4) return Scan::Dead;
      uint32_t total = b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
      uint32_t acc = b & (0x7Fu >> total), lo = acc << (6 * (total - 1)),
               hi = lo | ((1u << (6 * (total - 1))) - 1);
      state = kUtf8 | (total - 1) << 3 | (total - 1) << 5 | acc << 8;
      if (total == 3 && lo < 0x800) lo = 0x800;
      if (total == 3 && acc == 0xD) hi = 0xD7FF;
      if (total == 4 && lo < 0x10000) lo = 0x10000;
      if (hi > 0x10FFFF) hi = 0x10FFFF;
      return live(any(lo, hi));
    }
    case kUtf8: {
      if ((b & 0xC0) != 0x80) return Scan::Dead;
      uint32_t left = (state >> 3 & 3) - 1, total = (state >> 5 & 3) + 1, acc = (state >> 8) << 6 | (b & 63u);
      uint32_t lo = acc << (6 * left), hi = lo | ((1u << (6 * left)) - 1);
      uint32_t least = total == 2 ? 0x80 : total == 3 ? 0x800 : 0x10000;
      if (hi < least || lo > 0x10FFFF || (lo >= 0xD800 && hi <= 0xDFFF)) return Scan::Dead;
      if (left == 0) {
        state = kText;
        return live(consume(acc));
      }
      state = kUtf8 | left << 3 | (total - 1) << 5 | acc << 8;
      return live(any(lo < least ? least : lo, hi > 0x10FFFF ? 0x10FFFF : hi));
    }
    case kEscape: {
      uint32_t cp;
      switch (b) {
        case '"':
        case '\\':
          cp = b;
          break;
        case '/':
          if (canonical) return Scan::Dead;
          cp = b;
          break;
        case 'b':
          cp = 8;
          break;
        case 'f':
          cp = 12;
          break;
        case 'n':
          cp = 10;
          break;
        case 'r':
          cp = 13;
          break;
        case 't':
          cp = 9;
          break;
        case 'u':
          state = kHex;
          return live(canonical ? any_in_digits(0, 31, any) : any(0, 0x10FFFF));
        default:
          return Scan::Dead;
      }
      state = kText;
      return live(consume(cp));
    }
    case kHex: {
      int h = hex_value(b);
      if (h < 0) return Scan::Dead;
      uint32_t n = (state >> 3 & 3) + 1, acc = (state >> 8) << 4 | static_cast<uint32_t>(h);
      if (n == 4) {
        if (canonical && !any_in_digits(acc, acc, [](uint32_t, uint32_t) { return true; })) return Scan::Dead;
        if (acc >= 0xD800 && acc <= 0xDBFF) {
          state = kPairSlash | (acc - 0xD800) << 8;
          uint32_t lo = 0x10000 + ((acc - 0xD800) << 10);
          return live(any(lo, lo + 0x3FF));
        }
        if (acc >= 0xDC00 && acc <= 0xDFFF) return Scan::Dead;  // a lone surrogate is no character
        state = kText;
        return live(consume(acc));
      }
      state = kHex | n << 3 | acc << 8;
      uint32_t lo = acc << (4 * (4 - n)), hi = lo | ((1u << (4 * (4 - n))) - 1);
      if (canonical) return live(any_in_digits(lo, hi, any));
      bool ok = (lo < 0xD800 && any(lo, hi < 0xD7FF ? hi : 0xD7FF)) ||
                (hi > 0xDFFF && any(lo > 0xE000 ? lo : 0xE000, hi));
      if (!ok && hi >= 0xD800 && lo <= 0xDBFF) {
        uint32_t a = lo > 0xD800 ? lo - 0xD800 : 0, z = (hi < 0xDBFF ? hi : 0xDBFF) - 0xD800;
        ok = any(0x10000 + (a << 10), 0x10000 + (z << 10) + 0x3FF);
      }
      return live(ok);
    }
    case kPairSlash:
      if (b != '\\') return Scan::Dead;
      state = kPairU | (state & ~7u);
      return Scan::Live;
    case kPairU:
      if (b != 'u') return Scan::Dead;
      state = kPairHex | (state & ~7u);
      return Scan::Live;
    default: {  // kPairHex: bits 8..17 the high surrogate, 18..29 the digits of the low one
      int h = hex_value(b);
      if (h < 0) return Scan::Dead;
      uint32_t n = (state >> 3 & 3) + 1, high = state >> 8 & 0x3FF,
               acc = (state >> 18) << 4 | static_cast<uint32_t>(h);
      uint32_t lo = acc << (4 * (4 - n)), hi = lo | ((1u << (4 * (4 - n))) - 1);
      if (hi < 0xDC00 || lo > 0xDFFF) return Scan::Dead;
      if (lo < 0xDC00) lo = 0xDC00;
      if (hi > 0xDFFF) hi = 0xDFFF;
      uint32_t base = 0x10000 + (high << 10);
      if (n == 4) {
        state = kText;
        return live(consume(base + lo - 0xDC00));
      }
      state = kPairHex | n << 3 | high << 8 | acc << 18;
      return live(any(base + lo - 0xDC00, base + hi - 0xDC00));
    }
  }
}

}  // namespace llamay::grammar
