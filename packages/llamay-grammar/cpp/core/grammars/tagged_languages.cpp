// The languages of tags, and of the names and values between tags.
#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "automata/alphabet.h"
#include "automata/words.h"
#include "formulas/formula.h"
#include "grammars/tagged.h"
#include "regex/terms.h"
#include "support/budget.h"
#include "support/compile_error.h"

namespace llamay::grammar {
namespace {

// Builds an automaton from its transition function. A transition may depend on the classes of the code point
// in the languages, and on whether the code point is one of `letters`.
using Spot = std::array<uint32_t, 3>;
constexpr Spot kNowhere{kDead, kDead, kDead};

LanguagePtr explore(const std::vector<const Language*>& languages, const std::vector<uint32_t>& letters,
                    Spot start, const std::function<Spot(Spot, uint32_t)>& move,
                    const std::function<uint32_t(Spot)>& label, Budget& budget) {
  Cuts cuts;
  for (const Language* l : languages) cuts.add(*l);
  for (uint32_t cp : letters) cuts.add(cp, cp);
  const Alphabet<std::vector<uint32_t>> alphabet(std::move(cuts), [&](uint32_t cp) {
    std::vector<uint32_t> key{std::find(letters.begin(), letters.end(), cp) != letters.end() ? cp : kDead};
    for (const Language* l : languages) key.push_back(l->class_of(cp));
    return key;
  });
  RawDfa raw = alphabet.dfa();
  std::map<Spot, uint32_t> numbers{{start, 0}};
  std::vector<Spot> spots{start};
  for (size_t q = 0; q < spots.size(); ++q) {
    budget.tick();
    if (spots.size() > budget.automaton_states)
      throw CompileError("budget", "",
                         "what stands between two tags needs more than " +
                             std::to_string(budget.automaton_states) + " states");
    raw.labels.push_back(label(spots[q]));
    for (uint32_t cp : alphabet.example) {
      const Spot to = is_surrogate(cp) ? kNowhere : move(spots[q], cp);
      if (to == kNowhere) {
        raw.table.push_back(kDead);
        continue;
      }
      auto [it, fresh] = numbers.emplace(to, static_cast<uint32_t>(spots.size()));
      if (fresh) spots.push_back(to);
      raw.table.push_back(it->second);
    }
  }
  return finish(std::move(raw), budget);
}

}  // namespace

LanguagePtr closed_by(const LanguagePtr& language, const std::string& close, Budget& budget) {
  if (language->trie) {
    std::vector<std::string> words = language->words;
    for (std::string& w : words) w += close;
    return language_of_words(std::move(words), budget);
  }
  if (language->empty()) return language;
  const std::vector<uint32_t> end = code_points(close);
  const uint32_t n = static_cast<uint32_t>(end.size());
  // D. E. Knuth, J. H. Morris, V. R. Pratt: "Fast pattern matching in strings", 1977.
  std::vector<uint32_t> back(n + 1, 0);
  for (uint32_t i = 1, k = 0; i < n; ++i) {
    while (k > 0 && end[k] != end[i]) k = back[k];
    if (end[k] == end[i]) ++k;
    back[i + 1] = k;
  }
  const Language& l = *language;
  // A state has the state of `language` before the last k characters; these k characters are a prefix of
  // `close`.
  auto move = [&](Spot at, uint32_t cp) -> Spot {
    auto [q, k, _] = at;
    if (k == n) return kNowhere;
    uint32_t next = k;
    while (next > 0 && end[next] != cp) next = back[next];
    if (end[next] == cp) ++next;
    for (uint32_t i = 0; i + next < k + 1; ++i)
      if ((q = l.next(q, i < k ? end[i] : cp)) == kDead) return kNowhere;
    if (next == n) return l.accepts(q) ? Spot{0, n, 0} : kNowhere;
    return {q, next, 0};
  };
  auto label = [&](Spot at) { return at[1] == n ? 0 : kDead; };
  return explore({&l}, end, {0, 0, 0}, move, label, budget);
}

LanguagePtr enclosed(const LanguagePtr& given, const LanguagePtr& fit, const std::vector<bool>& labels,
                     const std::string& before, const std::string& behind, Budget& budget) {
  const LanguagePtr language = given->trie ? dense(given, budget) : given;
  if (language->empty()) return language;
  const std::vector<uint32_t> head = code_points(before), tail = code_points(behind);
  const uint32_t n = static_cast<uint32_t>(head.size()), m = static_cast<uint32_t>(tail.size());
  const Language& l = *language;
  std::vector<uint32_t> letters = head;
  letters.insert(letters.end(), tail.begin(), tail.end());
  auto label_of = [&](uint32_t q, uint32_t f) {
    const uint32_t x = l.label(q);
    return x != kDead && labels[x] && fit->accepts(f) ? x : kDead;
  };
  // States: {i, kDead, 0} after i characters of `before`; {q, n, f} inside the word, in state q of `language`
  // and state f of `fit`; {label, n + k, 0} after k characters of `behind`.
  auto inside = [&](uint32_t i) { return i == n ? Spot{0, n, 0} : Spot{i, kDead, 0}; };
  auto move = [&](Spot at, uint32_t cp) -> Spot {
    auto [q, k, f] = at;
    if (k == kDead) return head[q] == cp ? inside(q + 1) : kNowhere;
    if (k > n) return k - n < m && tail[k - n] == cp ? Spot{q, k + 1, 0} : kNowhere;
    if (m > 0 && tail[0] == cp) {
      const uint32_t x = label_of(q, f);
      return x != kDead ? Spot{x, n + 1, 0} : kNowhere;
    }
    const uint32_t to = l.next(q, cp), fits = fit->next(f, cp);
    return to == kDead || fits == kDead ? kNowhere : Spot{to, n, fits};
  };
  auto label = [&](Spot at) -> uint32_t {
    if (at[1] == kDead) return kDead;
    if (m == 0) return label_of(at[0], at[2]);
    return at[1] == n + m ? at[0] : kDead;
  };
  return explore({&l, fit.get()}, letters, inside(0), move, label, budget);
}

LanguagePtr raw_texts(const std::string& stop, const std::string& close, uint8_t mixed, Budget& budget) {
  Terms t(budget);
  std::vector<Terms::Id> all;
  auto nowhere = [&](Terms::Id what, bool ends) {
    all.push_back(t.negate(t.concat(t.anything(), ends ? what : t.concat(what, t.anything()))));
  };
  nowhere(t.text(stop), false);
  const std::vector<uint32_t> letters = code_points(stop);
  std::string begun;
  for (size_t k = 0; k + 1 < letters.size(); ++k) {
    append_utf8(begun, letters[k]);
    if (close.compare(0, std::min(close.size(), stop.size() - begun.size()), stop, begun.size()) == 0)
      nowhere(t.text(begun), true);
  }
  const Terms::Id blank =
      t.repeat(t.set(CharSet::of({{' ', ' '}, {'\t', '\t'}, {'\n', '\n'}, {'\r', '\r'}})), 0, kInf);
  auto is_not = [&](Terms::Id value, bool begins) {
    all.push_back(t.negate(t.concat(blank, t.concat(value, begins ? t.anything() : blank))));
  };
  auto letter = [&](char a, char z) {
    return t.set(CharSet::of({{static_cast<uint32_t>(a), static_cast<uint32_t>(z)}}));
  };
  if (mixed & kNull) is_not(t.text("null"), false);
  if (mixed & kBoolean) is_not(t.text("true"), false), is_not(t.text("false"), false);
  if (mixed & kArray) is_not(t.text("["), true);
  if (mixed & kObject) is_not(t.text("{"), true);
  if (mixed & kNumber) {
    const Terms::Id digit = letter('0', '9'), digits = t.repeat(digit, 1, kInf);
    const Terms::Id sign = t.alt({t.text("+"), t.text("-")});
    const Terms::Id whole = t.alt({t.text("0"), t.concat(letter('1', '9'), t.repeat(digit, 0, kInf))});
    const Terms::Id e = t.alt({t.text("e"), t.text("E")});
    Terms::Id number = t.repeat(t.concat(e, t.concat(t.repeat(sign, 0, 1), digits)), 0, 1);
    number = t.concat(t.repeat(t.concat(t.text("."), digits), 0, 1), number);
    is_not(t.concat(t.repeat(t.text("-"), 0, 1), t.concat(whole, number)), false);
  }
  return t.compile(t.both(std::move(all)));
}

LanguagePtr tag_names(const std::string& behind, Budget& budget) {
  Terms t(budget);
  CharSet bad = CharSet::of({{0, 31}, {127, 159}, {'<', '<'}, {'>', '>'}, {'"', '"'}, {'&', '&'}});
  if (!behind.empty()) bad.add(code_points(behind)[0], code_points(behind)[0]);
  bad.normalise();
  const Terms::Id any = t.set(bad.complement());
  // A name has no blanks at its ends, because readers strip them; blanks inside a name are allowed.
  bad.add(' ', ' '), bad.add(160, 160);
  bad.normalise();
  const Terms::Id solid = t.set(bad.complement());
  return t.compile(t.concat(solid, t.alt({t.epsilon(), t.concat(t.repeat(any, 0, kInf), solid)})));
}

}  // namespace llamay::grammar
