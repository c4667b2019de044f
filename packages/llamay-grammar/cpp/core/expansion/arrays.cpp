// Arrays: the slots of items, the `contains` rules that an item counts for, and the automata of items that
// uniqueItems compares.
#include "expansion/expansion.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_set>

#include "automata/dfa.h"
#include "program/feasible.h"
#include "support/compile_error.h"

namespace llamay::grammar {

FormulaId Expansion::one_spelling() {
  NumberSpec n;
  n.canonical = true;
  StringSpec s;
  s.language = every_text(), s.counted = true;
  return f.all({f.number(n), f.string(s), spelling_inside()});
}

FormulaId Expansion::spelling_inside() {
  if (inside) return *inside;
  NumberSpec n;
  n.canonical = true;
  const uint32_t number = f.new_ref("");
  const FormulaId all = f.ref(number);
  ItemsSpec items;
  items.rest = all;
  PropsSpec props;
  props.additional = all;
  inside = f.all({f.items(items), f.props(props)});
  f.bind(number, f.all({f.number(n), *inside}));
  return *inside;
}

void Expansion::check_unique(ArrayAtom& a) {
  if (!a.unique || a.max <= 1) {
    a.unique = false;
    return;
  }
  bool free = true;
  auto check = [&](const Slot& s) {
    for (auto& o : s) {
      const Node& n = p.nodes[o.node];
      a.deep |= !n.arrays.empty() || !n.objects.empty();
      bool endless = false;
      for (uint32_t x : n.strings)
        endless |= p.strings[x].language->infinite(0) || p.strings[x].language->count_words(0) > 1u << 30;
      for (uint32_t x : n.numbers) endless |= p.numbers[x].language->count_words(0) > 1u << 30;
      free &= endless;
    }
  };
  for (auto& s : a.prefix) check(s);
  check(a.rest);
  if (a.deep) a.unique = false;
  if (a.deep || free) return;
  if (!a.prefix.empty() || !a.contains.empty() || a.rest.size() != 1)
    throw CompileError("uniqueItems", "",
                       "uniqueItems together with contains or positional items of few values");
  const Node& n = p.nodes[a.rest[0].node];
  if (n.strings.size() > 1 || n.numbers.size() > 1)
    throw CompileError("uniqueItems", "", "uniqueItems over alternatives of few values");
  uint64_t values = static_cast<uint64_t>(__builtin_popcount(n.literals));
  for (uint32_t x : n.strings) values += std::min<uint64_t>(p.strings[x].language->count_words(0), 1u << 30);
  for (uint32_t x : n.numbers) values += std::min<uint64_t>(p.numbers[x].language->count_words(0), 1u << 30);
  a.max = std::min(a.max, values);
  if (a.max < a.min)
    throw CompileError("uniqueItems", "", "uniqueItems needs more different items than there are");
}

// Throws CompileError for an array that demands several different arrays or objects as items from a slot with
// few values: such an array might have no further item left.
void Expansion::check_deep(const ArrayAtom& a) const {
  if (!a.deep || (a.min <= 1 && a.contains.empty())) return;
  auto few = [&](const Slot& s) {
    return std::any_of(s.begin(), s.end(), [&](auto& o) { return !p.nodes[o.node].plenty; });
  };
  if (few(a.rest) || std::any_of(a.prefix.begin(), a.prefix.end(), few))
    throw CompileError("uniqueItems", "",
                       "uniqueItems needs several different arrays or objects of which there may be few");
}

uint32_t Expansion::array(const Leaves& leaves) {
  auto [it, fresh] = array_of.emplace(leaves, kNone);
  if (!fresh) return it->second;
  ArrayAtom a;
  std::vector<ItemsSpec> items;
  std::vector<ContainsSpec> contains;
  for (FormulaId id : leaves) {
    const Formula& x = f.at(id);
    switch (x.op) {
      case Op::Items:
        items.push_back(f.items_at(x));
        break;
      case Op::Length: {
        const Range& r = f.range_at(x);
        a.min = std::max(a.min, r.min), a.max = std::min(a.max, r.max);
        break;
      }
      case Op::Contains:
        contains.push_back(f.contains_at(x));
        break;
      case Op::Unique:
        a.unique = true;
        break;
      default:
        break;
    }
  }
  size_t n = 0;
  for (auto& s : items) n = std::max(n, s.prefix.size());
  for (auto& c : contains) {
    if (c.start > 100000) throw CompileError("contains", "", "a contains that begins too far into the array");
    n = std::max<size_t>(n, c.start);
  }
  if (contains.size() > 6) throw CompileError("contains", "", "more than six contains on one array");
  for (auto& c : contains) a.contains.push_back({c.min, c.max});
  auto slot = [&](size_t i, bool rest) {
    std::vector<FormulaId> base;
    if (a.unique) base = {one_spelling()};
    for (auto& s : items) base.push_back(!rest && i < s.prefix.size() ? s.prefix[i] : s.rest);
    Slot out;
    for (uint32_t gain = 0; gain < (1u << contains.size()); ++gain) {
      auto and_ = base;
      bool ok = true;
      for (size_t c = 0; c < contains.size(); ++c) {
        bool counts = rest || i >= contains[c].start;
        if (gain >> c & 1) {
          ok &= counts;
          and_.push_back(contains[c].item);
        } else if (counts && contains[c].max != UINT64_MAX) {
          and_.push_back(f.negate(contains[c].item));
        }
      }
      if (!ok) continue;
      FormulaId v = f.all(std::move(and_));
      if (v != f.no()) out.push_back({node(v), gain});
    }
    return out;
  };
  uint64_t limit = std::min<uint64_t>(n, a.max);
  for (size_t i = 0; i < limit; ++i) a.prefix.push_back(slot(i, false));
  if (a.max > limit) a.rest = slot(n, true);
  p.arrays.push_back(std::move(a));
  return it->second = static_cast<uint32_t>(p.arrays.size() - 1);
}

bool Expansion::array_possible(const ArrayAtom& a) const {
  if (a.min > a.max) return false;
  uint64_t reach = 0;  // the greatest possible number of items
  while (reach < a.prefix.size() && usable(a.prefix[reach])) ++reach;
  if (reach == a.prefix.size() && usable(a.rest)) reach = UINT64_MAX;
  reach = std::min(reach, a.max);
  if (reach < a.min) return false;
  if (a.contains.empty()) return true;
  uint32_t none[6] = {};
  return array_feasible(p, a, 0, none);
}

void Expansion::check_contains(const ArrayAtom& a) const {
  if (a.contains.empty()) return;
  for (auto& c : a.contains)
    if (c.min > 10000 || (c.max != UINT64_MAX && c.max > 10000) || a.min > 10000)
      throw CompileError("contains", "", "a contains together with more than 10000 items");
}

}  // namespace llamay::grammar
