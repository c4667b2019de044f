// JSON Schema as logic: hash-consed formulas over assertions, each of which constrains the values of one
// type.
//
// Every assertion has an exact negation, so `not`, `oneOf` and `if` are rewritten to other formulas and need
// no support in the automata. References stay symbolic, so recursive schemas are finite graphs.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "automata/language.h"
#include "automata/number.h"
#include "support/budget.h"
#include "text/json.h"

namespace llamay::grammar {

using FormulaId = uint32_t;

enum Type : uint8_t {
  kNull = 1,
  kFalse = 2,
  kTrue = 4,
  kNumber = 8,
  kString = 16,
  kArray = 32,
  kObject = 64
};
constexpr uint8_t kBoolean = kFalse | kTrue;
constexpr uint8_t kAnyType = 127;

enum class Op : uint8_t {
  True,
  False,
  Type,  // the value's type is one of `types`
  And,
  Or,
  OneOf,
  Ref,       // refs[payload]; negated if `negative` is set
  Number,    // numbers[payload]
  Numbers,   // number_sets[payload]: the number is an element of the set
  String,    // strings[payload]
  Items,     // items[payload]: arrays
  Length,    // ranges[payload]: arrays
  Contains,  // contains[payload]: arrays
  Unique,    // arrays
  Props,     // props[payload]: objects
  Require,   // names[payload]: objects
  Depend,    // depends[payload]: objects
  Count,     // ranges[payload]: objects
  Names,     // objects: every member name satisfies kids[0]
  Exists,    // exists[payload]: objects: a member with a name of a set satisfies a formula
};

struct Formula {
  Op op = Op::True;
  uint8_t types = kAnyType;  // Op::Type: the mask of types; assertions: the constrained type
  bool negative = false;
  uint32_t payload = 0;
  std::vector<FormulaId> kids;
};

struct StringSpec {  // a finite set of strings, or a language with a range of lengths
  bool finite = false;
  std::vector<std::string> words;  // sorted
  LanguagePtr language;
  uint32_t min = 0, max = kInf;
  bool counted = false;  // the automaton must count lengths, because its words are counted later
};

struct Range {
  uint64_t min = 0, max = UINT64_MAX;
};

struct ItemsSpec {
  std::vector<FormulaId> prefix;
  FormulaId rest = 0;
};

struct ContainsSpec {
  FormulaId item = 0;
  uint64_t min = 1, max = UINT64_MAX;
  uint64_t start = 0;  // the index of the first item that counts
};

struct PropsSpec {
  std::vector<std::pair<std::string, FormulaId>> names;
  bool declares = true;            // whether `names` has the order of a schema's declarations
  std::vector<std::string> order;  // the order of the names if it is significant; set by Formulas
  std::vector<std::pair<LanguagePtr, FormulaId>> patterns;
  FormulaId additional = 0;
};

struct DependSpec {
  std::string name;
  std::vector<std::string> needs;
};

struct ExistsSpec {
  LanguagePtr names;  // the set of names; null stands for the strings that satisfy name_rule
  FormulaId value = 0;
  FormulaId name_rule = 0;
};

// The formulas of one grammar, numbered. A new formula is simplified as far as that is cheap: conjunctions
// and disjunctions are flat, sorted and without repeats, and an assertion that every value satisfies is
// yes(). A value of another type than the assertion's satisfies the assertion. Functions that make formulas
// throw CompileError("budget", ...) when there would be more than `Budget::nodes` formulas.
class Formulas {
 public:
  // With `ordered`, the order in which a schema declares members is part of the constraint.
  explicit Formulas(Budget& budget, bool ordered = false);

  FormulaId yes() const { return 0; }
  FormulaId no() const { return 1; }
  FormulaId type(uint8_t mask);
  FormulaId all(std::vector<FormulaId> kids);
  FormulaId any(std::vector<FormulaId> kids);
  FormulaId one(std::vector<FormulaId> kids);  // exactly one of `kids` holds
  // The values of a type that satisfy f.
  FormulaId guarded(uint8_t type, FormulaId f) { return all({this->type(type), f}); }
  FormulaId number(NumberSpec spec);
  FormulaId number_set(std::vector<Decimal> values);
  FormulaId string(StringSpec spec);
  FormulaId words(std::vector<std::string> words);
  FormulaId items(ItemsSpec spec);
  FormulaId length(Range r);
  FormulaId contains(ContainsSpec spec);
  FormulaId unique();
  FormulaId props(PropsSpec spec);
  FormulaId require(const std::string& name);
  FormulaId depend(DependSpec spec);
  FormulaId count(Range r);
  FormulaId names(FormulaId string_formula);
  FormulaId exists(ExistsSpec spec);
  // Equality of values as in JSON Schema: 1 equals 1.0, and the order of members is insignificant. The time
  // is linear in the size of the values.
  FormulaId equals(const Json& value);
  FormulaId one_of_values(const std::vector<const Json*>& values);

  // References. A reference is made before its target is known; `bind` sets the target.
  uint32_t new_ref(std::string pointer);
  void bind(uint32_t ref, FormulaId target) { refs_[ref].target = target; }
  FormulaId ref(uint32_t number, bool negative = false);
  FormulaId resolve(const Formula& f);  // the target of an Op::Ref

  // Returns the negation of a formula; negations are cached. The negation of `one` has a part for every pair
  // of kids. Throws CompileError for `uniqueItems` and for more than 64 numbers.
  FormulaId negate(FormulaId f);

  const Formula& at(FormulaId f) const { return formulas_[f]; }
  const NumberSpec& number_at(const Formula& f) const { return numbers_[f.payload]; }
  const std::vector<Decimal>& numbers_at(const Formula& f) const { return number_sets_[f.payload]; }
  const StringSpec& string_at(const Formula& f) const { return strings_[f.payload]; }
  const ItemsSpec& items_at(const Formula& f) const { return items_[f.payload]; }
  const Range& range_at(const Formula& f) const { return ranges_[f.payload]; }
  const ContainsSpec& contains_at(const Formula& f) const { return contains_[f.payload]; }
  const PropsSpec& props_at(const Formula& f) const { return props_[f.payload]; }
  const std::string& name_at(const Formula& f) const { return names_[f.payload]; }
  const DependSpec& depend_at(const Formula& f) const { return depends_[f.payload]; }
  const ExistsSpec& exists_at(const Formula& f) const { return exists_[f.payload]; }
  Budget& budget() { return budget_; }

  // The JSON pointers of the schemas that formulas were made from, kept only if `tracking` is set, for error
  // messages.
  bool tracking = false;
  std::unordered_map<FormulaId, std::string> origin;

 private:
  // Hash-consing: `key` describes a formula completely. Returns the known formula with an equal key, if any.
  FormulaId intern(std::string key, Formula f);
  template <class Spec>  // stores `spec` as the payload of a new formula
  FormulaId assertion(std::string key, Op op, uint8_t type, std::vector<Spec>& specs, Spec spec);
  FormulaId make(std::string key, Formula f);
  FormulaId junction(Op op, const std::vector<FormulaId>& kids);

  struct RefTarget {
    FormulaId target = 0;
    std::string pointer;
  };

  Budget& budget_;
  const bool ordered_;
  std::vector<Formula> formulas_;
  std::unordered_map<std::string, FormulaId> ids_;
  std::unordered_map<FormulaId, FormulaId> negated_;
  std::vector<NumberSpec> numbers_;
  std::vector<std::vector<Decimal>> number_sets_;
  std::vector<StringSpec> strings_;
  std::vector<ItemsSpec> items_;
  std::vector<Range> ranges_;
  std::vector<ContainsSpec> contains_;
  std::vector<PropsSpec> props_;
  std::vector<std::string> names_;
  std::vector<DependSpec> depends_;
  std::vector<ExistsSpec> exists_;
  std::vector<RefTarget> refs_;
};

}  // namespace llamay::grammar
