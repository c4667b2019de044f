// The disjunctive normal form of a formula: alternatives are conjunctions of assertions about one type, and
// contradictory alternatives are dropped.
#include "expansion/expansion.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_set>

#include "program/feasible.h"
#include "support/compile_error.h"

namespace llamay::grammar {

Expansion::Truth Expansion::quick(FormulaId id, uint8_t t, int depth) {
  const Formula& x = f.at(id);
  switch (x.op) {
    case Op::True:
      return Truth::Yes;
    case Op::False:
      return Truth::No;
    case Op::Type:
      if (!(x.types & t)) return Truth::No;
      return (x.types & t) == t ? Truth::Yes : Truth::Open;
    case Op::And:
    case Op::Or: {
      bool open = false;
      Truth stop = x.op == Op::And ? Truth::No : Truth::Yes;
      for (FormulaId k : x.kids) {
        Truth v = quick(k, t, depth);
        if (v == stop) return stop;
        open |= v == Truth::Open;
      }
      return open ? Truth::Open : stop == Truth::No ? Truth::Yes : Truth::No;
    }
    case Op::Ref:
      return depth > 0 ? quick(f.resolve(x), t, depth - 1) : Truth::Open;
    case Op::OneOf: {
      bool open = false;
      for (FormulaId k : x.kids) open |= quick(k, t, depth) != Truth::No;
      return open ? Truth::Open : Truth::No;
    }
    default:
      return x.types & t ? Truth::Open : Truth::Yes;
  }
}

void Expansion::dnf(Dnf& d, std::vector<FormulaId> todo, Leaves leaves, std::vector<FormulaId> ors,
                    std::vector<FormulaId> seen) {
  budget.tick();
  if (++d.steps > budget.alternatives * 16)
    throw CompileError("budget", "",
                       "the combinations of anyOf, oneOf, not and if in one value are too many");
  while (!todo.empty()) {
    FormulaId id = todo.back();
    todo.pop_back();
    if (std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
    const Formula x = f.at(id);
    switch (x.op) {
      case Op::True:
        break;
      case Op::False:
        return;
      case Op::Type:
        if (!(x.types & d.type)) return;
        break;
      case Op::And:
        todo.insert(todo.end(), x.kids.begin(), x.kids.end());
        break;
      case Op::Ref:
        seen.push_back(id);
        todo.push_back(f.resolve(x));
        break;
      case Op::OneOf: {
        seen.push_back(id);
        std::vector<FormulaId> live;
        for (FormulaId k : x.kids)
          if (quick(k, d.type, 4) != Truth::No) live.push_back(k);
        if (live.empty()) return;
        if (live.size() == 1) {
          todo.push_back(live[0]);
          break;
        }
        if (live.size() > 512)
          throw CompileError("oneOf", "", "a oneOf with more than 512 branches of one type");
        std::vector<FormulaId> parts;
        for (size_t i = 0; i < live.size(); ++i) {
          std::vector<FormulaId> and_{live[i]};
          for (size_t j = 0; j < live.size(); ++j)
            if (j != i && !disjoint(live[i], live[j], d.type, 3)) and_.push_back(f.negate(live[j]));
          parts.push_back(f.all(std::move(and_)));
        }
        todo.push_back(f.any(std::move(parts)));
        break;
      }
      case Op::Or: {
        seen.push_back(id);
        std::vector<FormulaId> live;
        bool yes = false;
        for (FormulaId k : x.kids) {
          Truth v = quick(k, d.type, 4);
          yes |= v == Truth::Yes;
          if (v == Truth::Open) live.push_back(k);
        }
        if (yes) break;
        if (live.empty()) return;
        if (live.size() == 1)
          todo.push_back(live[0]);
        else
          ors.push_back(f.any(std::move(live)));
        break;
      }
      default:
        if (x.types & d.type) leaves.push_back(id);
    }
  }
  std::sort(leaves.begin(), leaves.end());
  leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
  if (contradicts(leaves, d.type)) return;
  if (ors.empty()) {
    d.out.insert(std::move(leaves));
    if (d.out.size() > budget.alternatives)
      throw CompileError("budget", "",
                         "one value has more than " + std::to_string(budget.alternatives) + " alternatives");
    return;
  }
  FormulaId pick = ors.back();
  ors.pop_back();
  const Formula o = f.at(pick);
  if (o.op != Op::Or) return dnf(d, {pick}, std::move(leaves), std::move(ors), std::move(seen));
  // An alternative that is already implied by the leaves makes the whole disjunction true.
  for (FormulaId k : o.kids)
    if (std::binary_search(leaves.begin(), leaves.end(), k))
      return dnf(d, {}, std::move(leaves), std::move(ors), std::move(seen));
  if (d.type == kObject) {
    // A disjunction of assertions about single members is not multiplied out: it becomes a condition, and the
    // frame of the object records whether the condition has been met.
    std::vector<FormulaId> simple;
    for (FormulaId k : o.kids)
      if (literal(k)) simple.push_back(k);
    if (simple.size() > 1) {
      FormulaId clause = f.any(simple);
      auto with = leaves;
      with.push_back(clause);
      auto again = seen;
      again.push_back(clause);
      dnf(d, {}, std::move(with), ors, std::move(again));
      for (FormulaId k : o.kids)
        if (std::find(simple.begin(), simple.end(), k) == simple.end()) dnf(d, {k}, leaves, ors, seen);
      return;
    }
  }
  for (FormulaId k : o.kids) dnf(d, {k}, leaves, ors, seen);
}

std::optional<Expansion::Literal> Expansion::literal(FormulaId id) {
  const Formula& x = f.at(id);
  if (x.op == Op::Require) return Literal{Literal::Present, f.name_at(x), f.yes(), nullptr};
  if (x.op == Op::Exists)
    return Literal{Literal::Exists, "", f.exists_at(x).value, exists_names(f.exists_at(x))};
  if (x.op == Op::Props) {
    const PropsSpec& s = f.props_at(x);
    if (s.names.size() == 1 && s.patterns.empty() && s.additional == f.yes() && s.names[0].second == f.no())
      return Literal{Literal::Absent, s.names[0].first, f.no(), nullptr};
    return std::nullopt;
  }
  if (x.op != Op::And) return std::nullopt;
  std::optional<Literal> require, value;
  const PropsSpec* props = nullptr;
  for (FormulaId k : x.kids) {
    const Formula& y = f.at(k);
    if (y.op == Op::Type) continue;
    if (y.op == Op::Require && !require) {
      require = literal(k);
    } else if (y.op == Op::Props && !props) {
      props = &f.props_at(y);
    } else if (y.op == Op::Exists && x.kids.size() == 2) {
      return literal(k);
    } else {
      return std::nullopt;
    }
  }
  if (props && !require && x.kids.size() == 2) {
    for (FormulaId k : x.kids)
      if (f.at(k).op == Op::Props) return literal(k);
  }
  if (!require) return std::nullopt;
  if (!props) return require;
  if (props->names.size() != 1 || !props->patterns.empty() || props->additional != f.yes() ||
      props->names[0].first != require->name)
    return std::nullopt;
  require->value = props->names[0].second;
  return require;
}

LanguagePtr Expansion::exists_names(const ExistsSpec& s) {
  return s.names ? s.names : string_language(s.name_rule);
}

std::vector<Leaves> Expansion::alternatives(FormulaId id, uint8_t type) {
  if (quick(id, type, 4) == Truth::No) return {};
  Dnf d{type, {}, 0};
  dnf(d, {id}, {}, {}, {});
  return {d.out.begin(), d.out.end()};
}

}  // namespace llamay::grammar
