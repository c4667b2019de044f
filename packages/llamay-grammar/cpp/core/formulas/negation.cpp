// Negation of formulas. The negation is pushed down to the assertions (negation normal form). Every assertion
// has an exact complement within the values of its type.
#include "automata/algebra.h"
#include "automata/dfa.h"
#include "automata/words.h"
#include "formulas/formula.h"
#include "support/budget.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

// Formulas and payloads are passed by value, because making a formula may reallocate the vectors that hold
// them.
class Negation {
 public:
  explicit Negation(Formulas& formulas) : f_(formulas) {}

  FormulaId of(const Formula f) {
    switch (f.op) {
      case Op::True:
        return f_.no();
      case Op::False:
        return f_.yes();
      case Op::Type:
        return f_.type(kAnyType & ~f.types);
      case Op::And:
        return f_.any(each_negated(f.kids));
      case Op::Or:
        return f_.all(each_negated(f.kids));
      case Op::OneOf:
        return one_of(f.kids);
      case Op::Ref:
        return f_.ref(f.payload, !f.negative);
      case Op::Number:
        return number(f_.number_at(f));
      case Op::Numbers:
        return numbers(f_.numbers_at(f));
      case Op::String:
        return string(f_.string_at(f));
      case Op::Items:
        return items(f_.items_at(f));
      case Op::Length:
      case Op::Count:
        return range(f.op, f_.range_at(f));
      case Op::Contains:
        return contains(f_.contains_at(f));
      case Op::Unique:
        throw CompileError("uniqueItems", "", "the negation of uniqueItems is not supported");
      case Op::Props:
        return props(f_.props_at(f));
      case Op::Require:
        return missing(f_.name_at(f));
      case Op::Depend:
        return depend(f_.depend_at(f));
      case Op::Names:
        return f_.guarded(kObject, f_.exists({nullptr, f_.yes(), f_.negate(f.kids[0])}));
      case Op::Exists:
        return exists(f_.exists_at(f));
    }
    return f_.no();
  }

 private:
  Formulas& f_;

  std::vector<FormulaId> each_negated(const std::vector<FormulaId>& kids) {
    std::vector<FormulaId> out;
    for (FormulaId k : kids) out.push_back(f_.negate(k));
    return out;
  }

  // The negation of `oneOf`: none of the kids holds, or two of them hold.
  FormulaId one_of(const std::vector<FormulaId>& kids) {
    std::vector<FormulaId> parts{f_.all(each_negated(kids))};
    for (size_t i = 0; i < kids.size(); ++i)
      for (size_t j = i + 1; j < kids.size(); ++j) parts.push_back(f_.all({kids[i], kids[j]}));
    return f_.any(std::move(parts));
  }

  FormulaId number(const NumberSpec s) {
    std::vector<FormulaId> parts;
    auto add = [&](auto fill) {
      NumberSpec n;
      fill(n);
      parts.push_back(f_.guarded(kNumber, f_.number(std::move(n))));
    };
    if (s.lo) add([&](NumberSpec& n) { n.hi = s.lo, n.hi_open = !s.lo_open; });
    if (s.hi) add([&](NumberSpec& n) { n.lo = s.hi, n.lo_open = !s.hi_open; });
    if (s.integer) add([](NumberSpec& n) { n.fractional = true; });
    if (s.fractional) add([](NumberSpec& n) { n.integer = true; });
    for (auto& m : s.multiples) add([&](NumberSpec& n) { n.not_multiples = {m}; });
    for (auto& m : s.not_multiples) add([&](NumberSpec& n) { n.multiples = {m}; });
    if (!s.excluded.empty()) parts.push_back(f_.guarded(kNumber, f_.number_set(s.excluded)));
    return f_.any(std::move(parts));
  }

  FormulaId numbers(const std::vector<Decimal>& values) {
    if (values.size() > 64)
      throw CompileError("not", "", "the negation of an enumeration of more than 64 numbers");
    NumberSpec n;
    n.excluded = values;
    return f_.guarded(kNumber, f_.number(std::move(n)));
  }

  FormulaId string(const StringSpec s) {
    StringSpec n;
    n.language = complement(s.finite ? language_of_words(s.words, f_.budget()) : s.language, f_.budget());
    std::vector<FormulaId> parts{f_.guarded(kString, f_.string(n))};
    if (!s.finite && s.min > 0) {
      StringSpec shorter;
      shorter.language = every_text(), shorter.max = s.min - 1;
      parts.push_back(f_.guarded(kString, f_.string(shorter)));
    }
    if (!s.finite && s.max != kInf) {
      StringSpec longer;
      longer.language = every_text(), longer.min = s.max + 1;
      parts.push_back(f_.guarded(kString, f_.string(longer)));
    }
    return f_.any(std::move(parts));
  }

  FormulaId items(const ItemsSpec s) {
    std::vector<FormulaId> parts;
    for (size_t i = 0; i < s.prefix.size(); ++i) {
      if (s.prefix[i] == f_.yes()) continue;
      ItemsSpec bad;
      bad.prefix.assign(i, f_.yes());
      bad.prefix.push_back(f_.negate(s.prefix[i]));
      bad.rest = f_.yes();
      parts.push_back(f_.all({f_.type(kArray), f_.length({i + 1, UINT64_MAX}), f_.items(std::move(bad))}));
    }
    if (s.rest == f_.no()) {
      parts.push_back(f_.guarded(kArray, f_.length({s.prefix.size() + 1, UINT64_MAX})));
    } else if (s.rest != f_.yes()) {
      ContainsSpec c;
      c.item = f_.negate(s.rest), c.start = s.prefix.size();
      parts.push_back(f_.guarded(kArray, f_.contains(c)));
    }
    return f_.any(std::move(parts));
  }

  FormulaId range(Op op, const Range r) {
    std::vector<FormulaId> parts;
    auto add = [&](Range x) {
      parts.push_back(op == Op::Length ? f_.guarded(kArray, f_.length(x)) : f_.guarded(kObject, f_.count(x)));
    };
    if (r.min > 0) add({0, r.min - 1});
    if (r.max != UINT64_MAX) add({r.max + 1, UINT64_MAX});
    return f_.any(std::move(parts));
  }

  FormulaId contains(const ContainsSpec s) {
    std::vector<FormulaId> parts;
    if (s.min > 0) {
      ContainsSpec less = s;
      less.min = 0, less.max = s.min - 1;
      parts.push_back(f_.guarded(kArray, f_.contains(less)));
    }
    if (s.max != UINT64_MAX) {
      ContainsSpec more = s;
      more.min = s.max + 1, more.max = UINT64_MAX;
      parts.push_back(f_.guarded(kArray, f_.contains(more)));
    }
    return f_.any(std::move(parts));
  }

  FormulaId props(const PropsSpec s) {
    std::vector<FormulaId> parts;
    for (auto& [name, value] : s.names) {
      if (value == f_.yes()) continue;
      PropsSpec bad;
      bad.names.emplace_back(name, f_.negate(value));
      bad.additional = f_.yes(), bad.declares = false;
      parts.push_back(f_.all({f_.type(kObject), f_.require(name), f_.props(std::move(bad))}));
    }
    for (auto& [language, value] : s.patterns)
      if (value != f_.yes()) parts.push_back(f_.guarded(kObject, f_.exists({language, f_.negate(value), 0})));
    if (s.additional != f_.yes()) {
      Budget& budget = f_.budget();
      std::vector<std::string> words;
      for (auto& n : s.names) words.push_back(n.first);
      LanguagePtr others =
          words.empty() ? every_text() : complement(language_of_words(std::move(words), budget), budget);
      for (auto& p : s.patterns) others = combine(others, p.first, Combine::AndNot, budget);
      parts.push_back(f_.guarded(kObject, f_.exists({others, f_.negate(s.additional), 0})));
    }
    return f_.any(std::move(parts));
  }

  FormulaId missing(const std::string name) {
    PropsSpec s;
    s.names.emplace_back(name, f_.no());
    s.additional = f_.yes(), s.declares = false;
    return f_.guarded(kObject, f_.props(std::move(s)));
  }

  FormulaId depend(const DependSpec s) {
    std::vector<FormulaId> missing;
    for (auto& n : s.needs) missing.push_back(f_.negate(f_.require(n)));
    return f_.all({f_.type(kObject), f_.require(s.name), f_.any(std::move(missing))});
  }

  FormulaId exists(const ExistsSpec s) {
    if (!s.names) return f_.guarded(kObject, f_.names(f_.negate(s.name_rule)));  // from propertyNames
    PropsSpec p;
    p.patterns.emplace_back(s.names, f_.negate(s.value));
    p.additional = f_.yes();
    return f_.guarded(kObject, f_.props(std::move(p)));
  }
};

}  // namespace

FormulaId Formulas::negate(FormulaId id) {
  if (auto it = negated_.find(id); it != negated_.end()) return it->second;
  budget_.tick();
  const FormulaId out = Negation(*this).of(formulas_[id]);
  negated_[id] = out;
  negated_[out] = id;
  return out;
}

}  // namespace llamay::grammar
