// Characters in regular expressions: escapes and classes (ECMA-262, section 22.2.1, CharacterEscape and
// CharacterClass).
#pragma once

#include <string>
#include <string_view>

#include "text/charset.h"
#include "text/cursor.h"

namespace llamay::grammar {

class RegexCharacters : protected TextCursor {
 protected:
  explicit RegexCharacters(std::string_view source) : TextCursor(source), source_(source) {}

  // Throws CompileError("pattern", ...) naming the character at which the position is, counted from 0.
  [[noreturn]] void fail(const std::string& what) const;

  static CharSet dot();  // everything but ends of lines
  // Behind a backslash. \d, \w, \s, \p and their complements are sets: false, and nothing is read, where
  // there is none. All others are one character.
  bool set_escape(CharSet& s);
  uint32_t escape(bool in_class);
  // Behind the opening bracket.
  CharSet char_class();
  // A set as it is meant: with both cases of letters where case is ignored.
  CharSet meant(CharSet s) const;

  bool fold_ = false;  // case is ignored, in ASCII

 private:
  CharSet property(std::string name) const;
  uint32_t hex(int digits);
  bool class_member(CharSet& set, uint32_t& c);  // whether it is a set

  std::string_view source_;
};

}  // namespace llamay::grammar
