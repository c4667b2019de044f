// Derivatives of terms, and automata whose states they are (J. Brzozowski, "Derivatives of regular
// expressions", 1964).
#include <algorithm>
#include <unordered_map>

#include "automata/alphabet.h"
#include "automata/dfa.h"
#include "regex/terms.h"
#include "support/compile_error.h"

namespace llamay::grammar {

Terms::Id Terms::derive(Id a, uint32_t cls) {
  switch (terms_[a].op) {
    case Op::None:
    case Op::Epsilon:
      return none();
    case Op::Set:
      return set_has_[terms_[a].kids[0]][cls] ? epsilon() : none();
    default:
      break;
  }
  if (a == anything()) return a;
  if (derived_.size() <= a) derived_.resize(std::max<size_t>(terms_.size(), a + 1));
  if (derived_[a].empty()) derived_[a].assign(n_classes_, kNoTerm);
  if (const Id known = derived_[a][cls]; known != kNoTerm) return known;
  budget_.tick();
  Id out = none();
  // Making a term may reallocate the vector of terms, so no reference into the vector is kept.
  const Id first = terms_[a].kids[0];
  switch (terms_[a].op) {
    case Op::Concat: {
      const Id second = terms_[a].kids[1];
      out = concat(derive(first, cls), second);
      if (nullable(first)) out = alt({out, derive(second, cls)});
      break;
    }
    case Op::Alt:
    case Op::And: {
      std::vector<Id> d;
      for (size_t i = 0; i < terms_[a].kids.size(); ++i) d.push_back(derive(terms_[a].kids[i], cls));
      out = terms_[a].op == Op::Alt ? alt(std::move(d)) : both(std::move(d));
      break;
    }
    case Op::Not:
      out = negate(derive(first, cls));
      break;
    case Op::Repeat: {
      const uint32_t min = terms_[a].min, max = terms_[a].max;
      const Id d = derive(first, cls);
      if (d != none()) out = concat(d, repeat(first, min ? min - 1 : 0, max == kInf ? kInf : max - 1));
      break;
    }
    default:
      break;
  }
  derived_[a][cls] = out;
  return out;
}

// The sets that a term's derivatives ask for: classes of characters that none of them tells apart have the
// same one (S. Owens, J. Reppy, A. Turon, "Regular-expression derivatives re-examined", 2009).
uint64_t Terms::asked(Id a) {
  if (asked_.size() <= a) asked_.resize(std::max<size_t>(terms_.size(), a + 1), kUnknown);
  if (asked_[a] != kUnknown) return asked_[a];
  uint64_t out = 0;
  const Term& t = terms_[a];
  if (t.op == Op::Set) {
    out = uint64_t{1} << t.kids[0];
  } else if (t.op != Op::None && t.op != Op::Epsilon) {
    for (const Id kid : t.kids) {
      out |= asked(kid);
      if (t.op == Op::Concat && !nullable(kid)) break;
    }
  }
  return asked_[a] = out;
}

LanguagePtr Terms::compile(Id root) {
  Cuts cuts;
  for (auto& s : sets_) cuts.add(s);
  std::vector<size_t> at(sets_.size(), 0);
  const Alphabet<std::vector<bool>> alphabet(std::move(cuts), [&](uint32_t cp) {
    std::vector<bool> key;
    for (size_t i = 0; i < sets_.size(); ++i) {
      auto& r = sets_[i].ranges;
      while (at[i] < r.size() && r[at[i]].second < cp) ++at[i];
      key.push_back(at[i] < r.size() && r[at[i]].first <= cp);
    }
    return key;
  });
  const auto& members = alphabet.keys;
  RawDfa raw = alphabet.dfa();
  n_classes_ = raw.n_classes;
  set_has_.assign(sets_.size(), {});
  derived_.clear();
  for (size_t i = 0; i < sets_.size(); ++i)
    for (auto& m : members) set_has_[i].push_back(!m.empty() && m[i]);
  // For each class, the mask of the sets that contain it, if the mask fits into a word; one bit marks an
  // unknown mask.
  const bool few_sets = sets_.size() < 63;
  std::vector<uint64_t> sets_of(members.size(), 0);
  for (size_t c = 0; few_sets && c < members.size(); ++c)
    for (size_t i = 0; i < sets_.size(); ++i) sets_of[c] |= uint64_t{set_has_[i][c]} << i;
  std::unordered_map<Id, uint32_t> numbers;
  std::vector<Id> states;
  auto number = [&](Id t) {
    auto [it, fresh] = numbers.emplace(t, static_cast<uint32_t>(states.size()));
    if (fresh) {
      if (states.size() > budget_.automaton_states)
        throw CompileError(
            "budget", "",
            "a regular expression needs more than " + std::to_string(budget_.automaton_states) + " states");
      states.push_back(t);
    }
    return it->second;
  };
  number(root);
  std::vector<std::pair<uint64_t, uint32_t>> told;  // where classes lead that the state tells apart
  for (size_t q = 0; q < states.size(); ++q) {
    raw.labels.push_back(nullable(states[q]) ? 0 : kDead);
    const uint64_t tells = few_sets ? asked(states[q]) : 0;
    told.clear();
    for (uint32_t c = 0; c < raw.n_classes; ++c) {
      if (members[c].empty()) {  // the surrogates
        raw.table.push_back(kDead);
        continue;
      }
      const uint64_t seen = sets_of[c] & tells;
      auto same = std::find_if(told.begin(), told.end(), [&](auto& x) { return x.first == seen; });
      if (few_sets && same != told.end()) {
        raw.table.push_back(same->second);
        continue;
      }
      const Id d = derive(states[q], c);
      raw.table.push_back(d == none() ? kDead : number(d));
      told.emplace_back(seen, raw.table.back());
    }
  }
  return finish(std::move(raw), budget_);
}

}  // namespace llamay::grammar
