// Strings and numbers: every conjunction becomes one automaton.
#include "expansion/expansion.h"

#include <algorithm>
#include <deque>
#include <set>
#include <unordered_set>

#include "automata/algebra.h"
#include "automata/dfa.h"
#include "automata/lengths.h"
#include "automata/words.h"
#include "program/feasible.h"

namespace llamay::grammar {

StringSpec Expansion::conjunction(const Leaves& leaves) {
  StringSpec s;
  s.language = every_text();
  bool finite = false;
  std::vector<LanguagePtr> languages;
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
      languages.push_back(x.language);
    }
  }
  if (finite) {
    std::erase_if(s.words, [&](const std::string& w) {
      uint32_t n = 0;
      for (char c : w) n += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
      if (n < s.min || n > s.max) return true;
      return std::any_of(languages.begin(), languages.end(), [&](auto& l) { return !l->matches(w); });
    });
    s.finite = true;
    return s;
  }
  for (auto& l : languages) s.language = combine(s.language, l, Combine::And, budget);
  if (s.min > s.max) s.language = language_of_words({}, budget);
  return s;
}

// Leaves the maximum of an item under uniqueItems out of its automaton if that would have many states, and if
// words can run out only shortly before the maximum. Returns whether it does.
bool Expansion::limited(StringAtom& a) {
  constexpr uint64_t kFewStates = 2000;
  constexpr uint32_t kShort = 64;
  if (a.language->trie || uint64_t{a.language->n_states()} * a.max <= kFewStates) return false;
  const LanguagePtr longer = a.min > 0 ? with_length(a.language, a.min, kInf, budget) : a.language;
  const uint32_t ample = ample_length(*longer, std::min(a.max, kShort), budget);
  if (ample >= a.max) return false;
  a.language = longer, a.min = 0, a.ample = ample;
  return true;
}

uint32_t Expansion::string_atom(const Leaves& leaves) {
  auto [it, fresh] = string_of.emplace(leaves, kNone);
  if (!fresh) return it->second;
  StringSpec s = conjunction(leaves);
  StringAtom a;
  if (s.finite) {
    a.language = language_of_words(s.words, budget);
  } else {
    a.language = s.language, a.min = s.min, a.max = s.max;
    if (!a.language->empty()) {
      a.min = a.min <= a.language->min_length(0) ? 0 : a.min;
      a.max = a.max >= a.language->max_length(0) ? kInf : a.max;
      // Without a minimum, a text can be completed if the shortest word from the state fits into the maximum.
      // With a minimum, gaps in the lengths of the words would matter, so the automaton counts the length.
      if (s.counted && a.max != kInf && limited(a)) {
        // The words that are left are counted while an item is read.
      } else if (s.counted) {
        a.language = with_length(a.language, a.min, a.max, budget), a.min = 0, a.max = kInf;
      } else if (a.min > 0 && !a.language->gap_free) {
        a.language = with_length(a.language, a.min, kInf, budget), a.min = 0;
      }
    }
  }
  if (a.language->empty() || a.language->min_length(0) > a.max || a.language->max_length(0) < a.min)
    return it->second = kNone;
  p.strings.push_back(std::move(a));
  return it->second = static_cast<uint32_t>(p.strings.size() - 1);
}

void Expansion::add_string(Node& node, const Leaves& leaves) { node.strings.push_back(string_atom(leaves)); }

void Expansion::merge_strings(Node& node) {
  if (node.strings.size() < 2) return;
  std::vector<uint32_t> keep, sets;
  for (uint32_t s : node.strings) {
    const StringAtom& a = p.strings[s];
    if (a.language == every_text() && a.min == 0 && a.max == kInf) {
      node.strings = {s};
      return;
    }
    (a.language->trie ? sets : keep).push_back(s);
  }
  if (sets.size() > 1) {
    std::vector<std::string> words;
    for (uint32_t s : sets)
      words.insert(words.end(), p.strings[s].language->words.begin(), p.strings[s].language->words.end());
    StringAtom a;
    a.language = language_of_words(std::move(words), budget);
    p.strings.push_back(std::move(a));
    sets = {static_cast<uint32_t>(p.strings.size() - 1)};
  }
  keep.insert(keep.end(), sets.begin(), sets.end());
  node.strings = std::move(keep);
}

void Expansion::add_number(Node& node, const Leaves& leaves) {
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
      a.language = number_words(set, spec.canonical || spec.plain_integer, budget);
    } else if (spec.integer && spec.fractional) {
      a.language = language_of_words({}, budget);
    } else {
      a.language = number_language(spec, budget);
      a.max = kMaxNumberLength;
      if (spec.canonical) a.language = with_length(a.language, 0, 20, budget), a.max = kInf;
      if (!a.language->empty() && a.language->min_length(0) > a.max)
        a.max = a.language->min_length(0) + kMaxNumberLength;
    }
    if (!a.language->empty()) {
      p.numbers.push_back(std::move(a));
      it->second = static_cast<uint32_t>(p.numbers.size() - 1);
    }
  }
  node.numbers.push_back(it->second);
}

LanguagePtr Expansion::string_language(FormulaId id) {
  if (auto it = string_languages.find(id); it != string_languages.end()) return it->second;
  LanguagePtr out = language_of_words({}, budget);
  for (auto& l : alternatives(id, kString)) {
    StringSpec s = conjunction(l);
    LanguagePtr one =
        s.finite ? language_of_words(s.words, budget) : with_length(s.language, s.min, s.max, budget);
    out = combine(out, one, Combine::Or, budget);
  }
  return string_languages[id] = out;
}

}  // namespace llamay::grammar
