// The state and the steps of the expander, which several translation units implement.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "formulas/formula.h"
#include "program/program.h"
#include "support/budget.h"

namespace llamay::grammar {

using Leaves = std::vector<FormulaId>;  // sorted: one conjunction of assertions about one type

struct Expansion {
  Formulas& f;
  Program& p;
  Budget& budget;
  std::unordered_map<FormulaId, uint32_t> node_of;
  std::vector<FormulaId> formula_of;
  size_t expanded = 0;
  std::map<Leaves, uint32_t> array_of, object_of, string_of, number_of;
  std::vector<std::pair<uint32_t, uint32_t>> rebuilt;
  std::unordered_map<FormulaId, LanguagePtr> string_languages;
  Expansion(Formulas& f_, Program& p_, Budget& b) : f(f_), p(p_), budget(b) {}

  enum class Truth { No, Yes, Open };
  struct Dnf {
    uint8_t type;
    std::set<Leaves> out;
    uint32_t steps = 0;
  };
  // One assertion about the members of an object, as `negate` writes them.
  struct Literal {
    enum Kind { Absent, Present, Exists } kind;
    std::string name;
    FormulaId value;
    LanguagePtr names;
  };

  // ---- Values, and the proof that a value exists: expansion.cpp ----

  uint32_t node(FormulaId id);
  void expand(uint32_t n);
  bool usable(const Slot& s) const;
  // Returns the JSON pointer of the schema of a formula: the nearest origin known for the formula or its
  // kids.
  std::string where(FormulaId id, const std::string& keyword);
  // Returns the JSON pointer of the schema of an alternative, if origins are kept.
  std::string place_of(std::vector<uint32_t> Node::* list, size_t atom, const std::string& keyword);
  void finish();
  // Finds the nodes and members with more values than an array can have items, for arrays under uniqueItems.
  void find_plenty(const std::vector<bool>& arrays, const std::vector<bool>& objects);
  // Removes options that meet fewer obligations than another option with the same value.
  void dominated(Slot& s);

  // ---- Disjunctive normal form, one type at a time: logic.cpp ----

  Truth quick(FormulaId id, uint8_t t, int depth);
  void dnf(Dnf& d, std::vector<FormulaId> todo, Leaves leaves, std::vector<FormulaId> ors,
           std::vector<FormulaId> seen);
  std::optional<Literal> literal(FormulaId id);
  LanguagePtr exists_names(const ExistsSpec& s);
  // Whether a cheap check shows a contradiction, so that hopeless combinations are dropped before they
  // multiply.
  bool contradicts(const Leaves& leaves, uint8_t t);
  // Whether two assertions about one type cannot both hold.
  bool clash(FormulaId a, FormulaId b, int depth);
  static bool in(const StringSpec& s, const std::string& text);
  bool forbids(const PropsSpec& s, const std::string& name);
  FormulaId value_for(const PropsSpec& s, const std::string& name);
  // Collects assertions that hold of every value of type t that satisfies id, by following And and Ref.
  void certain(FormulaId id, uint8_t t, int depth, Leaves& out);
  // Whether a and b provably have no common value of type t; false means that no proof was found.
  bool disjoint(FormulaId a, FormulaId b, uint8_t t, int depth);
  bool disjoint_all(FormulaId a, FormulaId b, int depth);
  std::vector<Leaves> alternatives(FormulaId id, uint8_t type);

  // ---- Strings and numbers: scalars.cpp ----

  StringSpec conjunction(const Leaves& leaves);
  uint32_t string_atom(const Leaves& leaves);
  bool limited(StringAtom& a);
  void add_string(Node& node, const Leaves& leaves);
  // Merges alternatives that are finite sets into one set: one automaton instead of many in parallel.
  void merge_strings(Node& node);
  void add_number(Node& node, const Leaves& leaves);
  LanguagePtr string_language(FormulaId id);

  // ---- Arrays: arrays.cpp ----

  // The formulas that uniqueItems adds to the items of an array. In a scalar item every value has one
  // spelling, and the automaton counts its words; inside arrays and objects every number has one spelling.
  FormulaId one_spelling();
  FormulaId spelling_inside();
  std::optional<FormulaId> inside;
  void check_unique(ArrayAtom& a);
  void check_deep(const ArrayAtom& a) const;
  uint32_t array(const Leaves& leaves);
  bool array_possible(const ArrayAtom& a) const;
  void check_contains(const ArrayAtom& a) const;

  // ---- Objects: objects.cpp ----

  uint32_t object(const Leaves& leaves);
  bool object_possible(const ObjectAtom& a) const;

  // ---- Names that are not declared: names.cpp ----

  // Names classified by the languages that contain them: the labels of `all` are indices into `sets`.
  struct Classified {
    LanguagePtr all;
    std::vector<std::vector<bool>> sets;
    std::vector<LanguagePtr> parts;    // kept alive, so that no other language gets the uid of a part
    std::vector<LanguagePtr> classes;  // the words of each label; empty until classes_of has been called
  };
  std::map<std::vector<uint64_t>, Classified> classified_;
  const Classified& classified(const std::vector<LanguagePtr>& languages);
  const std::vector<LanguagePtr>& classes_of(const std::vector<LanguagePtr>& languages);
  // Appends the words of a finite language, from a state on.
  static void append_words(const Language& l, std::vector<std::string>& out, uint32_t state = 0,
                           const std::string& prefix = {});
  // Returns the words of `all` that `rule` allows and whose label has a usable slot. Labels are kept.
  LanguagePtr restrict_labels(const LanguagePtr& all, const LanguagePtr& rule,
                              const std::vector<Slot>& slots);
  LanguagePtr with_label(const LanguagePtr& in, uint32_t label);
  LanguagePtr without_names(const ObjectAtom& a);
};

}  // namespace llamay::grammar
