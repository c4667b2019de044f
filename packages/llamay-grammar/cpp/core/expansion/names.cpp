// The names of members that no schema declares: their classes, and the languages of classes.
#include <algorithm>

#include "automata/algebra.h"
#include "automata/dfa.h"
#include "expansion/expansion.h"
#include "text/unicode.h"

namespace llamay::grammar {

// Classifications are cached, because alternatives of one object classify names by the same languages.
const Expansion::Classified& Expansion::classified(const std::vector<LanguagePtr>& languages) {
  std::vector<uint64_t> key;
  for (const LanguagePtr& l : languages) key.push_back(l->uid);
  auto [it, fresh] = classified_.try_emplace(std::move(key));
  if (fresh) {
    it->second.parts = languages;
    it->second.all = classify(languages, it->second.sets, budget);
  }
  return it->second;
}

const std::vector<LanguagePtr>& Expansion::classes_of(const std::vector<LanguagePtr>& languages) {
  classified(languages);
  std::vector<uint64_t> key;
  for (const LanguagePtr& l : languages) key.push_back(l->uid);
  Classified& c = classified_.at(key);
  for (uint32_t l = static_cast<uint32_t>(c.classes.size()); l < c.sets.size(); ++l)
    c.classes.push_back(with_label(c.all, l));
  return c.classes;
}

// Returns the automaton of `language` without labels; the caller sets new labels.
static RawDfa unlabelled(const Language& language) {
  RawDfa raw = over_alphabet_of(language);
  raw.table = language.table;
  return raw;
}

LanguagePtr Expansion::restrict_labels(const LanguagePtr& all, const LanguagePtr& rule,
                                       const std::vector<Slot>& slots) {
  LanguagePtr in = all;
  if (rule == every_text() &&
      std::none_of(slots.begin(), slots.end(), [](const Slot& s) { return s.empty(); }))
    return in->empty() ? nullptr : in;
  RawDfa raw = unlabelled(*in);
  for (uint32_t l : in->labels) raw.labels.push_back(l != kDead && !slots[l].empty() ? l : kDead);
  LanguagePtr out = grammar::finish(std::move(raw), budget);
  if (rule == every_text() || out->empty()) return out->empty() ? nullptr : out;
  // Intersects the languages with the rule by a classification: a label is the set of languages of a word.
  std::vector<LanguagePtr> parts{rule};
  for (uint32_t l = 0; l < slots.size(); ++l) parts.push_back(with_label(out, l));
  std::vector<std::vector<bool>> sets;
  LanguagePtr both = classify(parts, sets, budget);
  RawDfa r = unlabelled(*both);
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

LanguagePtr Expansion::with_label(const LanguagePtr& in, uint32_t label) {
  RawDfa raw = unlabelled(*in);
  for (uint32_t l : in->labels) raw.labels.push_back(l == label ? 0 : kDead);
  return grammar::finish(std::move(raw), budget);
}

LanguagePtr Expansion::without_names(const ObjectAtom& a) {
  std::vector<LanguagePtr> parts{a.names};
  for (uint32_t l = 0; l < a.rest_slots.size(); ++l) parts.push_back(with_label(a.rest, l));
  std::vector<std::vector<bool>> sets;
  LanguagePtr both = classify(parts, sets, budget);
  RawDfa r = unlabelled(*both);
  for (uint32_t l : both->labels) {
    uint32_t label = kDead;
    if (l != kDead && !sets[l][0])
      for (uint32_t k = 0; k < a.rest_slots.size(); ++k)
        if (sets[l][k + 1]) label = k;
    r.labels.push_back(label);
  }
  return grammar::finish(std::move(r), budget);
}

void Expansion::append_words(const Language& l, std::vector<std::string>& out, uint32_t state,
                             const std::string& prefix) {
  if (l.empty()) return;
  if (l.trie) {
    out.insert(out.end(), l.words.begin(), l.words.end());
    return;
  }
  if (l.accepts(state)) out.push_back(prefix);
  std::vector<std::pair<uint32_t, uint32_t>> ranges;  // first code point, class
  l.each_range([&](uint32_t first, uint32_t cls) { ranges.emplace_back(first, cls); });
  for (size_t i = 0; i < ranges.size(); ++i) {
    const uint32_t next = l.table[size_t{state} * l.n_classes + ranges[i].second];
    if (next == kDead) continue;
    const uint32_t end = i + 1 < ranges.size() ? ranges[i + 1].first : kMaxCodePoint + 1;
    for (uint32_t c = ranges[i].first; c < end; ++c) {
      std::string word = prefix;
      append_utf8(word, c);
      append_words(l, out, next, word);
    }
  }
}

}  // namespace llamay::grammar
