// ECMA-262 regular expressions, as JSON Schema means them, compiled to automata.
//
// Three steps: syntax.h reads the text, translation.h resolves its assertions, terms.h makes the
// automaton.
#pragma once

#include <string_view>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// A regular language, and the lengths (in code points) to which it is cut: `^[a-z]{1,3000}$` is [a-z]* with a
// window.
struct Pattern {
  LanguagePtr language;
  uint32_t min = 0;
  uint32_t max = kInf;
};

// The strings in which the pattern is found somewhere (`whole`: that it matches entirely). Results are shared
// between calls and threads. `source` must be UTF-8 (require_utf8). Throws CompileError("pattern", ...) on
// bad syntax and on constructs that no automaton expresses (back-references), CompileError("budget", ...)
// where the automaton would be too large: it can have exponentially many states.
Pattern compile_pattern(std::string_view source, bool whole, Budget& budget);

}  // namespace llamay::grammar
