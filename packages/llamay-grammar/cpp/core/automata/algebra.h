// Boolean operations on languages, by products of automata (M. O. Rabin, D. Scott, "Finite automata and their
// decision problems", 1959).
//
// The result of an operation that only filters the words of a trie is a trie. Otherwise the states of the
// result are pairs or tuples of states. All operations throw CompileError("budget", ...) for too many states.
#pragma once

#include <vector>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// The results have no labels.
enum class Combine { And, Or, AndNot };
LanguagePtr combine(const LanguagePtr& a, const LanguagePtr& b, Combine how, Budget& budget);

LanguagePtr complement(const LanguagePtr& a, Budget& budget);

// Returns the words of min..max code points, as an automaton that counts the code points: it has up to `max`
// times (without a maximum: `min` times) as many states. Labels are kept.
LanguagePtr with_length(const LanguagePtr& a, uint32_t min, uint32_t max, Budget& budget);

// Returns a labelled automaton. The label of a word is an index into `sets`, to the set of the languages that
// contain the word; new sets are appended.
LanguagePtr classify(const std::vector<LanguagePtr>& languages, std::vector<std::vector<bool>>& sets,
                     Budget& budget);

}  // namespace llamay::grammar
