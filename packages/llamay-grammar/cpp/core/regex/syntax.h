// The syntax of regular expressions: ECMA-262, section 22.2.1 "Patterns", with the flag u, as JSON Schema has
// it. Of what annex B allows without the flag, these are read as browsers do: braces and `]` that stand for
// themselves, escapes of any character that is no letter or digit, a hyphen beside `\d` in a class, and a
// quantifier behind a lookahead. Beyond the standard, `(?i)` at the very beginning ignores case in ASCII.
#pragma once

#include <string_view>
#include <vector>

#include "regex/terms.h"
#include "support/budget.h"

namespace llamay::grammar {

struct RegexNode {
  enum Kind : uint8_t { Term, Concat, Alt, Repeat, Start, End, Ahead, NotAhead, Word, NotWord } kind = Term;
  Terms::Id term = 0;
  std::vector<RegexNode> kids;
  uint32_t min = 1, max = 1;  // Repeat
  bool special = false;       // contains an assertion
};

// `source` must be UTF-8 (require_utf8). Sets of characters become terms; all other nodes mirror the source.
// Throws CompileError("pattern", ...) naming the character, counted from 0, for bad syntax, for
// back-references and for lookbehind.
RegexNode read_regex(std::string_view source, Terms& terms, Budget& budget);

}  // namespace llamay::grammar
