// Objects: declared and other names, slots for their values, conditions between them.
#include "expansion/expansion.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_set>

#include "automata/algebra.h"
#include "automata/dfa.h"
#include "automata/words.h"
#include "program/feasible.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

constexpr uint32_t kFewNames = 1024;

}  // namespace

uint32_t Expansion::object(const Leaves& leaves) {
  auto [it, fresh] = object_of.emplace(leaves, kNone);
  if (!fresh) return it->second;
  ObjectAtom a;
  std::vector<PropsSpec> props;
  std::vector<FormulaId> name_rules;
  std::vector<std::vector<Literal>> clauses;
  std::vector<DependSpec> depends;
  std::vector<std::string> names;
  std::vector<std::string> required;
  for (FormulaId id : leaves) {
    const Formula& x = f.at(id);
    switch (x.op) {
      case Op::Props:
        props.push_back(f.props_at(x));
        names.insert(names.end(), props.back().order.begin(), props.back().order.end());
        break;
      case Op::Require:
        required.push_back(f.name_at(x));
        break;
      case Op::Depend:
        depends.push_back(f.depend_at(x));
        break;
      case Op::Count: {
        const Range& r = f.range_at(x);
        a.min = std::max(a.min, r.min), a.max = std::min(a.max, r.max);
        break;
      }
      case Op::Names:
        name_rules.push_back(x.kids[0]);
        break;
      case Op::Exists:
        clauses.push_back({*literal(id)});
        break;
      case Op::Or: {
        clauses.emplace_back();
        for (FormulaId k : std::vector<FormulaId>(x.kids)) clauses.back().push_back(*literal(k));
        break;
      }
      default:
        break;
    }
  }
  for (auto& s : props)
    for (auto& n : s.names) names.push_back(n.first);
  if (clauses.size() > 24)
    throw CompileError("budget", "", "more than 24 conditions on the members of one object");
  names.insert(names.end(), required.begin(), required.end());
  for (auto& d : depends) {
    names.push_back(d.name);
    names.insert(names.end(), d.needs.begin(), d.needs.end());
  }
  std::vector<std::string> order = names;
  for (auto& c : clauses)
    for (auto& l : c)
      if (l.kind != Literal::Exists) names.push_back(l.name);
  LanguagePtr rule = every_text();
  for (FormulaId r : name_rules) rule = combine(rule, string_language(r), Combine::And, budget);
  if (rule->trie) names.insert(names.end(), rule->words.begin(), rule->words.end());
  // All other names, classified by the patterns and the conditions that they match.
  std::vector<LanguagePtr> languages;
  struct From {
    size_t props, pattern;
  };
  std::vector<From> from;
  for (size_t s = 0; s < props.size(); ++s)
    for (size_t k = 0; k < props[s].patterns.size(); ++k)
      languages.push_back(props[s].patterns[k].first), from.push_back({s, k});
  std::vector<std::pair<size_t, const Literal*>> somewhere;  // clause, literal
  for (size_t c = 0; c < clauses.size(); ++c)
    for (auto& l : clauses[c])
      if (l.kind == Literal::Exists) languages.push_back(l.names), somewhere.emplace_back(c, &l);
  // Where conditions tell names apart, few names of one class count as declared: which of them have been used
  // then decides whether the conditions can still be met.
  std::vector<bool> few;
  if (!somewhere.empty() && !rule->trie) {
    for (const LanguagePtr& part : classes_of(languages)) {
      const LanguagePtr words = rule == every_text() ? part : combine(part, rule, Combine::And, budget);
      few.push_back(words->empty() ||
                    (words->max_length(0) <= kFewNames && words->count_words(0) <= kFewNames));
      if (few.back()) append_words(*words, names);
    }
  }
  a.names = language_of_words(names, budget);
  const auto& words = a.names->words;
  // Returns the options of a slot with the plain value `base`. A value meets condition c if it satisfies
  // meets[c]; no() stands for a condition that no value meets.
  auto options = [&](FormulaId base, const std::vector<FormulaId>& meets) {
    Slot out;
    if (base == f.no()) return out;
    uint32_t always = 0;
    std::vector<uint32_t> maybe;
    for (uint32_t c = 0; c < meets.size(); ++c) {
      if (meets[c] == f.no() || disjoint_all(base, meets[c], 2)) continue;
      if (meets[c] == f.yes() || disjoint_all(base, f.negate(meets[c]), 2))
        always |= 1u << c;
      else
        maybe.push_back(c);
    }
    if (maybe.size() > 8) throw CompileError("budget", "", "too many conditions meet in one member");
    for (uint32_t pick = 0; pick < (1u << maybe.size()); ++pick) {
      std::vector<FormulaId> and_{base};
      uint32_t gain = always;
      for (size_t i = 0; i < maybe.size(); ++i)
        if (pick >> i & 1) and_.push_back(meets[maybe[i]]), gain |= 1u << maybe[i];
      FormulaId v = and_.size() == 1 ? base : f.all(std::move(and_));
      if (v != f.no()) out.push_back({node(v), gain});
    }
    return out;
  };
  auto place = [&](const std::string& name) {
    return static_cast<uint32_t>(std::lower_bound(words.begin(), words.end(), name) - words.begin());
  };
  const size_t w = (words.size() + 63) / 64;
  a.possible.assign(w, 0), a.required.assign(w, 0);
  a.rank.assign(words.size(), kNone);
  uint32_t next_rank = 0;
  for (auto& n : order)
    if (uint32_t k = place(n); a.rank[k] == kNone) a.rank[k] = next_rank++;
  for (size_t i = 0; i < words.size(); ++i) {
    budget.tick();
    std::vector<FormulaId> and_;
    for (auto& s : props) and_.push_back(value_for(s, words[i]));
    FormulaId base = and_.size() == 1 ? and_[0] : f.all(std::move(and_));
    if (!rule->matches(words[i])) base = f.no();
    std::vector<FormulaId> meets;
    for (auto& c : clauses) {
      std::vector<FormulaId> any;
      for (auto& l : c)
        if (l.kind == Literal::Exists ? l.names->matches(words[i])
                                      : l.kind == Literal::Present && l.name == words[i])
          any.push_back(l.value);
      meets.push_back(f.any(std::move(any)));
    }
    a.known.push_back(options(base, meets));
    if (!a.known.back().empty()) a.possible[i / 64] |= uint64_t{1} << (i % 64);
  }
  for (auto& c : clauses) {
    a.clauses.emplace_back();
    for (auto& l : c)
      if (l.kind == Literal::Absent) a.clauses.back().absent.push_back(place(l.name));
  }
  for (uint32_t c = 0; c < clauses.size(); ++c)
    for (uint32_t k = 0; k < a.known.size(); ++k)
      if (std::any_of(a.known[k].begin(), a.known[k].end(), [&](auto& o) { return o.gain >> c & 1; }))
        a.clauses[c].present.push_back(k);
  for (auto& r : required) {
    uint32_t k = place(r);
    a.required[k / 64] |= uint64_t{1} << (k % 64);
  }
  for (auto& d : depends) {
    std::vector<uint64_t> bits(w, 0);
    for (auto& n : d.needs) {
      uint32_t k = place(n);
      bits[k / 64] |= uint64_t{1} << (k % 64);
    }
    a.depends.emplace_back(place(d.name), std::move(bits));
  }
  if (rule->trie) {
    a.rest = nullptr;
  } else {
    auto base_of = [&](const std::vector<bool>& set) {
      std::vector<FormulaId> and_;
      for (size_t s = 0; s < props.size(); ++s) {
        bool found = false;
        for (size_t k = 0; k < from.size(); ++k)
          if (from[k].props == s && set[k])
            and_.push_back(props[s].patterns[from[k].pattern].second), found = true;
        if (!found) and_.push_back(props[s].additional);
      }
      return f.all(std::move(and_));
    };
    if (languages.empty()) {
      FormulaId base = base_of({});
      if (base != f.no()) {
        a.rest = rule;
        a.rest_slots.push_back(options(base, {}));
      }
    } else {
      const Classified& names = classified(languages);
      const LanguagePtr& all = names.all;
      const std::vector<std::vector<bool>>& sets = names.sets;
      bool some = false;
      for (const std::vector<bool>& set : sets) {
        if (!few.empty() && few[a.rest_slots.size()]) {
          a.rest_slots.emplace_back();
          continue;
        }
        std::vector<FormulaId> meets(clauses.size(), f.no());
        for (size_t e = 0; e < somewhere.size(); ++e)
          if (set[from.size() + e])
            meets[somewhere[e].first] = f.any({meets[somewhere[e].first], somewhere[e].second->value});
        a.rest_slots.push_back(options(base_of(set), meets));
        some |= !a.rest_slots.back().empty();
      }
      if (some) a.rest = restrict_labels(all, rule, a.rest_slots);
    }
  }
  p.objects.push_back(std::move(a));
  return it->second = static_cast<uint32_t>(p.objects.size() - 1);
}

bool Expansion::object_possible(const ObjectAtom& a) const {
  uint64_t need = 0, have = 0;
  std::vector<uint64_t> req = with_dependencies(a, a.required);
  for (size_t i = 0; i < a.known.size(); ++i) {
    bool r = req[i / 64] >> (i % 64) & 1, u = usable(a.known[i]);
    if (r && !u) return false;
    need += r, have += u;
  }
  if (a.rest)
    for (uint32_t l = 0; l < a.rest_slots.size(); ++l)
      if (usable(a.rest_slots[l])) {
        uint64_t words = UINT64_MAX;
        if (!a.rest->infinite(0)) words = a.rest->count_words(0);
        have = have + words < have ? UINT64_MAX : have + words;
        break;
      }
  if (need > a.max || have < a.min || a.min > a.max) return false;
  if (a.clauses.empty()) return true;
  // Impossible members are not marked in `possible` yet, so the search looks at the options of the members.
  std::vector<uint64_t> seen(a.words(), 0);
  return object_feasible(p, a, seen.data(), 0, 0);
}

}  // namespace llamay::grammar
