// Kinds of token groups for one automaton: groups that the automaton cannot distinguish are of one kind, and
// every state judges the groups of a kind together.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "automata/language.h"
#include "tokens/groups.h"

namespace llamay::grammar {

// Depends on the automaton and the vocabulary, not on a state.
struct GroupKinds {
  struct Kind {
    uint64_t lead = 0, rest = 0;  // the automaton's classes that first and later characters are in
    uint32_t tokens = 0;
    uint32_t cost = 0;  // of writing all tokens of the kind into a mask
  };
  struct Member {
    uint32_t group, kind;
  };
  std::vector<Kind> kinds;      // those with most tokens first
  std::vector<Member> members;  // in the order of the groups
  uint32_t dead_cost = 0;       // the cost of the groups that no state reads; these are no members
  // For each class of characters, the classes of the automaton that its characters are in.
  std::array<uint64_t, 64> touched{};

  // With `json`, only the groups of tokens that JSON strings may contain unescaped. The automaton has at most
  // 64 classes.
  GroupKinds(const TokenGroups& groups, const Language& language, bool json);
  size_t memory() const {
    return sizeof *this + kinds.size() * sizeof(Kind) + members.size() * sizeof(Member);
  }
};

}  // namespace llamay::grammar
