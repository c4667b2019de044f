#include "formula.h"

#include <algorithm>

#include "lang_algebra.h"
#include "lang_words.h"

namespace llamay::grammar {
namespace {

void put(std::string& key, uint64_t v) { key.append(reinterpret_cast<const char*>(&v), 8); }
void put(std::string& key, const std::string& s) {
  put(key, s.size());
  key += s;
}

}  // namespace

Formulas::Formulas(Budget& budget) : budget_(budget) {
  formulas_.push_back({Op::True, kAnyType, false, 0, {}});
  formulas_.push_back({Op::False, 0, false, 0, {}});
}

FormulaId Formulas::make(Formula f) {
  if (formulas_.size() >= budget_.nodes)
    throw CompileError("budget", "",
                       "the schema expands to more than " + std::to_string(budget_.nodes) + " formulas");
  budget_.tick();
  formulas_.push_back(std::move(f));
  return static_cast<FormulaId>(formulas_.size() - 1);
}

// Interning: `key` describes the payload completely; `fill` stores it when it is new.
#define INTERN(key, fill)                                            \
  if (auto it = ids_.find(key); it != ids_.end()) return it->second; \
  Formula f;                                                         \
  fill;                                                              \
  FormulaId id = make(std::move(f));                                 \
  ids_.emplace(std::move(key), id);                                  \
  return id

FormulaId Formulas::type(uint8_t mask) {
  if (mask == kAnyType) return yes();
  if (mask == 0) return no();
  std::string key = "T";
  put(key, mask);
  INTERN(key, (f.op = Op::Type, f.types = mask));
}

FormulaId Formulas::all(std::vector<FormulaId> kids) {
  std::vector<FormulaId> flat;
  uint8_t types = kAnyType;
  for (FormulaId k : kids) {
    const Formula& f = formulas_[k];
    if (f.op == Op::False) return no();
    if (f.op == Op::True) continue;
    if (f.op == Op::Type) {
      types &= f.types;
    } else if (f.op == Op::And) {
      for (FormulaId x : f.kids) {
        if (formulas_[x].op == Op::Type)
          types &= formulas_[x].types;
        else
          flat.push_back(x);
      }
    } else {
      flat.push_back(k);
    }
  }
  if (types == 0) return no();
  // What speaks about a type that is excluded is vacuous.
  std::erase_if(flat, [&](FormulaId k) {
    const Formula& f = formulas_[k];
    return f.op >= Op::Number && (f.types & types) == 0;
  });
  if (types != kAnyType) flat.push_back(type(types));
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return yes();
  if (flat.size() == 1) return flat[0];
  std::string key = "A";
  for (FormulaId k : flat) put(key, k);
  INTERN(key, (f.op = Op::And, f.kids = std::move(flat)));
}

FormulaId Formulas::any(std::vector<FormulaId> kids) {
  std::vector<FormulaId> flat;
  uint8_t types = 0;
  for (FormulaId k : kids) {
    const Formula& f = formulas_[k];
    if (f.op == Op::True) return yes();
    if (f.op == Op::False) continue;
    if (f.op == Op::Type) {
      types |= f.types;
    } else if (f.op == Op::Or) {
      for (FormulaId x : f.kids) {
        if (formulas_[x].op == Op::Type)
          types |= formulas_[x].types;
        else
          flat.push_back(x);
      }
    } else {
      flat.push_back(k);
    }
  }
  if (types == kAnyType) return yes();
  if (types) flat.push_back(type(types));
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return no();
  if (flat.size() == 1) return flat[0];
  std::string key = "O";
  for (FormulaId k : flat) put(key, k);
  INTERN(key, (f.op = Op::Or, f.kids = std::move(flat)));
}

FormulaId Formulas::one(std::vector<FormulaId> kids) {
  std::erase(kids, no());
  if (kids.empty()) return no();
  if (kids.size() == 1) return kids[0];
  std::sort(kids.begin(), kids.end());
  std::string key = "X";
  for (FormulaId k : kids) put(key, k);
  INTERN(key, (f.op = Op::OneOf, f.kids = std::move(kids)));
}

FormulaId Formulas::number(NumberSpec spec) {
  std::string key = "N" + spec.key();
  INTERN(key, (f.op = Op::Number, f.types = kNumber, f.payload = static_cast<uint32_t>(numbers_.size()),
               numbers_.push_back(std::move(spec))));
}

FormulaId Formulas::number_set(std::vector<Decimal> values) {
  if (values.empty()) return type(kAnyType & ~kNumber);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::string key = "V";
  for (auto& v : values) put(key, (v.negative ? "-" : "") + v.digits + "e" + std::to_string(v.exponent));
  INTERN(key, (f.op = Op::Numbers, f.types = kNumber, f.payload = static_cast<uint32_t>(number_sets_.size()),
               number_sets_.push_back(std::move(values))));
}

FormulaId Formulas::string(StringSpec spec) {
  std::string key = spec.finite ? "W" : "S";
  if (spec.finite) {
    std::sort(spec.words.begin(), spec.words.end());
    spec.words.erase(std::unique(spec.words.begin(), spec.words.end()), spec.words.end());
    if (spec.words.empty()) return type(kAnyType & ~kString);
    for (auto& w : spec.words) put(key, w);
  } else {
    if (spec.lang->empty() || spec.min > spec.max) return type(kAnyType & ~kString);
    if (spec.lang == lang_any() && spec.min == 0 && spec.max == kInf && !spec.counted) return yes();
    put(key, spec.lang->uid);
    put(key, spec.min), put(key, spec.max), put(key, spec.counted);
  }
  INTERN(key, (f.op = Op::String, f.types = kString, f.payload = static_cast<uint32_t>(strings_.size()),
               strings_.push_back(std::move(spec))));
}

FormulaId Formulas::words(std::vector<std::string> w) {
  StringSpec s;
  s.finite = true, s.words = std::move(w);
  return string(std::move(s));
}

FormulaId Formulas::items(ItemsSpec spec) {
  while (!spec.prefix.empty() && spec.prefix.back() == spec.rest) spec.prefix.pop_back();
  if (spec.prefix.empty() && spec.rest == yes()) return yes();
  std::string key = "I";
  put(key, spec.rest);
  for (FormulaId k : spec.prefix) put(key, k);
  INTERN(key, (f.op = Op::Items, f.types = kArray, f.payload = static_cast<uint32_t>(items_.size()),
               items_.push_back(std::move(spec))));
}

FormulaId Formulas::length(Range r) {
  if (r.min > r.max) return type(kAnyType & ~kArray);
  if (r.min == 0 && r.max == UINT64_MAX) return yes();
  std::string key = "Y";
  put(key, r.min), put(key, r.max);
  INTERN(key, (f.op = Op::Length, f.types = kArray, f.payload = static_cast<uint32_t>(ranges_.size()),
               ranges_.push_back(r)));
}

FormulaId Formulas::count(Range r) {
  if (r.min > r.max) return type(kAnyType & ~kObject);
  if (r.min == 0 && r.max == UINT64_MAX) return yes();
  std::string key = "C";
  put(key, r.min), put(key, r.max);
  INTERN(key, (f.op = Op::Count, f.types = kObject, f.payload = static_cast<uint32_t>(ranges_.size()),
               ranges_.push_back(r)));
}

FormulaId Formulas::contains(ContainsSpec s) {
  if (s.min == 0 && s.max == UINT64_MAX) return yes();
  if (s.min > s.max) return type(kAnyType & ~kArray);
  if (s.item == no()) return s.min == 0 ? yes() : type(kAnyType & ~kArray);
  if (s.item == yes() && s.start == 0) return length({s.min, s.max});
  std::string key = "K";
  put(key, s.item), put(key, s.min), put(key, s.max), put(key, s.start);
  INTERN(key, (f.op = Op::Contains, f.types = kArray, f.payload = static_cast<uint32_t>(contains_.size()),
               contains_.push_back(s)));
}

FormulaId Formulas::unique() {
  std::string key = "U";
  INTERN(key, (f.op = Op::Unique, f.types = kArray));
}

FormulaId Formulas::props(PropsSpec s) {
  std::sort(s.names.begin(), s.names.end());
  if (s.patterns.empty()) std::erase_if(s.names, [&](auto& n) { return n.second == s.additional; });
  if (s.names.empty() && s.additional == yes() &&
      std::all_of(s.patterns.begin(), s.patterns.end(), [&](auto& p) { return p.second == yes(); }))
    return yes();
  std::string key = "P";
  put(key, s.additional);
  put(key, s.names.size());
  for (auto& n : s.names) put(key, n.first), put(key, n.second);
  for (auto& p : s.patterns) put(key, p.first->uid), put(key, p.second);
  INTERN(key, (f.op = Op::Props, f.types = kObject, f.payload = static_cast<uint32_t>(props_.size()),
               props_.push_back(std::move(s))));
}

FormulaId Formulas::require(const std::string& name) {
  std::string key = "R" + name;
  INTERN(key, (f.op = Op::Require, f.types = kObject, f.payload = static_cast<uint32_t>(names_.size()),
               names_.push_back(name)));
}

FormulaId Formulas::depend(DependSpec s) {
  if (s.needs.empty()) return yes();
  std::string key = "D";
  put(key, s.name);
  for (auto& n : s.needs) put(key, n);
  INTERN(key, (f.op = Op::Depend, f.types = kObject, f.payload = static_cast<uint32_t>(depends_.size()),
               depends_.push_back(std::move(s))));
}

FormulaId Formulas::names(FormulaId string_formula) {
  if (string_formula == yes()) return yes();
  std::string key = "M";
  put(key, string_formula);
  INTERN(key, (f.op = Op::Names, f.types = kObject, f.kids = {string_formula}));
}

FormulaId Formulas::exists(ExistsSpec s) {
  if ((s.names ? s.names->empty() : s.name_rule == no()) || s.value == no()) return type(kAnyType & ~kObject);
  std::string key = "E";
  put(key, s.names ? s.names->uid : 0), put(key, s.value), put(key, s.name_rule);
  INTERN(key, (f.op = Op::Exists, f.types = kObject, f.payload = static_cast<uint32_t>(exists_.size()),
               exists_.push_back(std::move(s))));
}

FormulaId Formulas::equals(const Json& v) { return one_of_values({&v}); }

FormulaId Formulas::one_of_values(const std::vector<const Json*>& values) {
  uint8_t types = 0;
  std::vector<std::string> strings;
  std::vector<Decimal> numbers;
  std::vector<FormulaId> parts;
  for (const Json* v : values) {
    switch (v->kind) {
      case JsonKind::Null:
        types |= kNull;
        break;
      case JsonKind::False:
        types |= kFalse;
        break;
      case JsonKind::True:
        types |= kTrue;
        break;
      case JsonKind::Number:
        numbers.push_back(v->number);
        break;
      case JsonKind::String:
        strings.push_back(v->text);
        break;
      case JsonKind::Array: {
        ItemsSpec s;
        s.rest = no();
        for (auto& x : v->items) s.prefix.push_back(equals(x));
        parts.push_back(all({type(kArray), length({v->items.size(), v->items.size()}), items(std::move(s))}));
        break;
      }
      case JsonKind::Object: {
        PropsSpec s;
        s.additional = no();
        std::vector<FormulaId> and_{type(kObject)};
        for (auto& [name, x] : v->members) {
          s.names.emplace_back(name, equals(x));
          and_.push_back(require(name));
        }
        and_.push_back(props(std::move(s)));
        parts.push_back(all(std::move(and_)));
      }
    }
  }
  if (types) parts.push_back(type(types));
  if (!strings.empty()) parts.push_back(guarded(kString, words(std::move(strings))));
  if (!numbers.empty()) parts.push_back(guarded(kNumber, number_set(std::move(numbers))));
  return any(std::move(parts));
}

uint32_t Formulas::new_ref(std::string pointer) {
  refs_.push_back({0, std::move(pointer)});
  return static_cast<uint32_t>(refs_.size() - 1);
}

FormulaId Formulas::ref(uint32_t number, bool negative) {
  std::string key = negative ? "r" : "q";
  put(key, number);
  INTERN(key, (f.op = Op::Ref, f.payload = number, f.negative = negative));
}

FormulaId Formulas::resolve(const Formula& f) {
  FormulaId t = refs_[f.payload].target;
  return f.negative ? negate(t) : t;
}

FormulaId Formulas::negate(FormulaId id) {
  if (auto it = negated_.find(id); it != negated_.end()) return it->second;
  budget_.tick();
  const Formula f = formulas_[id];  // a copy: making formulas moves the vector
  FormulaId out = no();
  switch (f.op) {
    case Op::True:
      out = no();
      break;
    case Op::False:
      out = yes();
      break;
    case Op::Type:
      out = type(kAnyType & ~f.types);
      break;
    case Op::And:
    case Op::Or: {
      std::vector<FormulaId> kids;
      for (FormulaId k : f.kids) kids.push_back(negate(k));
      out = f.op == Op::And ? any(std::move(kids)) : all(std::move(kids));
      break;
    }
    case Op::OneOf: {  // none of them, or two
      std::vector<FormulaId> none, parts;
      for (FormulaId k : f.kids) none.push_back(negate(k));
      parts.push_back(all(std::move(none)));
      for (size_t i = 0; i < f.kids.size(); ++i)
        for (size_t j = i + 1; j < f.kids.size(); ++j) parts.push_back(all({f.kids[i], f.kids[j]}));
      out = any(std::move(parts));
      break;
    }
    case Op::Ref:
      out = ref(f.payload, !f.negative);
      break;
    case Op::Number: {
      const NumberSpec s = numbers_[f.payload];
      std::vector<FormulaId> parts;
      auto add = [&](NumberSpec n) { parts.push_back(guarded(kNumber, number(std::move(n)))); };
      if (s.lo) {
        NumberSpec n;
        n.hi = s.lo, n.hi_open = !s.lo_open;
        add(n);
      }
      if (s.hi) {
        NumberSpec n;
        n.lo = s.hi, n.lo_open = !s.hi_open;
        add(n);
      }
      if (s.integer) {
        NumberSpec n;
        n.fractional = true;
        add(n);
      }
      if (s.fractional) {
        NumberSpec n;
        n.integer = true;
        add(n);
      }
      for (auto& m : s.multiples) {
        NumberSpec n;
        n.not_multiples = {m};
        add(n);
      }
      for (auto& m : s.not_multiples) {
        NumberSpec n;
        n.multiples = {m};
        add(n);
      }
      if (!s.excluded.empty()) parts.push_back(guarded(kNumber, number_set(s.excluded)));
      out = any(std::move(parts));
      break;
    }
    case Op::Numbers: {
      NumberSpec n;
      n.excluded = number_sets_[f.payload];
      if (n.excluded.size() > 64)
        throw CompileError("not", "", "the negation of an enumeration of more than 64 numbers");
      out = guarded(kNumber, number(std::move(n)));
      break;
    }
    case Op::String: {
      const StringSpec s = strings_[f.payload];
      StringSpec n;
      n.lang = complement(s.finite ? lang_of_words(s.words, budget_) : s.lang, budget_);
      std::vector<FormulaId> parts{guarded(kString, string(n))};
      if (!s.finite && s.min > 0) {
        StringSpec shorter;
        shorter.lang = lang_any(), shorter.max = s.min - 1;
        parts.push_back(guarded(kString, string(shorter)));
      }
      if (!s.finite && s.max != kInf) {
        StringSpec longer;
        longer.lang = lang_any(), longer.min = s.max + 1;
        parts.push_back(guarded(kString, string(longer)));
      }
      out = any(std::move(parts));
      break;
    }
    case Op::Items: {
      const ItemsSpec s = items_[f.payload];
      std::vector<FormulaId> parts;
      for (size_t i = 0; i < s.prefix.size(); ++i) {
        if (s.prefix[i] == yes()) continue;
        ItemsSpec bad;
        bad.prefix.assign(i, yes());
        bad.prefix.push_back(negate(s.prefix[i]));
        bad.rest = yes();
        parts.push_back(all({type(kArray), length({i + 1, UINT64_MAX}), items(std::move(bad))}));
      }
      if (s.rest == no()) {
        parts.push_back(guarded(kArray, length({s.prefix.size() + 1, UINT64_MAX})));
      } else if (s.rest != yes()) {
        ContainsSpec c;
        c.item = negate(s.rest), c.start = s.prefix.size();
        parts.push_back(guarded(kArray, contains(c)));
      }
      out = any(std::move(parts));
      break;
    }
    case Op::Length:
    case Op::Count: {
      Range r = ranges_[f.payload];
      std::vector<FormulaId> parts;
      uint8_t t = f.types;
      auto make_range = [&](Range x) { return guarded(t, f.op == Op::Length ? length(x) : count(x)); };
      if (r.min > 0) parts.push_back(make_range({0, r.min - 1}));
      if (r.max != UINT64_MAX) parts.push_back(make_range({r.max + 1, UINT64_MAX}));
      out = any(std::move(parts));
      break;
    }
    case Op::Contains: {
      ContainsSpec s = contains_[f.payload];
      std::vector<FormulaId> parts;
      if (s.min > 0) {
        ContainsSpec less = s;
        less.min = 0, less.max = s.min - 1;
        parts.push_back(guarded(kArray, contains(less)));
      }
      if (s.max != UINT64_MAX) {
        ContainsSpec more = s;
        more.min = s.max + 1, more.max = UINT64_MAX;
        parts.push_back(guarded(kArray, contains(more)));
      }
      out = any(std::move(parts));
      break;
    }
    case Op::Unique:
      throw CompileError("uniqueItems", "", "the negation of uniqueItems is not supported");
    case Op::Props: {
      const PropsSpec s = props_[f.payload];
      std::vector<FormulaId> parts;
      for (auto& [name, value] : s.names) {
        if (value == yes()) continue;
        PropsSpec bad;
        bad.names.emplace_back(name, negate(value));
        bad.additional = yes();
        parts.push_back(all({type(kObject), require(name), props(std::move(bad))}));
      }
      for (auto& [lang, value] : s.patterns)
        if (value != yes()) parts.push_back(guarded(kObject, exists({lang, negate(value), 0})));
      if (s.additional != yes()) {
        std::vector<std::string> words;
        for (auto& n : s.names) words.push_back(n.first);
        LangPtr others =
            words.empty() ? lang_any() : complement(lang_of_words(std::move(words), budget_), budget_);
        for (auto& p : s.patterns) others = combine(others, p.first, Combine::AndNot, budget_);
        parts.push_back(guarded(kObject, exists({others, negate(s.additional), 0})));
      }
      out = any(std::move(parts));
      break;
    }
    case Op::Require: {
      PropsSpec s;
      s.names.emplace_back(names_[f.payload], no());
      s.additional = yes();
      out = guarded(kObject, props(std::move(s)));
      break;
    }
    case Op::Depend: {
      const DependSpec s = depends_[f.payload];
      std::vector<FormulaId> missing;
      for (auto& n : s.needs) missing.push_back(negate(require(n)));
      out = all({type(kObject), require(s.name), any(std::move(missing))});
      break;
    }
    case Op::Names:
      out = guarded(kObject, exists({nullptr, yes(), negate(f.kids[0])}));
      break;
    case Op::Exists: {
      const ExistsSpec s = exists_[f.payload];
      if (!s.names) {  // made from propertyNames
        out = guarded(kObject, names(negate(s.name_rule)));
        break;
      }
      PropsSpec p;
      p.patterns.emplace_back(s.names, negate(s.value));
      p.additional = yes();
      out = guarded(kObject, props(std::move(p)));
      break;
    }
  }
  negated_[id] = out;
  negated_[out] = id;
  return out;
}

}  // namespace llamay::grammar
