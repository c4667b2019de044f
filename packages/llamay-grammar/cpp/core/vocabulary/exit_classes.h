// The classes of bytes by which a lexeme may be left: tokens without any of them stay inside and need not be
// read.
#pragma once

#include <cstdint>
#include <vector>

#include "automata/language.h"
#include "tokens/trie.h"

namespace llamay::grammar {

// The classes whose bytes lead from a state to itself; `json`: inside a JSON string.
uint64_t self_loop_classes(const Language& l, uint32_t s, bool json);

// For each state, the classes of bytes that may lead to its end, be it in several steps: tokens without any
// of them stay inside. Language::exit_classes also avoids states with finitely many words, where a least
// length may fail; Language::near_exit_classes looks kNear steps ahead only, which is what most tokens need
// and finite languages allow. Too many classes do no harm.
constexpr uint32_t kNear = 16;
static_assert(kNear < 0xFFFF, "heights are capped");

// The classes that a token of at most `length` bytes must not have to stay inside for certain when it is read
// from state s.
uint64_t exit_classes(const Language& l, uint32_t s, uint32_t length, uint32_t min);

// Classes of which at most `steps` bytes, in any order, stay inside when they are read from a state: tokens
// made of them alone need not be walked even where the automaton counts.
struct JointClasses {
  uint64_t classes = 0;
  uint32_t steps = 0;
};
// Letters and digits first, then every other class of `allowed` that can join them.
JointClasses joint_classes(const Language& l, uint32_t s, uint64_t allowed);

}  // namespace llamay::grammar
