// Lengths and numbers of the words of a language.
#pragma once

#include <vector>

#include "automata/language.h"
#include "support/budget.h"

namespace llamay::grammar {

// Computes for each state of a dense language the shortest and the longest length of the words from there on,
// in code points, and their number; then whether lengths have gaps. `class_size`: code points in each class.
// Takes time linear in the table, and to sort the successors of a state.
void measure(Language& dense, const std::vector<uint64_t>& class_size);

// Returns a number of characters, at most `most`, with which more words than an array can have items
// (kPlenty) follow every state that endless words follow; kInf where there is none, or it takes too long to
// find.
constexpr uint64_t kPlenty = uint64_t{1} << 30;
uint32_t ample_length(const Language& l, uint32_t most, Budget& budget);

// The number of words of at most `left` characters from a state on, or `enough` where there are more. Takes
// time linear in `left` and in `enough`.
uint64_t words_within(const Language& l, uint32_t state, uint32_t left, uint64_t enough);

// Whether a language with a window of lengths still has a word: `state` after `count` code points.
inline bool length_open(const Language& l, uint32_t state, uint32_t count, uint32_t min, uint32_t max) {
  if (max != kInf && (count > max || l.min_len[state] > max - count)) return false;
  return count >= min || l.max_len[state] == kInf || l.max_len[state] >= min - count;
}

}  // namespace llamay::grammar
