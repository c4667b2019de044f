// Masks that a document will ask for wherever it begins a string.
#pragma once

#include "program.h"
#include "vocabulary.h"

namespace llamay::grammar {

// Remembers what strings, names and texts of a grammar begin with, so that no document waits for it. Stops
// after a millisecond: what is left is made when it is asked for.
void remember_starts(const Program& program, const Vocabulary& vocabulary);

}  // namespace llamay::grammar
