// Entries for the beginnings of strings, names and numbers.
#pragma once

#include "program/program.h"
#include "vocabulary/vocabulary.h"

namespace llamay::grammar {

// Computes the entries for the beginnings of the strings, names, texts and numbers of a grammar, and for the
// first states of its patterns, so that no document waits for them. Stops after a millisecond: the remaining
// entries are computed on first use.
void precompute_entries(const Program& program, const Vocabulary& vocabulary);

}  // namespace llamay::grammar
