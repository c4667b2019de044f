// Configurations that have become the same, where an ambiguous grammar makes many of them.
#pragma once

#include "machine/configuration.h"

namespace llamay::grammar {

// Makes equal stacks one stack, from the bottom up, so that equal configurations are seen to be equal, and
// drops those that are the same. Without it an ambiguous grammar doubles its configurations at every step.
// Takes time and scratch memory for each frame of each stack once.
void merge_configurations(Configurations& list, Scratch& scratch);

}  // namespace llamay::grammar
