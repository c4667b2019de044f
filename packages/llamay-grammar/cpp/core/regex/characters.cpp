// Escapes and classes of characters, from text to sets.
#include "regex/characters.h"

#include <utility>

#include "support/compile_error.h"
#include "text/unicode_properties.h"

namespace llamay::grammar {
namespace {

// What \d, \w, \s and the dot stand for, or leave out: CompileAtom and CompileToCharSet in
// ECMA-262, section 22.2.2.
const CharSet kDigit = CharSet::of({{'0', '9'}});
const CharSet kWord = CharSet::of({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
const CharSet kSpace = [] {
  CharSet s = CharSet::of({{9, 13}, {32, 32}});
  for (const auto& [first, last] : kWideSpaces) s.add(first, last);
  return s;
}();
const CharSet kLineEnd = CharSet::of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});

// With the other case of every letter of ASCII in it.
CharSet with_both_cases(CharSet s) {
  CharSet other;
  for (auto [lo, hi] : s.ranges)
    for (uint32_t c = 'a'; c <= 'z'; ++c) {
      const uint32_t upper = c - 32;
      if (c >= lo && c <= hi) other.add(upper, upper);
      if (upper >= lo && upper <= hi) other.add(c, c);
    }
  s.add(other);
  s.normalise();
  return s;
}

}  // namespace

void RegexCharacters::fail(const std::string& what) const {
  std::string shown(source_.substr(0, 80));
  throw CompileError("pattern", "",
                     what + " at character " + std::to_string(i_) + " of the regular expression /" + shown +
                         (source_.size() > 80 ? "…" : "") + "/");
}

CharSet RegexCharacters::dot() { return kLineEnd.complement(); }

CharSet RegexCharacters::meant(CharSet s) const {
  if (fold_) s = with_both_cases(std::move(s));
  return s;
}

bool RegexCharacters::set_escape(CharSet& s) {
  const uint32_t c = p_[i_];
  switch (c | 32) {
    case 'd':
      s = kDigit;
      break;
    case 'w':
      s = kWord;
      break;
    case 's':
      s = kSpace;
      break;
    case 'p': {
      ++i_;
      if (!consume('{')) fail("expected '{' after \\p");
      std::string name;
      while (more() && !at('}')) append_utf8(name, p_[i_++]);
      if (!more()) fail("unterminated property name");
      s = property(name);
      break;
    }
    default:
      return false;
  }
  ++i_;
  if (c < 'a') s = s.complement();
  return true;
}

CharSet RegexCharacters::property(std::string name) const {
  for (const std::string_view prefix : {"General_Category=", "gc="})
    if (name.starts_with(prefix)) name.erase(0, prefix.size());
  if (auto set = unicode_property(name)) return *std::move(set);
  fail("the Unicode property '" + name + "', which is not supported,");
}

uint32_t RegexCharacters::hex(int digits) {
  uint32_t v = 0;
  for (int k = 0; k < digits; ++k) {
    const int d = hex_value(more() ? p_[i_++] : 0);
    if (d < 0) fail("bad hexadecimal escape");
    v = v * 16 + static_cast<uint32_t>(d);
  }
  return v;
}

uint32_t RegexCharacters::escape(bool in_class) {
  uint32_t c = p_[i_++];
  switch (c) {
    case 't':
      return '\t';
    case 'n':
      return '\n';
    case 'v':
      return '\v';
    case 'f':
      return '\f';
    case 'r':
      return '\r';
    case 'b':
      if (in_class) return '\b';
      break;
    case '0':
      if (more() && p_[i_] >= '0' && p_[i_] <= '9') fail("an octal escape");
      return 0;
    case 'c':
      if (more() && ((p_[i_] | 32) >= 'a' && (p_[i_] | 32) <= 'z')) return p_[i_++] & 31;
      fail("bad control escape");
    case 'x':
      return hex(2);
    case 'u': {
      if (consume('{')) {
        uint32_t v = 0;
        if (at('}')) fail("bad hexadecimal escape");
        while (more() && !at('}')) {
          size_t back = i_;
          v = v * 16 + hex(1);
          if (v > kMaxCodePoint) i_ = back, fail("a code point beyond U+10FFFF");
        }
        if (!consume('}')) fail("bad hexadecimal escape");
        return v;
      }
      uint32_t v = hex(4);
      if (is_high_surrogate(v) && at("\\u")) {
        size_t back = i_;
        i_ += 2;
        uint32_t lo = hex(4);
        if (is_low_surrogate(lo)) return from_surrogates(v, lo);
        i_ = back;
      }
      return v;
    }
    default:
      break;
  }
  bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  if (letter) {
    --i_;
    std::string shown;
    append_utf8(shown, c);
    fail("the unknown escape '\\" + shown + "'");
  }
  return c;
}

bool RegexCharacters::class_member(CharSet& set, uint32_t& c) {
  if (!consume('\\')) {
    c = p_[i_++];
    return false;
  }
  if (!more()) fail("a lone backslash at the end");
  if (set_escape(set)) return true;
  c = escape(true);
  return false;
}

CharSet RegexCharacters::char_class() {
  CharSet s;
  bool negative = consume('^');
  while (true) {
    if (!more()) fail("missing ']'");
    if (consume(']')) break;
    CharSet set;
    uint32_t lo = 0, hi = 0;
    if (class_member(set, lo)) {
      s.add(set);
      if (at('-') && i_ + 1 < p_.size() && p_[i_ + 1] != ']') {  // [\d-a]: the hyphen stands for itself
        ++i_;
        s.add('-', '-');
        if (class_member(set, hi))
          s.add(set);
        else
          s.add(hi, hi);
      }
      continue;
    }
    if (at('-') && i_ + 1 < p_.size() && p_[i_ + 1] != ']') {
      size_t back = i_++;
      if (class_member(set, hi)) {  // [a-\d]: the hyphen stands for itself
        s.add(lo, lo), s.add('-', '-'), s.add(set);
        continue;
      }
      if (hi < lo) i_ = back, fail("a character range in the wrong order");
      s.add(lo, hi);
    } else {
      s.add(lo, lo);
    }
  }
  s.normalise();
  // What a class leaves out is left out in both cases.
  return negative ? meant(std::move(s)).complement() : s;
}

}  // namespace llamay::grammar
