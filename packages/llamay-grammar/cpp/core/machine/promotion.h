// What outlives one token: stacks of configurations, copied from scratch memory to the heap and counted, so
// that forks and earlier positions share them.
#pragma once

#include "machine/configuration.h"

namespace llamay::grammar {

void retain(const Frame* f);
// Null is allowed. Takes no stack, however long the chain is.
void release(const Frame* f);
void release(const Link* l);

// Copies what is still in scratch memory, from the end of the chain towards its head, and returns it
// retained.
const Frame* promote(const Frame* f);
const Link* promote(const Link* l);
// The same for the text of an item: what one token added becomes one link.
const Link* promote_text(const Link* l);

}  // namespace llamay::grammar
