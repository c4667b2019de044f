// Objects whose members stand between tags: `<parameter=NAME>VALUE</parameter>`, a string as it is, any other
// value as JSON.
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

// The types of JSON as bits beside which a text is not taken for a string, by the name of the member.
struct TagTypes {
  std::map<std::string, uint8_t> of;
  uint8_t other = 0;  // of all other names
};

struct TagSpec {
  uint32_t node = 0;  // of the objects
  std::string at;     // JSON pointer of their schema
  std::vector<TagPart> open, after, close;
  TagTypes mixed;
};

// Adds the objects to the program once its nodes are complete. Parts of different objects that are the same
// are made once.
class TaggedObjects {
 public:
  // `lenient`: a name that a tag cannot hold is left out with a warning unless it is required.
  TaggedObjects(Program& program, Budget& budget, bool lenient)
      : p_(program), budget_(budget), lenient_(lenient) {}

  // Throws CompileError where no object can be written.
  TaggedObject build(const TagSpec& spec);

 private:
  struct Context;  // the common part of all members of an object
  using Key = std::vector<uint32_t>;

  uint32_t object(const ObjectAtom& from, const Context& c);
  Slot slot(const Slot& from, uint8_t mixed, const Context& c);
  uint32_t value(uint32_t node, uint8_t mixed, const Context& c);
  bool content(uint32_t from, uint32_t to, const StringAtom& atom, uint8_t mixed, const Context& c);
  uint32_t state();
  uint32_t lexeme(const StringAtom& atom);
  uint32_t word(const std::string& text);
  // Adds a chain of edges from a state that reads some parts; returns its last state.
  uint32_t chain(uint32_t from, const std::vector<TagPart>& parts, bool string);

  Program& p_;
  Budget& budget_;
  bool lenient_;
  std::map<std::string, uint32_t> words_, tags_;
  std::map<Key, uint32_t> values_, bare_;
  std::map<std::pair<std::string, uint8_t>, LanguagePtr> contents_;
  std::map<std::pair<uint64_t, std::string>, LanguagePtr> closed_;
};

// The texts of `language` followed by `close`, which must not be in them.
LanguagePtr closed_by(const LanguagePtr& language, const std::string& close, Budget& budget);
// `before`, then a word of `language` that is in `fit` too and has one of some labels, which it keeps, then
// `behind`, whose first character no word of `fit` has.
LanguagePtr enclosed(const LanguagePtr& language, const LanguagePtr& fit, const std::vector<bool>& labels,
                     const std::string& before, const std::string& behind, Budget& budget);
// The texts that a reader takes for a string: those in which `stop` does not occur, nor together with the
// beginning of `close`, and that are no value of the types `mixed`.
LanguagePtr raw_texts(const std::string& stop, const std::string& close, uint8_t mixed, Budget& budget);
// Names that can stand between two tags, of which the second begins with `behind`.
LanguagePtr tag_names(const std::string& behind, Budget& budget);

}  // namespace llamay::grammar
