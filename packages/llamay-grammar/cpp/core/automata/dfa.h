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

// Returns an automaton without states over the alphabet of a dense language.
RawDfa over_alphabet_of(const Language& dense);

// Makes a language: trims the automaton, merges classes of characters that no state distinguishes, and
// computes lengths and counts. For an automaton without words, the result is empty(). Equivalent states are
// not merged. The time is linear in the size of the table. Throws CompileError("budget", ...) for too many
// states, of this automaton or of all automata of the grammar.
LanguagePtr finish(RawDfa&& raw, Budget& budget);

const LanguagePtr& every_text();  // the language of all strings

}  // namespace llamay::grammar
