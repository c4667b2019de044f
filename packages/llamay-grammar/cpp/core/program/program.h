// The compiled form of a grammar: values as unions of one-type alternatives, and a network of rules above
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "automata/language.h"

namespace llamay::grammar {

constexpr uint32_t kNone = 0xFFFFFFFFu;

// One option for a slot of a container: the node of the value, and the obligations of the container that the
// value meets.
struct Option {
  uint32_t node = 0;
  uint32_t gain = 0;             // bit i: counts for contains i (arrays), meets condition i (objects)
  uint32_t start = 0xFFFFFFFFu;  // for a member between tags: the state of the net that reads its value
};
using Slot = std::vector<Option>;

struct StringAtom {
  LanguagePtr language;
  uint32_t min = 0, max = kInf;
  bool closed = false;  // its words have an end of their own (lexemes): few tokens reach it
  // ample_length of the language, where items have to differ and `max` limits them; kInf: not known.
  uint32_t ample = kInf;
};

struct NumberAtom {
  LanguagePtr language;
  uint32_t max = kInf;  // characters
};

struct ContainsRule {
  uint64_t min = 0, max = UINT64_MAX;
};

struct ArrayAtom {
  std::vector<Slot> prefix;
  Slot rest;
  uint64_t min = 0, max = UINT64_MAX;
  std::vector<ContainsRule> contains;
  bool unique = false;     // items must differ, and are scalars
  bool deep = false;       // items must differ, and are compared as documents
  uint64_t count_cap = 0;  // from here on, the exact number of items no longer matters
};

struct ObjectAtom {
  LanguagePtr names;           // the declared names, a trie (empty: none)
  std::vector<Slot> known;     // by number of the name
  std::vector<uint32_t> rank;  // by number of the name: its place in the schema, for property_order = schema
  LanguagePtr rest;            // every other name: label = index into rest_slots (null: no other name)
  std::vector<Slot> rest_slots;
  std::vector<uint64_t> possible, required;  // bits over the declared names
  std::vector<uint64_t> plenty;  // the declared names with more values than an array can have items
  std::vector<std::pair<uint32_t, std::vector<uint64_t>>> depends;
  uint64_t min = 0, max = UINT64_MAX;
  // A condition on an object. An object meets the condition if it lacks one of the names `absent`, or if the
  // option of one of its members gains the condition.
  struct Clause {
    std::vector<uint32_t> absent, present;  // numbers of declared names
  };
  std::vector<Clause> clauses;
  uint32_t words() const { return static_cast<uint32_t>(possible.size()); }
};

struct Node {
  std::vector<uint32_t> strings, numbers, arrays, objects;  // indices of atoms
  uint8_t literals = 0;                                     // of kNull, kFalse, kTrue
  bool possible = false;
  bool plenty = false;  // more values than an array can have items
};

// An object with each member between tags, as some models write the arguments of a call. The atoms of the
// object are copies: a name in such an atom is the whole text of the tags up to the value, and the options of
// the atom have a start state.
struct TaggedObject {
  std::vector<uint32_t> objects;
  uint32_t lead = kNone;  // a state of the net that reads the special tokens in front of a name
};

// A network of rules (Woods' recursive transition network): states with edges that read a lexeme, a JSON
// value, an object between tags or a special token, or call another rule.
struct Edge {
  enum Kind : uint8_t { Lexeme, Value, Call, Token, Skip, Tagged } kind = Lexeme;
  uint32_t arg = 0;  // Lexeme: index into lexemes. Value: node. Call: state. Token: token id. Tagged: index
  uint32_t to = 0;
};
struct NetState {
  std::vector<Edge> edges;
  bool final = false;
};

enum class Whitespace : uint8_t { Compact, Spaced, Flexible };

struct Program {
  std::vector<StringAtom> strings;
  std::vector<NumberAtom> numbers;
  std::vector<ArrayAtom> arrays;
  std::vector<ObjectAtom> objects;
  std::vector<Node> nodes;
  std::vector<NetState> net;
  std::vector<StringAtom> lexemes;
  std::vector<TaggedObject> tagged;
  uint32_t start = 0;  // a state of the net
  Whitespace whitespace = Whitespace::Flexible;
  uint32_t max_whitespace = 32;
  bool schema_order = false;
  bool canonical_escapes = false;
  bool deep = false;  // some array has items that are compared as documents
  std::vector<std::string> warnings;
  // A content that contains no JSON and no rule, only one lexeme, has masks that depend on nothing else.
  size_t memory() const;
};

}  // namespace llamay::grammar
