// Boolean operations on languages, by products of automata (M. O. Rabin, D. Scott, "Finite automata and their
// decision problems", 1959).
//
// A trie stays a trie where the operation only filters its words; otherwise the states are pairs, or tuples,
// of states, and all of these throw CompileError("budget", ...) where there are too many.
#pragma once

#include <vector>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// The results have no labels.
enum class Combine { And, Or, AndNot };
LanguagePtr combine(const LanguagePtr& a, const LanguagePtr& b, Combine how, Budget& budget);

LanguagePtr complement(const LanguagePtr& a, Budget& budget);

// The language with words of min..max code points only, as an automaton that counts: it has up to `max`
// (without a maximum, `min`) times as many states. Labels are kept.
LanguagePtr with_length(const LanguagePtr& a, uint32_t min, uint32_t max, Budget& budget);

// A labelled automaton: the label of a word is the set of languages that it belongs to, as an index into
// `sets`, to which new ones are added.
LanguagePtr classify(const std::vector<LanguagePtr>& languages, std::vector<std::vector<bool>>& sets,
                     Budget& budget);

}  // namespace llamay::grammar
