// From a formula to alternatives: conjunctions of assertions about one type, the contradictory ones dropped.
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
    // What speaks about single members need not be multiplied out: the object remembers that it is still to
    // be met.
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

bool Expansion::contradicts(const Leaves& leaves, uint8_t t) {
  if (leaves.size() < 2 || leaves.size() > 64) return false;
  if (t == kObject || t == kString || t == kNumber) {
    for (size_t i = 0; i < leaves.size(); ++i)
      for (size_t j = i + 1; j < leaves.size(); ++j)
        if (clash(leaves[i], leaves[j], 2)) return true;
  }
  return false;
}

bool Expansion::clash(FormulaId a, FormulaId b, int depth) {
  const Formula &x = f.at(a), &y = f.at(b);
  if (x.types != y.types || x.op < Op::Number || y.op < Op::Number) return false;
  if (x.op == Op::Require && y.op == Op::Props) return forbids(f.props_at(y), f.name_at(x));
  if (y.op == Op::Require && x.op == Op::Props) return forbids(f.props_at(x), f.name_at(y));
  if (x.op == Op::String && y.op == Op::String) {
    const auto &s = f.string_at(x), &u = f.string_at(y);
    if (s.finite && u.finite) {
      std::vector<std::string> both;
      std::set_intersection(s.words.begin(), s.words.end(), u.words.begin(), u.words.end(),
                            std::back_inserter(both));
      return both.empty();
    }
    if (s.finite || u.finite) {
      const auto& w = s.finite ? s : u;
      const auto& l = s.finite ? u : s;
      if (w.words.size() > 64) return false;
      return std::none_of(w.words.begin(), w.words.end(), [&](auto& t) { return in(l, t); });
    }
    return s.max < u.min || u.max < s.min;
  }
  if (x.op == Op::Numbers || y.op == Op::Numbers) {
    const Formula &set = x.op == Op::Numbers ? x : y, &other = x.op == Op::Numbers ? y : x;
    const auto& v = f.numbers_at(set);
    if (other.op == Op::Numbers) {
      const auto& w = f.numbers_at(other);
      return std::none_of(v.begin(), v.end(),
                          [&](auto& d) { return std::find(w.begin(), w.end(), d) != w.end(); });
    }
    return std::none_of(v.begin(), v.end(), [&](auto& d) { return f.number_at(other).contains(d); });
  }
  if (x.op == Op::Number && y.op == Op::Number) {
    const auto &n = f.number_at(x), &m = f.number_at(y);
    if ((n.integer && m.fractional) || (m.integer && n.fractional)) return true;
    auto below = [](const NumberSpec& l, const NumberSpec& r) {
      return l.hi && r.lo && (*l.hi < *r.lo || (*l.hi == *r.lo && (l.hi_open || r.lo_open)));
    };
    return below(n, m) || below(m, n);
  }
  (void)depth;
  return false;
}

bool Expansion::in(const StringSpec& s, const std::string& text) {
  if (s.finite) return std::binary_search(s.words.begin(), s.words.end(), text);
  uint32_t n = 0;
  for (char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return n >= s.min && n <= s.max && s.language->matches(text);
}

bool Expansion::forbids(const PropsSpec& s, const std::string& name) {
  bool found = false;
  for (auto& [n, v] : s.names)
    if (n == name) {
      if (v == f.no()) return true;
      found = true;
    }
  for (auto& [l, v] : s.patterns)
    if (l->matches(name)) {
      if (v == f.no()) return true;
      found = true;
    }
  return !found && s.additional == f.no();
}

FormulaId Expansion::value_for(const PropsSpec& s, const std::string& name) {
  std::vector<FormulaId> and_;
  bool found = false;
  auto it = std::lower_bound(s.names.begin(), s.names.end(), name,
                             [](const auto& a, const std::string& b) { return a.first < b; });
  if (it != s.names.end() && it->first == name) and_.push_back(it->second), found = true;
  for (auto& [l, v] : s.patterns)
    if (l->matches(name)) and_.push_back(v), found = true;
  if (!found) return s.additional;
  return and_.size() == 1 ? and_[0] : f.all(std::move(and_));
}

void Expansion::certain(FormulaId id, uint8_t t, int depth, Leaves& out) {
  const Formula& x = f.at(id);
  if (x.op == Op::And) {
    for (FormulaId k : std::vector<FormulaId>(x.kids)) certain(k, t, depth, out);
  } else if (x.op == Op::Ref) {
    if (depth > 0) certain(f.resolve(x), t, depth - 1, out);
  } else if (x.op >= Op::Number && (x.types & t)) {
    out.push_back(id);
  }
}

bool Expansion::disjoint(FormulaId a, FormulaId b, uint8_t t, int depth) {
  if (quick(a, t, 4) == Truth::No || quick(b, t, 4) == Truth::No) return true;
  budget.tick();
  // A disjunction is disjoint from b when each of its parts is.
  for (int side = 0; side < 2; ++side) {
    FormulaId x = side ? b : a, y = side ? a : b;
    for (int k = 0; k < 4 && f.at(x).op == Op::Ref; ++k) x = f.resolve(f.at(x));
    if ((f.at(x).op == Op::Or || f.at(x).op == Op::OneOf) && depth > 0) {
      auto kids = f.at(x).kids;
      if (kids.size() <= 64 &&
          std::all_of(kids.begin(), kids.end(), [&](FormulaId k) { return disjoint(k, y, t, depth - 1); }))
        return true;
    }
  }
  Leaves la, lb;
  certain(a, t, 4, la), certain(b, t, 4, lb);
  for (FormulaId x : la)
    for (FormulaId y : lb)
      if (clash(x, y, depth)) return true;
  if (depth == 0) return false;
  if (t == kObject) {
    // Some name that one of them requires, with values that exclude each other.
    Leaves both = la;
    both.insert(both.end(), lb.begin(), lb.end());
    std::set<std::string> required;
    for (FormulaId x : both)
      if (f.at(x).op == Op::Require) required.insert(f.name_at(f.at(x)));
    for (auto& name : required) {
      std::vector<FormulaId> va, vb;
      for (FormulaId x : la)
        if (f.at(x).op == Op::Props) va.push_back(value_for(f.props_at(f.at(x)), name));
      for (FormulaId x : lb)
        if (f.at(x).op == Op::Props) vb.push_back(value_for(f.props_at(f.at(x)), name));
      if (va.empty() || vb.empty()) continue;
      if (disjoint_all(f.all(va), f.all(vb), depth - 1)) return true;
    }
  }
  if (t == kArray) {
    for (FormulaId x : la)
      for (FormulaId y : lb)
        if (f.at(x).op == Op::Length && f.at(y).op == Op::Length) {
          auto &r = f.range_at(f.at(x)), &s = f.range_at(f.at(y));
          if (r.max < s.min || s.max < r.min) return true;
        }
    // Both non-empty with first items that exclude each other.
    bool nonempty = false;
    std::vector<FormulaId> va, vb;
    for (int side = 0; side < 2; ++side)
      for (FormulaId x : side ? lb : la) {
        const Formula g = f.at(x);
        if (g.op == Op::Length) nonempty |= f.range_at(g).min > 0;
        if (g.op == Op::Items)
          (side ? vb : va)
              .push_back(f.items_at(g).prefix.empty() ? f.items_at(g).rest : f.items_at(g).prefix[0]);
      }
    if (nonempty && !va.empty() && !vb.empty() && disjoint_all(f.all(va), f.all(vb), depth - 1)) return true;
  }
  return false;
}

bool Expansion::disjoint_all(FormulaId a, FormulaId b, int depth) {
  for (uint8_t t = 1; t < 128; t = static_cast<uint8_t>(t << 1))
    if (!disjoint(a, b, t, depth)) return false;
  return true;
}

std::vector<Leaves> Expansion::alternatives(FormulaId id, uint8_t type) {
  if (quick(id, type, 4) == Truth::No) return {};
  Dnf d{type, {}, 0};
  dnf(d, {id}, {}, {}, {});
  return {d.out.begin(), d.out.end()};
}

}  // namespace llamay::grammar
