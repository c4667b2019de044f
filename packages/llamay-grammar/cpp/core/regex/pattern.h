// ECMA-262 regular expressions, as JSON Schema means them, compiled to automata.
//
// Three steps: syntax.h reads the text, translation.h resolves its assertions, terms.h makes the
// automaton.
#pragma once

#include <string_view>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// A regular language with a range of lengths in code points: `^[a-z]{1,3000}$` is [a-z]* with lengths from 1
// to 3000.
struct Pattern {
  LanguagePtr language;
  uint32_t min = 0;
  uint32_t max = kInf;
};

// Returns the strings that contain a match of the pattern (with `whole`: the strings that the pattern matches
// from end to end). Results are shared between calls and threads. `source` must be UTF-8 (require_utf8).
// Throws CompileError("pattern", ...) for bad syntax and for constructs that no automaton expresses
// (back-references), and CompileError("budget", ...) for an automaton with too many states; their number can
// be exponential.
Pattern compile_pattern(std::string_view source, bool whole, Budget& budget);

}  // namespace llamay::grammar
