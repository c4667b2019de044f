// Whether a container that has been begun can still be finished.
#pragma once

#include "program.h"

namespace llamay::grammar {

// After `count` items of which have[c] met contains c. Counts beyond what their rule can tell apart are
// equal.
bool array_feasible(const Program& p, const ArrayAtom& a, uint64_t count, const uint32_t* have);

// After the members in `seen` (bits over the declared names) and `undeclared` others, with the conditions in
// `gained` met.
bool object_feasible(const Program& p, const ObjectAtom& a, const uint64_t* seen, uint64_t undeclared,
                     uint32_t gained);

// Adds what the given members depend on.
std::vector<uint64_t> with_dependencies(const ObjectAtom& a, std::vector<uint64_t> bits);

}  // namespace llamay::grammar
