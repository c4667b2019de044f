// Promotion of stacks and texts that outlive one token: from scratch memory to the heap, counted by
// reference, so that forks and earlier positions share them.
#pragma once

#include "machine/configuration.h"

namespace llamay::grammar {

void retain(const Frame* f);
// Null is allowed. Takes no stack, however long the chain is.
void release(const Frame* f);
void release(const Link* l);

// Copies the part of a chain that is still in scratch memory, from the end of the chain towards its head, and
// returns the chain retained.
const Frame* promote(const Frame* f);
const Link* promote(const Link* l);
// The same for the text of an item, in which all bytes of one token become one link.
const Link* promote_text(const Link* l);

}  // namespace llamay::grammar
