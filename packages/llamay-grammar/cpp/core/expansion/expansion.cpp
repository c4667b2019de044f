// Values as unions of alternatives, and the proof that a value exists.
#include "expansion/expansion.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_set>

#include "automata/dfa.h"
#include "automata/lengths.h"
#include "program/feasible.h"
#include "support/compile_error.h"

namespace llamay::grammar {

uint32_t Expansion::node(FormulaId id) {
  auto [it, fresh] = node_of.emplace(id, static_cast<uint32_t>(p.nodes.size()));
  if (fresh) {
    if (p.nodes.size() >= budget.nodes)
      throw CompileError("budget", "",
                         "the schema has more than " + std::to_string(budget.nodes) + " distinct values");
    p.nodes.emplace_back();
    formula_of.push_back(id);
  }
  return it->second;
}

void Expansion::expand(uint32_t n) {
  FormulaId id = formula_of[n];
  Node node;
  for (uint8_t t : {kNull, kFalse, kTrue})
    if (!alternatives(id, t).empty()) node.literals |= t;
  for (auto& l : alternatives(id, kString)) add_string(node, l);
  for (auto& l : alternatives(id, kNumber)) add_number(node, l);
  for (auto& l : alternatives(id, kArray)) node.arrays.push_back(array(l));
  for (auto& l : alternatives(id, kObject)) node.objects.push_back(object(l));
  auto tidy = [](std::vector<uint32_t>& v) {
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
    std::erase(v, kNone);
  };
  tidy(node.strings), tidy(node.numbers), tidy(node.arrays), tidy(node.objects);
  merge_strings(node);
  p.nodes[n] = std::move(node);
}

bool Expansion::usable(const Slot& s) const {
  return std::any_of(s.begin(), s.end(), [&](const Option& o) { return p.nodes[o.node].possible; });
}

std::string Expansion::where(FormulaId id, const std::string& keyword) {
  std::deque<FormulaId> queue{id};
  std::unordered_set<FormulaId> seen;
  std::string fallback;
  for (size_t steps = 0; !queue.empty() && steps < 10000; ++steps) {
    FormulaId x = queue.front();
    queue.pop_front();
    if (!seen.insert(x).second) continue;
    const Formula g = f.at(x);
    bool relevant = keyword == "budget" || (keyword == "oneOf" && g.op == Op::OneOf) ||
                    (keyword == "uniqueItems" && g.op == Op::Unique) ||
                    (keyword == "contains" && g.op == Op::Contains);
    if (auto it = f.origin.find(x); it != f.origin.end()) {
      if (fallback.empty()) fallback = it->second + (keyword == "budget" ? "" : "/" + keyword);
      bool direct = relevant;
      for (FormulaId k : g.kids) {
        const Op op = f.at(k).op;
        direct |= (keyword == "oneOf" && op == Op::OneOf) || (keyword == "uniqueItems" && op == Op::Unique) ||
                  (keyword == "contains" && op == Op::Contains);
      }
      if (direct) return it->second + (keyword == "budget" ? "" : "/" + keyword);
    }
    for (FormulaId k : g.kids) queue.push_back(k);
    if (g.op == Op::Ref) queue.push_back(f.resolve(g));
  }
  return fallback;
}

std::string Expansion::place_of(std::vector<uint32_t> Node::* list, size_t atom, const std::string& keyword) {
  if (!f.tracking) return "";
  for (size_t n = 0; n < p.nodes.size(); ++n)
    for (uint32_t a : p.nodes[n].*list)
      if (a == atom) return where(formula_of[n], keyword);
  return "";
}

void Expansion::finish() {
  size_t first = expanded;
  for (; expanded < p.nodes.size(); ++expanded) {
    try {
      expand(static_cast<uint32_t>(expanded));
    } catch (const CompileError& e) {
      if (!f.tracking || !e.pointer.empty()) throw;
      throw CompileError(e.keyword, where(formula_of[expanded], e.keyword), e.what());
    }
  }
  // The least fixed point: a value exists if one of its alternatives can be built from existing values.
  std::vector<bool> arrays(p.arrays.size(), false), objects(p.objects.size(), false);
  bool more = true;
  while (more) {
    more = false;
    budget.check_time();
    for (size_t i = p.nodes.size(); i-- > 0;) {
      Node& n = p.nodes[i];
      if (n.possible) continue;
      bool ok = n.literals || !n.strings.empty() || !n.numbers.empty();
      for (uint32_t a : n.arrays) ok = ok || arrays[a] || (arrays[a] = array_possible(p.arrays[a]));
      for (uint32_t o : n.objects) ok = ok || objects[o] || (objects[o] = object_possible(p.objects[o]));
      if (ok) n.possible = more = true;
    }
  }
  (void)first;
  for (size_t a = 0; a < p.arrays.size(); ++a) arrays[a] = arrays[a] || array_possible(p.arrays[a]);
  for (size_t o = 0; o < p.objects.size(); ++o) objects[o] = objects[o] || object_possible(p.objects[o]);
  for (auto& n : p.nodes) {
    std::erase_if(n.arrays, [&](uint32_t a) { return !arrays[a]; });
    std::erase_if(n.objects, [&](uint32_t o) { return !objects[o]; });
  }
  auto prune = [&](Slot& s) { std::erase_if(s, [&](const Option& o) { return !p.nodes[o.node].possible; }); };
  for (size_t i = 0; i < p.arrays.size(); ++i) {
    if (!arrays[i]) continue;
    ArrayAtom& a = p.arrays[i];
    for (auto& s : a.prefix) prune(s);
    prune(a.rest);
    for (size_t k = 0; k < a.prefix.size(); ++k)
      if (a.prefix[k].empty()) a.prefix.resize(k), a.rest.clear(), a.max = std::min<uint64_t>(a.max, k);
    if (a.rest.empty()) a.max = std::min<uint64_t>(a.max, a.prefix.size());
    try {
      check_unique(a);
      check_contains(a);
    } catch (const CompileError& e) {
      throw CompileError(e.keyword, place_of(&Node::arrays, i, e.keyword), e.what());
    }
    a.count_cap = std::max<uint64_t>(a.prefix.size(), a.max == UINT64_MAX ? a.min : UINT64_MAX);
  }
  for (size_t i = 0; i < p.objects.size(); ++i) {
    if (!objects[i]) continue;
    ObjectAtom& a = p.objects[i];
    for (size_t k = 0; k < a.known.size(); ++k) {
      prune(a.known[k]);
      if (a.known[k].empty()) a.possible[k / 64] &= ~(uint64_t{1} << (k % 64));
    }
    // A name is impossible if one of the names that it depends on is impossible.
    for (bool again = !a.depends.empty(); again;) {
      again = false;
      for (auto& [name, needs] : a.depends) {
        if (!(a.possible[name / 64] >> (name % 64) & 1)) continue;
        for (size_t w = 0; w < needs.size(); ++w)
          if (needs[w] & ~a.possible[w]) {
            a.possible[name / 64] &= ~(uint64_t{1} << (name % 64));
            again = true;
            break;
          }
      }
    }
    a.required = with_dependencies(a, a.required);
    bool gone = false;
    for (auto& s : a.rest_slots) {
      bool had = !s.empty();
      prune(s);
      gone |= had && s.empty();
    }
    if (a.rest && gone) a.rest = restrict_labels(a.rest, every_text(), a.rest_slots);
    // The machine looks a name up among the declared names before it asks the language of the other names, so
    // that language may contain declared names. If the language is finite, its words are counted: then the
    // declared names are removed.
    if (a.rest && !a.rest->infinite(0) && !a.names->empty()) a.rest = without_names(a);
    if (a.rest && a.rest->empty()) a.rest = nullptr;
    if (!a.clauses.empty() && a.max != UINT64_MAX && a.rest)
      for (auto& x : a.rest_slots)
        for (auto& y : a.rest_slots)
          if (!x.empty() && !y.empty() &&
              !std::equal(x.begin(), x.end(), y.begin(), y.end(),
                          [](auto& i, auto& j) { return i.gain == j.gain; }))
            throw CompileError("not", "",
                               "conditions on members told apart by patterns, together with maxProperties");
    for (auto& s : a.known) dominated(s);
    for (auto& s : a.rest_slots) dominated(s);
  }
  if (std::none_of(p.arrays.begin(), p.arrays.end(), [](auto& a) { return a.deep; })) return;
  p.deep = true;
  find_plenty(arrays, objects);
  for (size_t i = 0; i < p.arrays.size(); ++i) {
    try {
      if (arrays[i]) check_deep(p.arrays[i]);
    } catch (const CompileError& e) {
      throw CompileError(e.keyword, place_of(&Node::arrays, i, e.keyword), e.what());
    }
  }
}

void Expansion::find_plenty(const std::vector<bool>& arrays, const std::vector<bool>& objects) {
  auto many_items = [&](const ArrayAtom& a) {
    if (!a.contains.empty()) return false;
    auto plenty = [&](const Slot& s) {
      return std::any_of(s.begin(), s.end(), [&](auto& o) { return p.nodes[o.node].plenty; });
    };
    for (size_t k = 0; k < a.prefix.size() && k < a.max; ++k)
      if (plenty(a.prefix[k])) return true;
    if (a.rest.empty() || a.max <= a.prefix.size()) return false;
    return plenty(a.rest) || (!a.unique && !a.deep && a.max == UINT64_MAX);
  };
  // Finds the members with more values than an array can have items, if the object can be completed with
  // them.
  auto many_members = [&](ObjectAtom& a) {
    a.plenty.resize(a.words(), 0);
    bool some = false;
    for (uint32_t k = 0; k < a.known.size(); ++k) {
      uint64_t& word = a.plenty[k / 64];
      const uint64_t bit = uint64_t{1} << (k % 64);
      if (!(word & bit) && (a.possible[k / 64] & bit)) {
        std::vector<uint64_t> seen(a.words(), 0);
        seen[k / 64] = bit;
        for (const Option& o : a.known[k])
          if (p.nodes[o.node].plenty && object_feasible(p, a, seen.data(), 0, o.gain)) word |= bit;
      }
      some |= (word & bit) != 0;
    }
    return some || (a.rest && a.rest->infinite(0) && a.max == UINT64_MAX);
  };
  for (StringAtom& a : p.strings)
    if (a.max != kInf && a.min == 0 && a.ample == kInf) a.ample = ample_length(*a.language, 64, budget);
  for (bool more = true; more;) {
    more = false;
    budget.check_time();
    std::vector<bool> array(p.arrays.size()), object(p.objects.size());
    for (size_t i = 0; i < p.arrays.size(); ++i) array[i] = arrays[i] && many_items(p.arrays[i]);
    for (size_t i = 0; i < p.objects.size(); ++i) object[i] = objects[i] && many_members(p.objects[i]);
    for (Node& n : p.nodes) {
      if (n.plenty) continue;
      for (uint32_t x : n.strings) {
        const StringAtom& a = p.strings[x];
        n.plenty |= plenty_words(*a.language, 0, a.max, a.min, a.ample);
      }
      for (uint32_t x : n.numbers) n.plenty |= plenty_words(*p.numbers[x].language, 0, p.numbers[x].max, 0);
      for (uint32_t x : n.arrays) n.plenty |= array[x];
      for (uint32_t x : n.objects) n.plenty |= object[x];
      more |= n.plenty;
    }
  }
}

void Expansion::dominated(Slot& s) {
  if (s.size() < 2) return;
  auto same = [&](const Node& x, const Node& y) {
    return x.literals == y.literals && x.strings == y.strings && x.numbers == y.numbers &&
           x.arrays == y.arrays && x.objects == y.objects;
  };
  Slot keep;
  for (size_t i = 0; i < s.size(); ++i) {
    bool worse = false;
    for (size_t j = 0; j < s.size() && !worse; ++j)
      worse = i != j && (s[i].gain & s[j].gain) == s[i].gain && s[i].gain != s[j].gain &&
              same(p.nodes[s[i].node], p.nodes[s[j].node]);
    if (!worse) keep.push_back(s[i]);
  }
  s = std::move(keep);
}

}  // namespace llamay::grammar
