// The classes of bytes that may end a lexeme: a token without a byte of these classes stays inside the lexeme
// and need not be read.
#pragma once

#include <cstdint>
#include <vector>

#include "automata/language.h"
#include "tokens/trie.h"

namespace llamay::grammar {

// Returns the classes of bytes that lead from a state to itself; `json`: inside a JSON string.
uint64_t self_loop_classes(const Language& l, uint32_t s, bool json);

// Computes for each state the classes of bytes that may lead out of the language in one or several steps:
// tokens without a byte of these classes stay inside. Language::exit_classes also has the classes that lead
// to a state with finitely many words, where a minimum length may fail. Language::near_exit_classes considers
// only kNear steps, which suffices for most tokens and is possible in finite languages. Superfluous classes
// cost time only.
constexpr uint32_t kNear = 16;
static_assert(kNear < 0xFFFF, "heights are capped");

// Returns the classes of bytes that may lead a token of at most `length` bytes out of the lexeme from state
// s.
uint64_t exit_classes(const Language& l, uint32_t s, uint32_t length, uint32_t min);

// Classes of bytes such that at most `steps` bytes of these classes, in any order, stay inside from a state
// on. Tokens with bytes of these classes only need not be walked, even if the automaton counts.
struct JointClasses {
  uint64_t classes = 0;
  uint32_t steps = 0;
};
// Letters and digits first, then every other class of `allowed` that can join them.
JointClasses joint_classes(const Language& l, uint32_t s, uint64_t allowed);

}  // namespace llamay::grammar
