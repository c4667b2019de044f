#include "expand.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "feasible.h"

namespace llamay::grammar {

using Leaves = std::vector<FormulaId>;  // sorted: one conjunction of assertions about one type

struct Expander::Impl {
  Formulas& f;
  Program& p;
  Budget& budget;
  std::unordered_map<FormulaId, uint32_t> node_of;
  std::vector<FormulaId> formula_of;
  size_t expanded = 0;
  std::map<Leaves, uint32_t> array_of, object_of, string_of, number_of;
  std::vector<std::pair<uint32_t, uint32_t>> rebuilt;
  std::unordered_map<FormulaId, LangPtr> string_langs;

  Impl(Formulas& f_, Program& p_, Budget& b) : f(f_), p(p_), budget(b) {}

  uint32_t node(FormulaId id) {
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

  // ---- Disjunctive normal form, one type at a time ----

  enum class Truth { No, Yes, Open };

  Truth quick(FormulaId id, uint8_t t, int depth) {
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

  struct Dnf {
    uint8_t type;
    std::set<Leaves> out;
    uint32_t steps = 0;
  };

  void dnf(Dnf& d, std::vector<FormulaId> todo, Leaves leaves, std::vector<FormulaId> ors,
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
        throw CompileError(
            "budget", "", "one value has more than " + std::to_string(budget.alternatives) + " alternatives");
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

  // One assertion about the members of an object, as `negate` writes them.
  struct Literal {
    enum Kind { Absent, Present, Exists } kind;
    std::string name;
    FormulaId value;
    LangPtr names;
  };

  std::optional<Literal> literal(FormulaId id) {
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

  LangPtr exists_names(const ExistsSpec& s) { return s.names ? s.names : string_language(s.name_rule); }

  // Cheap contradictions, so that hopeless combinations are dropped before they multiply.
  bool contradicts(const Leaves& leaves, uint8_t t) {
    if (leaves.size() < 2 || leaves.size() > 64) return false;
    if (t == kObject || t == kString || t == kNumber) {
      for (size_t i = 0; i < leaves.size(); ++i)
        for (size_t j = i + 1; j < leaves.size(); ++j)
          if (clash(leaves[i], leaves[j], 2)) return true;
    }
    return false;
  }

  // Two assertions about one type that cannot both hold.
  bool clash(FormulaId a, FormulaId b, int depth) {
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

  static bool in(const StringSpec& s, const std::string& text) {
    if (s.finite) return std::binary_search(s.words.begin(), s.words.end(), text);
    uint32_t n = 0;
    for (char c : text) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
    return n >= s.min && n <= s.max && s.lang->matches(text);
  }

  bool forbids(const PropsSpec& s, const std::string& name) {
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

  FormulaId value_for(const PropsSpec& s, const std::string& name) {
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

  // What certainly holds of every value of type t that satisfies id: a list of assertions. Follows And and
  // Ref.
  void certain(FormulaId id, uint8_t t, int depth, Leaves& out) {
    const Formula& x = f.at(id);
    if (x.op == Op::And) {
      for (FormulaId k : std::vector<FormulaId>(x.kids)) certain(k, t, depth, out);
    } else if (x.op == Op::Ref) {
      if (depth > 0) certain(f.resolve(x), t, depth - 1, out);
    } else if (x.op >= Op::Number && (x.types & t)) {
      out.push_back(id);
    }
  }

  // Provably no common value of type t. "false" means only "not shown".
  bool disjoint(FormulaId a, FormulaId b, uint8_t t, int depth) {
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
      if (nonempty && !va.empty() && !vb.empty() && disjoint_all(f.all(va), f.all(vb), depth - 1))
        return true;
    }
    return false;
  }

  bool disjoint_all(FormulaId a, FormulaId b, int depth) {
    for (uint8_t t = 1; t < 128; t = static_cast<uint8_t>(t << 1))
      if (!disjoint(a, b, t, depth)) return false;
    return true;
  }

  // ---- Alternatives ----

  std::vector<Leaves> alternatives(FormulaId id, uint8_t type) {
    if (quick(id, type, 4) == Truth::No) return {};
    Dnf d{type, {}, 0};
    dnf(d, {id}, {}, {}, {});
    return {d.out.begin(), d.out.end()};
  }

  void expand(uint32_t n) {
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

  StringSpec conjunction(const Leaves& leaves) {
    StringSpec s;
    s.lang = lang_any();
    bool finite = false;
    std::vector<LangPtr> langs;
    for (FormulaId id : leaves) {
      const StringSpec& x = f.string_at(f.at(id));
      if (x.finite) {
        if (!finite) {
          s.words = x.words, finite = true;
        } else {
          std::vector<std::string> both;
          std::set_intersection(s.words.begin(), s.words.end(), x.words.begin(), x.words.end(),
                                std::back_inserter(both));
          s.words = std::move(both);
        }
      } else {
        s.min = std::max(s.min, x.min), s.max = std::min(s.max, x.max), s.counted |= x.counted;
        langs.push_back(x.lang);
      }
    }
    if (finite) {
      std::erase_if(s.words, [&](const std::string& w) {
        uint32_t n = 0;
        for (char c : w) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
        if (n < s.min || n > s.max) return true;
        return std::any_of(langs.begin(), langs.end(), [&](auto& l) { return !l->matches(w); });
      });
      s.finite = true;
      return s;
    }
    for (auto& l : langs) s.lang = combine(s.lang, l, Combine::And, budget);
    if (s.min > s.max) s.lang = lang_of_words({}, budget);
    return s;
  }

  uint32_t string_atom(const Leaves& leaves) {
    auto [it, fresh] = string_of.emplace(leaves, kNone);
    if (!fresh) return it->second;
    StringSpec s = conjunction(leaves);
    StringAtom a;
    if (s.finite) {
      a.lang = lang_of_words(s.words, budget);
    } else {
      a.lang = s.lang, a.min = s.min, a.max = s.max;
      if (!a.lang->empty()) {
        a.min = a.min <= a.lang->min_length(0) ? 0 : a.min;
        a.max = a.max >= a.lang->max_length(0) ? kInf : a.max;
        // Without a minimum, "the shortest way out fits" decides; with one, gaps in the lengths would matter.
        if ((a.min > 0 && !a.lang->gap_free) || s.counted)
          a.lang = with_length(a.lang, a.min, a.max, budget), a.min = 0, a.max = kInf;
      }
    }
    if (a.lang->empty() || a.lang->min_length(0) > a.max || a.lang->max_length(0) < a.min)
      return it->second = kNone;
    p.strings.push_back(std::move(a));
    return it->second = static_cast<uint32_t>(p.strings.size() - 1);
  }

  void add_string(Node& node, const Leaves& leaves) { node.strings.push_back(string_atom(leaves)); }

  // Alternatives that are finite sets are one set: one automaton instead of many in parallel.
  void merge_strings(Node& node) {
    if (node.strings.size() < 2) return;
    std::vector<uint32_t> keep, sets;
    for (uint32_t s : node.strings) {
      const StringAtom& a = p.strings[s];
      if (a.lang == lang_any() && a.min == 0 && a.max == kInf) {
        node.strings = {s};
        return;
      }
      (a.lang->trie ? sets : keep).push_back(s);
    }
    if (sets.size() > 1) {
      std::vector<std::string> words;
      for (uint32_t s : sets)
        words.insert(words.end(), p.strings[s].lang->words.begin(), p.strings[s].lang->words.end());
      StringAtom a;
      a.lang = lang_of_words(std::move(words), budget);
      p.strings.push_back(std::move(a));
      sets = {static_cast<uint32_t>(p.strings.size() - 1)};
    }
    keep.insert(keep.end(), sets.begin(), sets.end());
    node.strings = std::move(keep);
  }

  void add_number(Node& node, const Leaves& leaves) {
    auto [it, fresh] = number_of.emplace(leaves, kNone);
    if (fresh) {
      NumberSpec spec;
      std::vector<Decimal> set;
      bool finite = false;
      for (FormulaId id : leaves) {
        const Formula& x = f.at(id);
        if (x.op == Op::Number) {
          spec.merge(f.number_at(x));
        } else {
          const auto& v = f.numbers_at(x);
          if (!finite)
            set = v, finite = true;
          else
            std::erase_if(set, [&](auto& d) { return std::find(v.begin(), v.end(), d) == v.end(); });
        }
      }
      NumberAtom a;
      if (finite) {
        std::erase_if(set, [&](auto& d) { return !spec.contains(d); });
        a.lang = number_words(set, spec.canonical || spec.plain_integer, budget);
      } else if (spec.integer && spec.fractional) {
        a.lang = lang_of_words({}, budget);
      } else {
        a.lang = number_lang(spec, budget);
        a.max = kMaxNumberLength;
        if (spec.canonical) a.lang = with_length(a.lang, 0, 20, budget), a.max = kInf;
        if (!a.lang->empty() && a.lang->min_length(0) > a.max)
          a.max = a.lang->min_length(0) + kMaxNumberLength;
      }
      if (!a.lang->empty()) {
        p.numbers.push_back(std::move(a));
        it->second = static_cast<uint32_t>(p.numbers.size() - 1);
      }
    }
    node.numbers.push_back(it->second);
  }

  // Scalars spelled in one way only, and in automata whose words can be counted: what uniqueItems needs.
  FormulaId one_spelling() {
    NumberSpec n;
    n.canonical = true;
    StringSpec s;
    s.lang = lang_any(), s.counted = true;
    return f.all({f.number(n), f.string(s)});
  }

  void check_unique(ArrayAtom& a) {
    if (!a.unique || a.max <= 1) {
      a.unique = false;
      return;
    }
    bool free = true;
    auto check = [&](const Slot& s) {
      for (auto& o : s) {
        const Node& n = p.nodes[o.node];
        if (!n.arrays.empty() || !n.objects.empty())
          throw CompileError("uniqueItems", "", "uniqueItems with items that are arrays or objects");
        bool endless = false;
        for (uint32_t x : n.strings)
          endless |= p.strings[x].lang->infinite(0) || p.strings[x].lang->count_words(0) > 1u << 30;
        for (uint32_t x : n.numbers) endless |= p.numbers[x].lang->count_words(0) > 1u << 30;
        free &= endless;
      }
    };
    for (auto& s : a.prefix) check(s);
    check(a.rest);
    if (free) return;
    if (!a.prefix.empty() || !a.contains.empty() || a.rest.size() != 1)
      throw CompileError("uniqueItems", "",
                         "uniqueItems together with contains or positional items of few values");
    const Node& n = p.nodes[a.rest[0].node];
    if (n.strings.size() > 1 || n.numbers.size() > 1)
      throw CompileError("uniqueItems", "", "uniqueItems over alternatives of few values");
    uint64_t values = static_cast<uint64_t>(__builtin_popcount(n.literals));
    for (uint32_t x : n.strings) values += std::min<uint64_t>(p.strings[x].lang->count_words(0), 1u << 30);
    for (uint32_t x : n.numbers) values += std::min<uint64_t>(p.numbers[x].lang->count_words(0), 1u << 30);
    a.max = std::min(a.max, values);
    if (a.max < a.min)
      throw CompileError("uniqueItems", "", "uniqueItems needs more different items than there are");
  }

  uint32_t array(const Leaves& leaves) {
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
      if (c.start > 100000)
        throw CompileError("contains", "", "a contains that begins too far into the array");
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

  uint32_t object(const Leaves& leaves) {
    auto [it, fresh] = object_of.emplace(leaves, kNone);
    if (!fresh) return it->second;
    ObjectAtom a;
    std::vector<PropsSpec> props;
    std::vector<FormulaId> name_rules;
    std::vector<std::vector<Literal>> clauses;
    std::vector<DependSpec> depends;
    std::vector<std::string> names;
    std::set<std::string> required;
    for (FormulaId id : leaves) {
      const Formula& x = f.at(id);
      switch (x.op) {
        case Op::Props:
          props.push_back(f.props_at(x));
          for (auto& n : props.back().names) names.push_back(n.first);
          break;
        case Op::Require:
          required.insert(f.name_at(x));
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
    LangPtr rule = lang_any();
    for (FormulaId r : name_rules) rule = combine(rule, string_language(r), Combine::And, budget);
    if (rule->trie) names.insert(names.end(), rule->words.begin(), rule->words.end());
    a.names = lang_of_words(names, budget);
    const auto& words = a.names->words;
    // The options of a place whose plain value is `base`, when each condition c would be met by a value that
    // satisfies meets[c] (no(): by none).
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
    // All other names, told apart by the patterns that they match.
    if (rule->trie) {
      a.rest = nullptr;
    } else {
      std::vector<LangPtr> langs;
      struct From {
        size_t props, pattern;
      };
      std::vector<From> from;
      for (size_t s = 0; s < props.size(); ++s)
        for (size_t k = 0; k < props[s].patterns.size(); ++k)
          langs.push_back(props[s].patterns[k].first), from.push_back({s, k});
      std::vector<std::pair<size_t, const Literal*>> somewhere;  // clause, literal
      for (size_t c = 0; c < clauses.size(); ++c)
        for (auto& l : clauses[c])
          if (l.kind == Literal::Exists) langs.push_back(l.names), somewhere.emplace_back(c, &l);
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
      if (langs.empty()) {
        FormulaId base = base_of({});
        if (base != f.no()) {
          a.rest = rule;
          a.rest_slots.push_back(options(base, {}));
        }
      } else {
        std::vector<std::vector<bool>> sets;
        LangPtr all = classify(langs, sets, budget);
        bool some = false;
        for (auto& set : sets) {
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

  // The words of `all` whose label has a usable slot, and that `rule` allows; labels kept.
  LangPtr restrict_labels(const LangPtr& all, const LangPtr& rule, const std::vector<Slot>& slots) {
    LangPtr in = all;
    RawDfa raw;
    for (uint32_t c = 0; c < 128; ++c)
      if (c == 0 || in->ascii_class[c] != in->ascii_class[c - 1])
        raw.starts.push_back(c), raw.classes.push_back(in->ascii_class[c]);
    for (size_t i = 0; i < in->range_start.size(); ++i)
      raw.starts.push_back(in->range_start[i]), raw.classes.push_back(in->range_class[i]);
    raw.n_classes = in->n_classes;
    raw.table = in->table;
    for (uint32_t l : in->labels) raw.labels.push_back(l != kDead && !slots[l].empty() ? l : kDead);
    LangPtr out = grammar::finish(std::move(raw), budget);
    if (rule == lang_any() || out->empty()) return out->empty() ? nullptr : out;
    // Intersect with the rule by classification: label = set of both.
    std::vector<LangPtr> parts{rule};
    for (uint32_t l = 0; l < slots.size(); ++l) parts.push_back(with_label(out, l));
    std::vector<std::vector<bool>> sets;
    LangPtr both = classify(parts, sets, budget);
    RawDfa r;
    for (uint32_t c = 0; c < 128; ++c)
      if (c == 0 || both->ascii_class[c] != both->ascii_class[c - 1])
        r.starts.push_back(c), r.classes.push_back(both->ascii_class[c]);
    for (size_t i = 0; i < both->range_start.size(); ++i)
      r.starts.push_back(both->range_start[i]), r.classes.push_back(both->range_class[i]);
    r.n_classes = both->n_classes;
    r.table = both->table;
    for (uint32_t l : both->labels) {
      uint32_t label = kDead;
      if (l != kDead && sets[l][0])
        for (uint32_t k = 0; k < slots.size(); ++k)
          if (sets[l][k + 1]) label = k;
      r.labels.push_back(label);
    }
    out = grammar::finish(std::move(r), budget);
    return out->empty() ? nullptr : out;
  }

  LangPtr with_label(const LangPtr& in, uint32_t label) {
    RawDfa raw;
    for (uint32_t c = 0; c < 128; ++c)
      if (c == 0 || in->ascii_class[c] != in->ascii_class[c - 1])
        raw.starts.push_back(c), raw.classes.push_back(in->ascii_class[c]);
    for (size_t i = 0; i < in->range_start.size(); ++i)
      raw.starts.push_back(in->range_start[i]), raw.classes.push_back(in->range_class[i]);
    raw.n_classes = in->n_classes;
    raw.table = in->table;
    for (uint32_t l : in->labels) raw.labels.push_back(l == label ? 0 : kDead);
    return grammar::finish(std::move(raw), budget);
  }

  LangPtr string_language(FormulaId id) {
    if (auto it = string_langs.find(id); it != string_langs.end()) return it->second;
    LangPtr out = lang_of_words({}, budget);
    for (auto& l : alternatives(id, kString)) {
      StringSpec s = conjunction(l);
      LangPtr one = s.finite ? lang_of_words(s.words, budget) : with_length(s.lang, s.min, s.max, budget);
      out = combine(out, one, Combine::Or, budget);
    }
    return string_langs[id] = out;
  }

  // ---- Which values exist at all ----

  bool usable(const Slot& s) const {
    return std::any_of(s.begin(), s.end(), [&](const Option& o) { return p.nodes[o.node].possible; });
  }

  bool array_possible(const ArrayAtom& a) const {
    if (a.min > a.max) return false;
    uint64_t reach = 0;  // how many items can be written
    while (reach < a.prefix.size() && usable(a.prefix[reach])) ++reach;
    if (reach == a.prefix.size() && usable(a.rest)) reach = UINT64_MAX;
    reach = std::min(reach, a.max);
    if (reach < a.min) return false;
    if (a.contains.empty()) return true;
    uint32_t none[6] = {};
    return array_feasible(p, a, 0, none);
  }

  bool object_possible(const ObjectAtom& a) const {
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
    // While this is asked, impossible members are not marked as such yet; the search looks at the options.
    std::vector<uint64_t> seen(a.words(), 0);
    return object_feasible(p, a, seen.data(), 0, 0);
  }

  // The schema that a formula comes from: the nearest one inside it whose origin is known.
  std::string where(FormulaId id, const std::string& keyword) {
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
          direct |= (keyword == "oneOf" && op == Op::OneOf) ||
                    (keyword == "uniqueItems" && op == Op::Unique) ||
                    (keyword == "contains" && op == Op::Contains);
        }
        if (direct) return it->second + (keyword == "budget" ? "" : "/" + keyword);
      }
      for (FormulaId k : g.kids) queue.push_back(k);
      if (g.op == Op::Ref) queue.push_back(f.resolve(g));
    }
    return fallback;
  }

  // Where the schema of an alternative is, when origins are kept.
  std::string place_of(std::vector<uint32_t> Node::* list, size_t atom, const std::string& keyword) {
    if (!f.tracking) return "";
    for (size_t n = 0; n < p.nodes.size(); ++n)
      for (uint32_t a : p.nodes[n].*list)
        if (a == atom) return where(formula_of[n], keyword);
    return "";
  }

  void finish() {
    size_t first = expanded;
    for (; expanded < p.nodes.size(); ++expanded) {
      try {
        expand(static_cast<uint32_t>(expanded));
      } catch (const CompileError& e) {
        if (!f.tracking || !e.pointer.empty()) throw;
        throw CompileError(e.keyword, where(formula_of[expanded], e.keyword), e.what());
      }
    }
    // Least fixed point: a value exists when an alternative of it does, over values known to exist.
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
    auto prune = [&](Slot& s) {
      std::erase_if(s, [&](const Option& o) { return !p.nodes[o.node].possible; });
    };
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
      // A name whose dependencies cannot all be written cannot be written either.
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
      if (a.rest && gone) a.rest = restrict_labels(a.rest, lang_any(), a.rest_slots);
      // The declared names are told apart before the rest is asked, so the rest may go on containing them.
      // But where the rest is finite, its words are counted: take the declared ones out.
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
  }

  // An option that meets less than another one with the same value is of no use.
  void dominated(Slot& s) {
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

  LangPtr without_names(const ObjectAtom& a) {
    std::vector<LangPtr> parts{a.names};
    for (uint32_t l = 0; l < a.rest_slots.size(); ++l) parts.push_back(with_label(a.rest, l));
    std::vector<std::vector<bool>> sets;
    LangPtr both = classify(parts, sets, budget);
    RawDfa r;
    for (uint32_t c = 0; c < 128; ++c)
      if (c == 0 || both->ascii_class[c] != both->ascii_class[c - 1])
        r.starts.push_back(c), r.classes.push_back(both->ascii_class[c]);
    for (size_t i = 0; i < both->range_start.size(); ++i)
      r.starts.push_back(both->range_start[i]), r.classes.push_back(both->range_class[i]);
    r.n_classes = both->n_classes;
    r.table = both->table;
    for (uint32_t l : both->labels) {
      uint32_t label = kDead;
      if (l != kDead && !sets[l][0])
        for (uint32_t k = 0; k < a.rest_slots.size(); ++k)
          if (sets[l][k + 1]) label = k;
      r.labels.push_back(label);
    }
    return grammar::finish(std::move(r), budget);
  }

  void check_contains(const ArrayAtom& a) const {
    if (a.contains.empty()) return;
    for (auto& c : a.contains)
      if (c.min > 10000 || (c.max != UINT64_MAX && c.max > 10000) || a.min > 10000)
        throw CompileError("contains", "", "a contains together with more than 10000 items");
  }
};

Expander::Expander(Formulas& formulas, Program& program, Budget& budget)
    : impl_(std::make_unique<Impl>(formulas, program, budget)) {}
Expander::~Expander() = default;
uint32_t Expander::node(FormulaId f) { return impl_->node(f); }
void Expander::finish() { impl_->finish(); }
LangPtr Expander::string_language(FormulaId f) { return impl_->string_language(f); }

}  // namespace llamay::grammar
