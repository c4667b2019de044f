// Whether a container that has been begun can still be finished.
#pragma once

#include "automata/dfa.h"
#include "automata/lengths.h"
#include "program/program.h"

namespace llamay::grammar {

// Whether an array can be finished after `count` items of which have[c] met contains c. Counts beyond the
// limits of their rule are equivalent.
bool array_feasible(const Program& p, const ArrayAtom& a, uint64_t count, const uint32_t* have);

// Whether an object can be finished after the members in `seen` (bits over the declared names) and
// `undeclared` others, with the conditions in `gained` met.
bool object_feasible(const Program& p, const ObjectAtom& a, const uint64_t* seen, uint64_t undeclared,
                     uint32_t gained);

// Returns the given members together with all members that they depend on, directly or indirectly.
std::vector<uint64_t> with_dependencies(const ObjectAtom& a, std::vector<uint64_t> bits);

// Whether more words follow `state` than an array can have items; with kNone, from every state. The result
// may be false although enough words follow.
inline bool plenty_words(const Language& l, uint32_t state, uint32_t max_left, uint32_t min,
                         uint32_t ample = kInf) {
  const bool infinite = state == kNone ? l.all_infinite : l.infinite(state);
  if (max_left == kInf) return infinite || (state != kNone && min == 0 && l.count_words(state) > kPlenty);
  if (infinite && min == 0 && ample < max_left) return true;
  return infinite && l.uid == every_text()->uid && max_left >= 3;
}

}  // namespace llamay::grammar
