// Construction of terms: every term is made once and simplified as far as that is cheap.
#include "regex/terms.h"

#include <algorithm>
#include <tuple>

#include "support/compile_error.h"
#include "support/hash.h"

namespace llamay::grammar {

Terms::Terms(Budget& budget) : budget_(budget), slots_(256, kNoTerm) {
  make({Op::None, false, 0, 0, {}});
  make({Op::Epsilon, true, 0, 0, {}});
  // anything() is number 2 and repeats the set of all characters, which is number 3.
  sets_.push_back(CharSet::all());
  make({Op::Repeat, true, 0, kInf, {3}});
  make({Op::Set, false, 0, 0, {0}});
}

// Returns the slot of a term in the hash table, or the free slot for it.
Terms::Id& Terms::slot(const Term& t) {
  uint64_t h = static_cast<uint64_t>(t.op) << 40 | t.kids.size();
  h = hash_mix(h, uint64_t{t.min} << 32 | t.max);
  for (const Id kid : t.kids) h = hash_mix(h, kid);
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

bool Terms::flatten(Op op, Id absorbing, Id neutral, std::vector<Id>& parts) const {
  std::vector<Id> flat;
  for (Id p : parts) {
    if (p == absorbing) return false;
    if (p == neutral) continue;
    if (terms_[p].op == op)
      flat.insert(flat.end(), terms_[p].kids.begin(), terms_[p].kids.end());
    else
      flat.push_back(p);
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  parts = std::move(flat);
  return true;
}

// Merges x{a,b}·K | x{c,d}·K to x{a,d}·K if the intervals meet; otherwise nested counters would multiply.
// Returns false, and changes nothing, if no intervals meet.
bool Terms::merge_counters(std::vector<Id>& parts) {
  struct Counted {
    Id body, tail;
    uint32_t min, max;
    Id original;
  };
  std::vector<Counted> counted;
  std::vector<Id> rest;
  for (Id p : parts) {
    Id head = terms_[p].op == Op::Concat ? terms_[p].kids[0] : p;
    Id tail = terms_[p].op == Op::Concat ? terms_[p].kids[1] : epsilon();
    if (terms_[head].op == Op::Repeat)
      counted.push_back({terms_[head].kids[0], tail, terms_[head].min, terms_[head].max, p});
    else
      rest.push_back(p);
  }
  if (counted.size() < 2) return false;
  std::sort(counted.begin(), counted.end(), [](const Counted& x, const Counted& y) {
    return std::tie(x.body, x.tail, x.min) < std::tie(y.body, y.tail, y.min);
  });
  bool merged = false;
  for (size_t i = 0; i < counted.size();) {
    Counted c = counted[i];
    size_t j = i + 1;
    while (j < counted.size() && counted[j].body == c.body && counted[j].tail == c.tail &&
           (c.max == kInf || counted[j].min <= c.max + 1)) {
      c.max = std::max(c.max, counted[j].max);
      ++j;
    }
    rest.push_back(j == i + 1 ? c.original : concat(repeat(c.body, c.min, c.max), c.tail));
    merged |= j != i + 1;
    i = j;
  }
  if (merged) parts = std::move(rest);
  return merged;
}

Terms::Id Terms::alt(std::vector<Id> parts) {
  if (!flatten(Op::Alt, anything(), none(), parts)) return anything();
  if (parts.empty()) return none();
  if (parts.size() == 1) return parts[0];
  if (merge_counters(parts)) return alt(std::move(parts));
  bool n = std::any_of(parts.begin(), parts.end(), [this](Id p) { return nullable(p); });
  return make({Op::Alt, n, 0, 0, std::move(parts)});
}

Terms::Id Terms::both(std::vector<Id> parts) {
  if (!flatten(Op::And, none(), anything(), parts)) return none();
  if (parts.empty()) return anything();
  if (parts.size() == 1) return parts[0];
  if (parts[0] == epsilon())
    return std::all_of(parts.begin(), parts.end(), [this](Id p) { return nullable(p); }) ? epsilon() : none();
  bool n = std::all_of(parts.begin(), parts.end(), [this](Id p) { return nullable(p); });
  return make({Op::And, n, 0, 0, std::move(parts)});
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
  const std::vector<uint32_t> cps = code_points(t);
  Id out = epsilon();
  for (size_t i = cps.size(); i-- > 0;) out = concat(set(CharSet::of({{cps[i], cps[i]}})), out);
  return out;
}

}  // namespace llamay::grammar
