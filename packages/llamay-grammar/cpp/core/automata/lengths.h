// Lengths and numbers of the words of a language.
#pragma once

#include <vector>

#include "automata/language.h"

namespace llamay::grammar {

// Computes for each state of a dense language the shortest and the longest length of the words from there on,
// in code points, and their number; then whether lengths have gaps. `class_size`: code points in each class.
// Takes time linear in the table, and to sort the successors of a state.
void measure(Language& dense, const std::vector<uint64_t>& class_size);

// Whether a language with a window of lengths still has a word: `state` after `count` code points.
inline bool length_open(const Language& l, uint32_t state, uint32_t count, uint32_t min, uint32_t max) {
  if (max != kInf && (count > max || l.min_len[state] > max - count)) return false;
  return count >= min || l.max_len[state] == kInf || l.max_len[state] >= min - count;
}

}  // namespace llamay::grammar
