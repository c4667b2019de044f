// Tables of automata, as compilers produce them, and the languages made from them.
#pragma once

#include <vector>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// A complete description from which a dense Language is made: states by number, kDead where there is no move.
struct RawDfa {
  std::vector<uint32_t> starts;   // starts of the ranges of code points, first is 0
  std::vector<uint16_t> classes;  // class of each range
  uint32_t n_classes = 0;
  std::vector<uint32_t> table;   // n_states * n_classes; state 0 is the start
  std::vector<uint32_t> labels;  // of each state; kDead for a state that does not accept
};

// An automaton without states that tells the same characters apart as a dense language does.
RawDfa over_alphabet_of(const Language& dense);

// Trims, merges classes of characters that no state tells apart, computes lengths and counts. An empty
// language is a Language with empty(). States that accept the same words are not merged. Takes time linear in
// the table. Throws CompileError("budget", ...) for too many states, of this automaton or of all.
LanguagePtr finish(RawDfa&& raw, Budget& budget);

const LanguagePtr& every_text();  // the language of all strings

}  // namespace llamay::grammar
