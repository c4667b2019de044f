// Masks that a document will ask for where it begins strings, names and numbers.
#pragma once

#include "program/program.h"
#include "vocabulary/vocabulary.h"

namespace llamay::grammar {

// Remembers what strings, names, texts and numbers of a grammar begin with, and the first states of its
// patterns, so that no document waits for them. Stops after a millisecond: what is left is made when it is
// asked for.
void precompute_entries(const Program& program, const Vocabulary& vocabulary);

}  // namespace llamay::grammar
