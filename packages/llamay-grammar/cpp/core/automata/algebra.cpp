// Products of automata: the states of a product are tuples of states, made when they are reached.
#include "automata/algebra.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "automata/alphabet.h"
#include "automata/dfa.h"
#include "automata/words.h"
#include "support/compile_error.h"
#include "support/hash.h"

namespace llamay::grammar {
namespace {

// The common refinement of the classes of several automata. A key has the class in each automaton.
Alphabet<std::vector<uint16_t>> common_alphabet(const std::vector<const Language*>& languages) {
  Cuts cuts;
  for (auto l : languages)
    if (!l->empty()) cuts.add(*l);
  return {std::move(cuts), [&](uint32_t cp) {
            std::vector<uint16_t> key;
            for (auto l : languages) key.push_back(l->empty() ? 0 : static_cast<uint16_t>(l->class_of(cp)));
            return key;
          }};
}

// Explores tuples of states of several automata (kDead allowed: the automaton has given up; `need_all`: then
// the product has, too). `label(states, languages)` is the label of a tuple.
template <class Label>
LanguagePtr product(const std::vector<LanguagePtr>& in, Label label, bool need_all, Budget& budget) {
  std::vector<LanguagePtr> keep;
  std::vector<const Language*> languages;
  for (auto& l : in) {
    keep.push_back(l->trie ? dense(l, budget) : l);
    languages.push_back(keep.back().get());
  }
  const Alphabet<std::vector<uint16_t>> a = common_alphabet(languages);
  RawDfa raw = a.dfa();
  const size_t n = languages.size();
  // The tuples side by side, and a table of their numbers by hash.
  std::vector<uint32_t> states, slots(64, kDead);
  uint32_t n_states = 0;
  auto hash = [n](const uint32_t* t) {
    uint64_t h = n;
    for (size_t i = 0; i < n; ++i) h = hash_mix(h, t[i]);
    return static_cast<size_t>(h);
  };
  // Tuples are short: a call to compare them takes longer than comparing.
  auto equal = [n](const uint32_t* x, const uint32_t* y) {
    for (size_t i = 0; i < n; ++i)
      if (x[i] != y[i]) return false;
    return true;
  };
  auto place = [&](const uint32_t* t) -> uint32_t& {
    size_t at = hash(t) & (slots.size() - 1);
    while (slots[at] != kDead && !equal(t, &states[slots[at] * n])) at = (at + 1) & (slots.size() - 1);
    return slots[at];
  };
  auto id = [&](const std::vector<uint32_t>& t) {
    if (uint32_t found = place(t.data()); found != kDead) return found;
    if (n_states >= budget.automaton_states)
      throw CompileError("budget", "",
                         "an automaton has more than " + std::to_string(budget.automaton_states) + " states");
    if (size_t{n_states} * 2 >= slots.size()) {
      slots.assign(slots.size() * 4, kDead);
      for (uint32_t i = 0; i < n_states; ++i) place(&states[i * n]) = i;
    }
    place(t.data()) = n_states;
    states.insert(states.end(), t.begin(), t.end());
    return n_states++;
  };
  std::vector<uint32_t> first;
  for (auto l : languages) first.push_back(l->empty() ? kDead : 0);
  id(first);
  std::vector<uint32_t> s(n), t(n), before(n);
  for (uint32_t q = 0; q < n_states; ++q) {
    std::copy_n(&states[q * n], n, s.begin());
    raw.labels.push_back(label(s, languages));
    uint32_t to_before =
        kDead;  // the target of the last class; neighbouring classes often have equal targets
    for (size_t c = 0; c < a.keys.size(); ++c) {
      budget.tick();
      uint32_t to = kDead;
      if (!a.keys[c].empty()) {
        bool dead = false;
        for (size_t i = 0; i < n; ++i) {
          t[i] = s[i] == kDead ? kDead
                               : languages[i]->table[size_t{s[i]} * languages[i]->n_classes + a.keys[c][i]];
          dead |= t[i] == kDead;
        }
        if (!(need_all && dead)) {
          to = to_before != kDead && equal(t.data(), before.data()) ? to_before : id(t);
          to_before = to, std::swap(before, t);
        }
      }
      raw.table.push_back(to);
    }
  }
  return finish(std::move(raw), budget);
}

uint32_t label_of(const Language* l, uint32_t s) { return s == kDead ? kDead : l->label(s); }

// Returns the words of a trie that are in another language, or the words that are not.
LanguagePtr words_of(const Language& trie, const Language& other, bool in_it, Budget& budget) {
  std::vector<std::string> keep;
  for (auto& w : trie.words)
    if (other.matches(w) == in_it) keep.push_back(w);
  return language_of_words(std::move(keep), budget);
}

}  // namespace

LanguagePtr combine(const LanguagePtr& a, const LanguagePtr& b, Combine how, Budget& budget) {
  if (how == Combine::And) {
    if (a->empty() || b == every_text()) return a;
    if (b->empty() || a == every_text()) return b;
    if (a->trie || b->trie) {
      const LanguagePtr& words = a->trie ? a : b;
      const LanguagePtr& other = a->trie ? b : a;
      return words_of(*words, *other, true, budget);
    }
  }
  if (how == Combine::Or) {
    if (a->empty()) return b;
    if (b->empty()) return a;
    if (a->trie && b->trie) {
      auto w = a->words;
      w.insert(w.end(), b->words.begin(), b->words.end());
      return language_of_words(std::move(w), budget);
    }
  }
  if (how == Combine::AndNot) {
    if (a->empty() || b->empty()) return a;
    if (a->trie) return words_of(*a, *b, false, budget);
  }
  return product(
      {a, b},
      [how](const std::vector<uint32_t>& s, const std::vector<const Language*>& l) {
        bool x = label_of(l[0], s[0]) != kDead, y = label_of(l[1], s[1]) != kDead;
        bool ok = how == Combine::And ? x && y : how == Combine::Or ? x || y : x && !y;
        return ok ? 0u : kDead;
      },
      how == Combine::And, budget);
}

LanguagePtr complement(const LanguagePtr& a, Budget& budget) {
  return combine(every_text(), a, Combine::AndNot, budget);
}

LanguagePtr with_length(const LanguagePtr& a, uint32_t min, uint32_t max, Budget& budget) {
  if (a->empty() || (min == 0 && max == kInf)) return a;
  uint32_t cap = max == kInf ? min : max;  // counts beyond `cap` are equivalent (no maximum) or too large
  if (uint64_t{cap} > budget.automaton_states)
    throw CompileError("budget", "",
                       "a length of " + std::to_string(cap) + " with this pattern needs too many states");
  LanguagePtr d = dense(a, budget);
  RawDfa raw = over_alphabet_of(*d);
  std::unordered_map<uint64_t, uint32_t> ids;
  std::vector<std::pair<uint32_t, uint32_t>> states;
  auto id = [&](uint32_t s, uint32_t n) {
    auto [it, fresh] = ids.emplace(uint64_t{s} << 32 | n, static_cast<uint32_t>(states.size()));
    if (fresh) {
      if (states.size() >= budget.automaton_states * 4)
        throw CompileError("budget", "", "an automaton that counts needs too many states");
      states.emplace_back(s, n);
    }
    return it->second;
  };
  id(0, 0);
  for (size_t q = 0; q < states.size(); ++q) {
    auto [s, n] = states[q];
    raw.labels.push_back(n >= min ? d->label(s) : kDead);
    for (uint32_t c = 0; c < d->n_classes; ++c) {
      budget.tick();
      uint32_t t = d->table[size_t{s} * d->n_classes + c], m = std::min(n + 1, max == kInf ? cap : cap + 1);
      raw.table.push_back(t == kDead || (max != kInf && m > max) ? kDead : id(t, m));
    }
  }
  return finish(std::move(raw), budget);
}

LanguagePtr classify(const std::vector<LanguagePtr>& languages, std::vector<std::vector<bool>>& sets,
                     Budget& budget) {
  std::map<std::vector<bool>, uint32_t> ids;
  std::vector<LanguagePtr> all = languages;
  all.push_back(every_text());
  return product(
      all,
      [&](const std::vector<uint32_t>& s, const std::vector<const Language*>& l) {
        std::vector<bool> set;
        for (size_t i = 0; i + 1 < s.size(); ++i) set.push_back(label_of(l[i], s[i]) != kDead);
        auto [it, fresh] = ids.emplace(set, static_cast<uint32_t>(ids.size()));
        if (fresh) sets.push_back(set);
        return it->second;
      },
      false, budget);
}

}  // namespace llamay::grammar
