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

  static CharSet dot();  // every character but ends of lines
  // Both read behind a backslash. `set_escape` reads \d, \w, \s, \p or one of their complements into `s`; at
  // any other escape it returns false and reads nothing. `escape` reads the escape of one character.
  bool set_escape(CharSet& s);
  uint32_t escape(bool in_class);
  // Reads a class behind its opening bracket.
  CharSet char_class();
  // The set that an expression means by `s`: with both cases of letters where case is ignored.
  CharSet meant(CharSet s) const;

  bool fold_ = false;  // case is ignored, in ASCII

 private:
  CharSet property(std::string name) const;
  uint32_t hex(int digits);
  bool class_member(CharSet& set, uint32_t& c);  // true: the member is a set; false: it is the character c

  std::string_view source_;
};

}  // namespace llamay::grammar
