// Threads that have become the same, where an ambiguous grammar makes many of them.
#pragma once

#include "machine/threads.h"

namespace llamay::grammar {

// Makes equal stacks one stack, from the bottom up, so that equal threads are seen to be equal, and drops
// those that are the same. Without it an ambiguous grammar doubles its threads at every step. Takes time and
// scratch memory for each frame of each stack once.
void merge_threads(Threads& list, Scratch& scratch);

}  // namespace llamay::grammar
