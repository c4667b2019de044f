// How long the words of a language are, and how many there are.
#pragma once

#include <vector>

#include "lang.h"

namespace llamay::grammar {

// Fills in what a dense language knows of the words from each of its states on: shortest and longest, in code
// points, and how many; then whether lengths have gaps. `class_size`: code points in each class. Takes time
// linear in the table, and to sort the successors of a state.
void measure(Lang& dense, const std::vector<uint64_t>& class_size);

}  // namespace llamay::grammar
