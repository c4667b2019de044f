#include <algorithm>
#include <map>

#include "json.h"
#include "regex.h"

namespace llamay::grammar {

Terms::Terms(Budget& budget) : budget_(budget), slots_(256, kNoTerm) {
  make({Op::None, false, 0, 0, {}});
  make({Op::Epsilon, true, 0, 0, {}});
  // anything() is number 2 and repeats the set of all characters, which is number 3.
  sets_.push_back(CharSet::all());
  make({Op::Repeat, true, 0, kInf, {3}});
  make({Op::Set, false, 0, 0, {0}});
}

// Where a term stands in the table of all, or the free place for it.
Terms::Id& Terms::slot(const Term& t) {
  uint64_t h = static_cast<uint64_t>(t.op) << 40 | t.kids.size();
  auto mix = [&h](uint64_t x) { h = (h ^ x) * 0x9E3779B97F4A7C15ull, h ^= h >> 32; };
  mix(uint64_t{t.min} << 32 | t.max);
  for (const Id kid : t.kids) mix(kid);
  for (size_t at = h;; ++at) {
    Id& id = slots_[at & (slots_.size() - 1)];
    if (id == kNoTerm) return id;
    const Term& o = terms_[id];
    if (o.op == t.op && o.min == t.min && o.max == t.max && o.kids == t.kids) return id;
  }
}

Terms::Id Terms::make(Term&& t) {
  if (const Id known = slot(t); known != kNoTerm) return known;
  budget_.tick();
  if (terms_.size() > size_t{budget_.automaton_states} * 16)
    throw CompileError("budget", "", "a regular expression has too many distinct derivatives");
  if (terms_.size() * 2 >= slots_.size()) {
    slots_.assign(slots_.size() * 4, kNoTerm);
    for (Id id = 0; id < terms_.size(); ++id) slot(terms_[id]) = id;
  }
  const Id id = static_cast<Id>(terms_.size());
  slot(t) = id;
  terms_.push_back(std::move(t));
  return id;
}

Terms::Id Terms::set(const CharSet& s) {
  if (s.ranges.empty()) return none();
  for (uint32_t i = 0; i < sets_.size(); ++i)
    if (sets_[i].ranges == s.ranges) return make({Op::Set, false, 0, 0, {i}});
  sets_.push_back(s);
  return make({Op::Set, false, 0, 0, {static_cast<Id>(sets_.size() - 1)}});
}

Terms::Id Terms::concat(Id a, Id b) {
  if (a == none() || b == none()) return none();
  if (a == epsilon()) return b;
  if (b == epsilon()) return a;
  if (a == anything() && b == anything()) return a;
  if (terms_[a].op == Op::Concat) {  // right-associated, so that equal sequences are equal terms
    Id x = terms_[a].kids[0], y = terms_[a].kids[1];
    return concat(x, concat(y, b));
  }
  if (a == anything() && terms_[b].op == Op::Concat && terms_[b].kids[0] == anything()) return b;
  return make({Op::Concat, nullable(a) && nullable(b), 0, 0, {a, b}});
}

Terms::Id Terms::alt(std::vector<Id> parts) {
  std::vector<Id> flat;
  for (Id p : parts) {
    if (p == anything()) return p;
    if (p == none()) continue;
    if (terms_[p].op == Op::Alt)
      flat.insert(flat.end(), terms_[p].kids.begin(), terms_[p].kids.end());
    else
      flat.push_back(p);
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return none();
  if (flat.size() == 1) return flat[0];
  // x{a,b}·K | x{c,d}·K is x{a,d}·K where the intervals meet: without this, nested counters multiply.
  struct Counted {
    Id body, tail;
    uint32_t min, max;
    Id original;
  };
  std::vector<Counted> counted;
  std::vector<Id> rest;
  for (Id p : flat) {
    Id head = terms_[p].op == Op::Concat ? terms_[p].kids[0] : p;
    Id tail = terms_[p].op == Op::Concat ? terms_[p].kids[1] : epsilon();
    if (terms_[head].op == Op::Repeat)
      counted.push_back({terms_[head].kids[0], tail, terms_[head].min, terms_[head].max, p});
    else
      rest.push_back(p);
  }
  if (counted.size() > 1) {
    std::sort(counted.begin(), counted.end(), [](const Counted& x, const Counted& y) {
      return std::tie(x.body, x.tail, x.min) < std::tie(y.body, y.tail, y.min);
    });
    bool merged = false;
    std::vector<Id> out = rest;
    for (size_t i = 0; i < counted.size();) {
      Counted c = counted[i];
      size_t j = i + 1;
      while (j < counted.size() && counted[j].body == c.body && counted[j].tail == c.tail &&
             (c.max == kInf || counted[j].min <= c.max + 1)) {
        c.max = std::max(c.max, counted[j].max);
        ++j;
      }
      out.push_back(j == i + 1 ? c.original : concat(repeat(c.body, c.min, c.max), c.tail));
      merged |= j != i + 1;
      i = j;
    }
    if (merged) return alt(std::move(out));
  }
  bool n = std::any_of(flat.begin(), flat.end(), [this](Id p) { return nullable(p); });
  return make({Op::Alt, n, 0, 0, std::move(flat)});
}

Terms::Id Terms::both(std::vector<Id> parts) {
  std::vector<Id> flat;
  for (Id p : parts) {
    if (p == none()) return p;
    if (p == anything()) continue;
    if (terms_[p].op == Op::And)
      flat.insert(flat.end(), terms_[p].kids.begin(), terms_[p].kids.end());
    else
      flat.push_back(p);
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return anything();
  if (flat.size() == 1) return flat[0];
  if (flat[0] == epsilon())
    return std::all_of(flat.begin(), flat.end(), [this](Id p) { return nullable(p); }) ? epsilon() : none();
  bool n = std::all_of(flat.begin(), flat.end(), [this](Id p) { return nullable(p); });
  return make({Op::And, n, 0, 0, std::move(flat)});
}

Terms::Id Terms::negate(Id a) {
  if (terms_[a].op == Op::Not) return terms_[a].kids[0];
  if (a == none()) return anything();
  if (a == anything()) return none();
  return make({Op::Not, !nullable(a), 0, 0, {a}});
}

Terms::Id Terms::repeat(Id a, uint32_t min, uint32_t max) {
  if (max == 0 || a == epsilon()) return epsilon();
  if (a == none()) return min == 0 ? epsilon() : none();
  if (min == 1 && max == 1) return a;
  if (nullable(a)) min = 0;
  if (terms_[a].op == Op::Repeat && terms_[a].min == 0 && terms_[a].max == kInf) return a;
  return make({Op::Repeat, min == 0, min, max, {a}});
}

Terms::Id Terms::text(std::string_view t) {
  std::vector<uint32_t> cps;
  for (size_t i = 0; i < t.size();) {
    uint8_t b = static_cast<uint8_t>(t[i]);
    uint32_t n = b < 0x80 ? 1 : b < 0xE0 ? 2 : b < 0xF0 ? 3 : 4;
    uint32_t cp = n == 1 ? b : n == 2 ? b & 31u : n == 3 ? b & 15u : b & 7u;
    for (uint32_t k = 1; k < n && i + k < t.size(); ++k)
      cp = (cp << 6) | (static_cast<uint8_t>(t[i + k]) & 63u);
    cps.push_back(cp);
    i += n;
  }
  Id out = epsilon();
  for (size_t i = cps.size(); i-- > 0;) out = concat(set(CharSet::of({{cps[i], cps[i]}})), out);
  return out;
}

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
  // Making terms moves them: nothing of them is held meanwhile.
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

LangPtr Terms::compile(Id root) {
  std::vector<uint32_t> cuts{0, 0xD800, 0xE000};
  for (auto& s : sets_)
    for (auto& r : s.ranges) {
      cuts.push_back(r.first);
      if (r.second < kMaxCodePoint) cuts.push_back(r.second + 1);
    }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  RawDfa raw;
  std::map<std::vector<bool>, uint16_t> ids;
  std::vector<std::vector<bool>> members;
  std::vector<size_t> at(sets_.size(), 0);
  for (uint32_t cut : cuts) {
    std::vector<bool> key;
    for (size_t i = 0; i < sets_.size(); ++i) {
      auto& r = sets_[i].ranges;
      while (at[i] < r.size() && r[at[i]].second < cut) ++at[i];
      key.push_back(at[i] < r.size() && r[at[i]].first <= cut);
    }
    bool surrogate = cut >= 0xD800 && cut < 0xE000;
    if (surrogate) key.assign(sets_.size(), false);
    key.push_back(surrogate);
    auto [it, fresh] = ids.emplace(key, static_cast<uint16_t>(ids.size()));
    if (fresh) members.push_back(key);
    raw.starts.push_back(cut);
    raw.classes.push_back(it->second);
  }
  raw.n_classes = n_classes_ = static_cast<uint32_t>(members.size());
  set_has_.assign(sets_.size(), {});
  derived_.clear();
  // The sets of each class, where they fit into a word: one bit is left for what is not known yet.
  const bool few_sets = sets_.size() < 63;
  std::vector<uint64_t> sets_of(members.size(), 0);
  for (size_t c = 0; few_sets && c < members.size(); ++c)
    for (size_t i = 0; i < sets_.size(); ++i) sets_of[c] |= uint64_t{members[c][i]} << i;
  for (size_t i = 0; i < sets_.size(); ++i)
    for (auto& m : members) set_has_[i].push_back(m[i]);
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
      if (members[c].back()) {
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
