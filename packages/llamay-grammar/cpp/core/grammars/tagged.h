// Objects with members between tags: `<parameter=NAME>VALUE</parameter>`. The value of a string is written
// without quotes and escapes, any other value as JSON.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program/program.h"
#include "support/budget.h"

namespace llamay::grammar {

// A part of the text before a name, between a name and its value, or behind a value.
struct TagPart {
  enum Kind : uint8_t { Text, Token, Typed } kind = Text;
  std::string text;    // Text; Token: its spelling; Typed: the text where the value is a string
  std::string other;   // Typed: the text where the value is no string
  uint32_t token = 0;  // Token
};

// For the name of each member, a mask of JSON types: a text that is JSON of one of these types is not a
// string.
struct TagTypes {
  std::map<std::string, uint8_t> of;
  uint8_t other = 0;  // the mask for all other names
};

struct TagSpec {
  uint32_t node = 0;  // the node of the objects
  std::string at;     // the JSON pointer of the schema
  std::vector<TagPart> open, after, close;
  TagTypes mixed;
};

// Adds objects between tags to a program with complete nodes. Equal parts of different objects are made once.
class TaggedObjects {
 public:
  // With `lenient`, an optional member with a name that a tag cannot hold is left out, with a warning.
  TaggedObjects(Program& program, Budget& budget, bool lenient)
      : p_(program), budget_(budget), lenient_(lenient) {}

  // Throws CompileError if the tags can hold no object of the schema.
  TaggedObject build(const TagSpec& spec);

 private:
  struct Context;  // the data that all members of an object share
  using Key = std::vector<uint32_t>;

  uint32_t object(const ObjectAtom& from, const Context& c);
  Slot slot(const Slot& from, uint8_t mixed, const Context& c);
  uint32_t value(uint32_t node, uint8_t mixed, const Context& c);
  bool content(uint32_t from, uint32_t to, const StringAtom& atom, uint8_t mixed, const Context& c);
  uint32_t state();
  uint32_t lexeme(const StringAtom& atom);
  uint32_t word(const std::string& text);
  // Adds a chain of edges that reads `parts` from a state on. Returns the last state of the chain.
  uint32_t chain(uint32_t from, const std::vector<TagPart>& parts, bool string);

  Program& p_;
  Budget& budget_;
  bool lenient_;
  std::map<std::string, uint32_t> words_, tags_;
  std::map<Key, uint32_t> values_, bare_;
  std::map<std::pair<std::string, uint8_t>, LanguagePtr> contents_;
  std::map<std::pair<uint64_t, std::string>, LanguagePtr> closed_;
};

// Returns the texts of `language`, each followed by `close`. No text of `language` may contain `close`.
LanguagePtr closed_by(const LanguagePtr& language, const std::string& close, Budget& budget);
// Returns the concatenations of `before`, a word, and `behind`. The word is in both `language` and `fit`, and
// labels[its label] is set; the concatenation has the same label. No word of `fit` may contain the first
// character of `behind`.
LanguagePtr enclosed(const LanguagePtr& language, const LanguagePtr& fit, const std::vector<bool>& labels,
                     const std::string& before, const std::string& behind, Budget& budget);
// Returns the texts that a reader of the call takes for a string: neither the text itself nor the text
// together with the beginning of `close` contains `stop`, and the text is not JSON of one of the types
// `mixed`.
LanguagePtr raw_texts(const std::string& stop, const std::string& close, uint8_t mixed, Budget& budget);
// Returns the names that can stand between two tags if the second tag begins with `behind`.
LanguagePtr tag_names(const std::string& behind, Budget& budget);

}  // namespace llamay::grammar
