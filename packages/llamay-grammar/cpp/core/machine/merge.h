// Merging of equal configurations, of which an ambiguous grammar makes many.
#pragma once

#include "machine/configuration.h"

namespace llamay::grammar {

// Makes equal stacks one stack, from the bottom up, so that equal configurations are seen to be equal, and
// drops repeated ones. Without it an ambiguous grammar doubles its configurations at every step. Takes time
// and scratch memory for each frame of each stack once.
void merge_configurations(Configurations& list, Scratch& scratch);

}  // namespace llamay::grammar
