// JSON Schema as logic: hash-consed formulas over assertions that each speak about one type of value.
//
// Every assertion has an exact negation, so `not`, `oneOf` and `if` are rewriting, not machinery. References
// stay symbolic, so recursive schemas are finite graphs.
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
  Ref,       // refs[payload], negated when `negative`
  Number,    // numbers[payload]
  Numbers,   // one of decimal sets[payload]
  String,    // strings[payload]
  Items,     // items[payload]: arrays
  Length,    // ranges[payload]: arrays
  Contains,  // contains[payload]: arrays
  Unique,    // arrays
  Props,     // props[payload]: objects
  Require,   // names[payload]: objects
  Depend,    // depends[payload]: objects
  Count,     // ranges[payload]: objects
  Names,     // kids[0]: every member name satisfies it
  Exists,    // exists[payload]: objects: some member of a set of names satisfies a formula
};

struct Formula {
  Op op = Op::True;
  uint8_t types = kAnyType;  // Type: the mask. Assertions: the one type they speak about
  bool negative = false;
  uint32_t payload = 0;
  std::vector<FormulaId> kids;
};

struct StringSpec {  // a finite set, or a language with a window of lengths
  bool finite = false;
  std::vector<std::string> words;  // sorted
  LanguagePtr language;
  uint32_t min = 0, max = kInf;
  bool counted = false;  // the window belongs into the automaton, whose words are going to be counted
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
  uint64_t start = 0;  // positions before it do not count
};

struct PropsSpec {
  std::vector<std::pair<std::string, FormulaId>> names;
  bool declares = true;            // in this order; false: the order of `names` says nothing
  std::vector<std::string> order;  // of the names, where it matters; filled in by Formulas
  std::vector<std::pair<LanguagePtr, FormulaId>> patterns;
  FormulaId additional = 0;
};

struct DependSpec {
  std::string name;
  std::vector<std::string> needs;
};

struct ExistsSpec {
  LanguagePtr names;  // null: the strings that satisfy name_rule
  FormulaId value = 0;
  FormulaId name_rule = 0;
};

// The formulas of one grammar, numbered. Making one simplifies it as far as that is cheap: connectives are
// flat, sorted and without repeats, assertions that say nothing are yes(). An assertion is satisfied by every
// value of other types. Everything that makes formulas throws CompileError("budget", ...) beyond
// `Budget::nodes` of them.
class Formulas {
 public:
  // `ordered`: the order in which a schema declares members is part of what it says.
  explicit Formulas(Budget& budget, bool ordered = false);

  FormulaId yes() const { return 0; }
  FormulaId no() const { return 1; }
  FormulaId type(uint8_t mask);
  FormulaId all(std::vector<FormulaId> kids);
  FormulaId any(std::vector<FormulaId> kids);
  FormulaId one(std::vector<FormulaId> kids);  // exactly one of them
  // Values of that type which satisfy f.
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
  // As JSON Schema compares values: 1 is 1.0, members stand in any order. Linear in the size of the values.
  FormulaId equals(const Json& value);
  FormulaId one_of_values(const std::vector<const Json*>& values);

  // References: made before their target is known.
  uint32_t new_ref(std::string pointer);
  void bind(uint32_t ref, FormulaId target) { refs_[ref].target = target; }
  FormulaId ref(uint32_t number, bool negative = false);
  FormulaId resolve(const Formula& f);  // of an Op::Ref

  // Remembered. Throws CompileError for `uniqueItems` and for more than 64 numbers; the negation of `one` has
  // a part for every pair.
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

  // Where formulas come from, kept only when an error message needs it.
  bool tracking = false;
  std::unordered_map<FormulaId, std::string> origin;

 private:
  // Hash-consing: `key` describes a formula completely, and one that is known is given back.
  FormulaId intern(std::string key, Formula f);
  template <class Spec>  // with its payload, which is kept when it is new
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
