// Proofs that formulas have no common value. The proofs are cheap: a contradiction may be missed, but every
// contradiction found is real.
#include <algorithm>

#include "expansion/expansion.h"

namespace llamay::grammar {

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
    // A common value would have a required member, for which the two formulas allow disjoint values.
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
    // A common value would have a first item, for which the two formulas allow disjoint values.
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

}  // namespace llamay::grammar
