// Construction of formulas: every formula is made once and simplified as far as that is cheap.
#include "formulas/formula.h"

#include <algorithm>

#include "automata/dfa.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

void put(std::string& key, uint64_t v) { key.append(reinterpret_cast<const char*>(&v), 8); }
void put(std::string& key, const std::string& s) {
  put(key, s.size());
  key += s;
}
template <class T>
void put(std::string& key, const std::vector<T>& list) {
  for (const T& x : list) put(key, x);
}

// Returns a key that describes a formula completely. Only the last part may be a list, because the key does
// not mark the end of a list.
template <class... Parts>
std::string key_of(char kind, const Parts&... parts) {
  std::string key(1, kind);
  (put(key, parts), ...);
  return key;
}

template <class T>
void sort_unique(std::vector<T>& v) {
  std::sort(v.begin(), v.end());
  v.erase(std::unique(v.begin(), v.end()), v.end());
}

}  // namespace

Formulas::Formulas(Budget& budget, bool ordered) : budget_(budget), ordered_(ordered) {
  formulas_.push_back({Op::True, kAnyType, false, 0, {}});
  formulas_.push_back({Op::False, 0, false, 0, {}});
}

FormulaId Formulas::make(std::string key, Formula f) {
  if (formulas_.size() >= budget_.nodes)
    throw CompileError("budget", "",
                       "the schema expands to more than " + std::to_string(budget_.nodes) + " formulas");
  budget_.tick();
  const FormulaId id = static_cast<FormulaId>(formulas_.size());
  formulas_.push_back(std::move(f));
  ids_.emplace(std::move(key), id);
  return id;
}

FormulaId Formulas::intern(std::string key, Formula f) {
  if (auto it = ids_.find(key); it != ids_.end()) return it->second;
  return make(std::move(key), std::move(f));
}

template <class Spec>
FormulaId Formulas::assertion(std::string key, Op op, uint8_t type, std::vector<Spec>& specs, Spec spec) {
  if (auto it = ids_.find(key); it != ids_.end()) return it->second;
  specs.push_back(std::move(spec));
  return make(std::move(key), {op, type, false, static_cast<uint32_t>(specs.size() - 1), {}});
}

FormulaId Formulas::type(uint8_t mask) {
  if (mask == kAnyType) return yes();
  if (mask == 0) return no();
  return intern(key_of('T', mask), {Op::Type, mask, false, 0, {}});
}

// Conjunction and disjunction are dual: the absorbing element of the one is the neutral element of the other.
// A conjunction intersects masks of types, a disjunction unites them.
FormulaId Formulas::junction(Op op, const std::vector<FormulaId>& kids) {
  const bool conjunction = op == Op::And;
  const FormulaId absorbing = conjunction ? no() : yes(), neutral = conjunction ? yes() : no();
  const uint8_t neutral_types = conjunction ? kAnyType : 0, absorbing_types = conjunction ? 0 : kAnyType;
  std::vector<FormulaId> flat;
  uint8_t types = neutral_types;
  auto add = [&](FormulaId k) {
    const Formula& f = formulas_[k];
    if (f.op != Op::Type)
      flat.push_back(k);
    else if (conjunction)
      types &= f.types;
    else
      types |= f.types;
  };
  for (FormulaId k : kids) {
    if (k == absorbing) return absorbing;
    if (k == neutral) continue;
    if (formulas_[k].op == op)
      for (FormulaId x : formulas_[k].kids) add(x);
    else
      add(k);
  }
  if (types == absorbing_types) return absorbing;
  // An assertion about an excluded type is vacuous.
  if (conjunction)
    std::erase_if(flat, [&](FormulaId k) {
      const Formula& f = formulas_[k];
      return f.op >= Op::Number && (f.types & types) == 0;
    });
  if (types != neutral_types) flat.push_back(type(types));
  sort_unique(flat);
  if (flat.empty()) return neutral;
  if (flat.size() == 1) return flat[0];
  std::string key = key_of(conjunction ? 'A' : 'O', flat);
  return intern(std::move(key), {op, kAnyType, false, 0, std::move(flat)});
}

FormulaId Formulas::all(std::vector<FormulaId> kids) { return junction(Op::And, kids); }
FormulaId Formulas::any(std::vector<FormulaId> kids) { return junction(Op::Or, kids); }

FormulaId Formulas::one(std::vector<FormulaId> kids) {
  std::erase(kids, no());
  if (kids.empty()) return no();
  if (kids.size() == 1) return kids[0];
  std::sort(kids.begin(), kids.end());
  std::string key = key_of('X', kids);
  return intern(std::move(key), {Op::OneOf, kAnyType, false, 0, std::move(kids)});
}

FormulaId Formulas::number(NumberSpec spec) {
  std::string key = "N" + spec.key();
  return assertion(std::move(key), Op::Number, kNumber, numbers_, std::move(spec));
}

FormulaId Formulas::number_set(std::vector<Decimal> values) {
  if (values.empty()) return type(kAnyType & ~kNumber);
  sort_unique(values);
  std::string key = "V";
  for (auto& v : values) put(key, (v.negative ? "-" : "") + v.digits + "e" + std::to_string(v.exponent));
  return assertion(std::move(key), Op::Numbers, kNumber, number_sets_, std::move(values));
}

FormulaId Formulas::string(StringSpec spec) {
  std::string key;
  if (spec.finite) {
    sort_unique(spec.words);
    if (spec.words.empty()) return type(kAnyType & ~kString);
    key = key_of('W', spec.words);
  } else {
    if (spec.language->empty() || spec.min > spec.max) return type(kAnyType & ~kString);
    if (spec.language == every_text() && spec.min == 0 && spec.max == kInf && !spec.counted) return yes();
    key = key_of('S', spec.language->uid, spec.min, spec.max, spec.counted);
  }
  return assertion(std::move(key), Op::String, kString, strings_, std::move(spec));
}

FormulaId Formulas::words(std::vector<std::string> w) {
  StringSpec s;
  s.finite = true, s.words = std::move(w);
  return string(std::move(s));
}

FormulaId Formulas::items(ItemsSpec spec) {
  while (!spec.prefix.empty() && spec.prefix.back() == spec.rest) spec.prefix.pop_back();
  if (spec.prefix.empty() && spec.rest == yes()) return yes();
  std::string key = key_of('I', spec.rest, spec.prefix);
  return assertion(std::move(key), Op::Items, kArray, items_, std::move(spec));
}

FormulaId Formulas::length(Range r) {
  if (r.min > r.max) return type(kAnyType & ~kArray);
  if (r.min == 0 && r.max == UINT64_MAX) return yes();
  return assertion(key_of('Y', r.min, r.max), Op::Length, kArray, ranges_, r);
}

FormulaId Formulas::count(Range r) {
  if (r.min > r.max) return type(kAnyType & ~kObject);
  if (r.min == 0 && r.max == UINT64_MAX) return yes();
  return assertion(key_of('C', r.min, r.max), Op::Count, kObject, ranges_, r);
}

FormulaId Formulas::contains(ContainsSpec s) {
  if (s.min == 0 && s.max == UINT64_MAX) return yes();
  if (s.min > s.max) return type(kAnyType & ~kArray);
  if (s.item == no()) return s.min == 0 ? yes() : type(kAnyType & ~kArray);
  if (s.item == yes() && s.start == 0) return length({s.min, s.max});
  return assertion(key_of('K', s.item, s.min, s.max, s.start), Op::Contains, kArray, contains_, s);
}

FormulaId Formulas::unique() { return intern(key_of('U'), {Op::Unique, kArray, false, 0, {}}); }

FormulaId Formulas::props(PropsSpec s) {
  s.order.clear();
  if (ordered_ && s.declares)
    for (const auto& n : s.names) s.order.push_back(n.first);
  std::sort(s.names.begin(), s.names.end());
  if (s.patterns.empty()) std::erase_if(s.names, [&](auto& n) { return n.second == s.additional; });
  if (s.names.empty() && s.order.size() < 2 && s.additional == yes() &&
      std::all_of(s.patterns.begin(), s.patterns.end(), [&](auto& p) { return p.second == yes(); }))
    return yes();
  std::string key = key_of('P', s.additional, s.names.size());
  for (auto& n : s.names) put(key, n.first), put(key, n.second);
  put(key, s.patterns.size());
  for (auto& p : s.patterns) put(key, p.first->uid), put(key, p.second);
  put(key, s.order);
  return assertion(std::move(key), Op::Props, kObject, props_, std::move(s));
}

FormulaId Formulas::require(const std::string& name) {
  return assertion("R" + name, Op::Require, kObject, names_, name);
}

FormulaId Formulas::depend(DependSpec s) {
  if (s.needs.empty()) return yes();
  std::string key = key_of('D', s.name, s.needs);
  return assertion(std::move(key), Op::Depend, kObject, depends_, std::move(s));
}

FormulaId Formulas::names(FormulaId string_formula) {
  if (string_formula == yes()) return yes();
  return intern(key_of('M', string_formula), {Op::Names, kObject, false, 0, {string_formula}});
}

FormulaId Formulas::exists(ExistsSpec s) {
  if ((s.names ? s.names->empty() : s.name_rule == no()) || s.value == no()) return type(kAnyType & ~kObject);
  std::string key = key_of('E', s.names ? s.names->uid : 0, s.value, s.name_rule);
  return assertion(std::move(key), Op::Exists, kObject, exists_, std::move(s));
}

uint32_t Formulas::new_ref(std::string pointer) {
  refs_.push_back({0, std::move(pointer)});
  return static_cast<uint32_t>(refs_.size() - 1);
}

FormulaId Formulas::ref(uint32_t number, bool negative) {
  return intern(key_of(negative ? 'r' : 'q', number), {Op::Ref, kAnyType, negative, number, {}});
}

FormulaId Formulas::resolve(const Formula& f) {
  FormulaId t = refs_[f.payload].target;
  return f.negative ? negate(t) : t;
}

}  // namespace llamay::grammar
