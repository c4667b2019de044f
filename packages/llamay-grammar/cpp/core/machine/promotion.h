// Promotion: stacks and texts that outlive one token are copied from scratch memory to the heap, where they
// are counted by reference, so that forks and earlier positions share them.
#pragma once

#include "machine/configuration.h"

namespace llamay::grammar {

void retain(const Frame* f);
// Null is allowed. The release is not recursive, however long the chain is.
void release(const Frame* f);
void release(const Link* l);

// Copies the part of a chain that is still in scratch memory, from the end of the chain towards its head, and
// returns the chain retained.
const Frame* promote(const Frame* f);
const Link* promote(const Link* l);
// As `promote`, for the text of an item: all bytes of one token become one link.
const Link* promote_text(const Link* l);

}  // namespace llamay::grammar
