// Merging of equal configurations; ambiguous grammars have many of them.
#pragma once

#include "machine/configuration.h"

namespace llamay::grammar {

// Merges equal stacks from the bottom up, so that equal configurations have the same stack, and drops
// repeated configurations. Otherwise an ambiguous grammar could double the number of configurations at every
// step. Time and scratch memory are linear in the number of frames of all stacks.
void merge_configurations(Configurations& list, Scratch& scratch);

}  // namespace llamay::grammar
