#include "masks/precompute.h"

#include "automata/dfa.h"

#include <chrono>
#include <vector>

namespace llamay::grammar {

// The number of states of a pattern for which entries are made.
static constexpr size_t kLater = 6;

void precompute_entries(const Program& program, const Vocabulary& v) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point until = Clock::now() + std::chrono::milliseconds(1);
  const Lexeme kind = program.canonical_escapes ? Lexeme::JsonCanonical : Lexeme::JsonString;
  auto one = [&](Lexeme lexeme, const Language* language, uint32_t state, uint32_t min, uint32_t max,
                 TrieId id, uint32_t node) {
    const Trie& trie = v.trie(id);
    if (node == Trie::kNoNode || (node != 0 && trie.end(node) - node < kSmallSubtree)) return;
    if (!language || language->empty() || language->trie || Clock::now() >= until) return;
    v.limit(*language, min, max);
    v.entry(lexeme, *language, state, 0, min, max, node, id);
  };
  // The entries after an opening quote, and the entries for tokens that begin with the quote.
  const uint32_t quote = v.trie(TrieId::Symbols).child(0, '"');
  auto string = [&](const Language* language, uint32_t min, uint32_t max) {
    one(kind, language, 0, min, max, TrieId::All, 0);
    one(kind, language, 0, min, max, TrieId::Symbols, quote);
  };
  for (const StringAtom& a : program.strings) string(a.language.get(), a.min, a.max);
  for (const ObjectAtom& a : program.objects) string(a.rest.get(), 0, kInf);
  for (const StringAtom& a : program.lexemes)
    if (!a.closed) one(Lexeme::Last, a.language.get(), 0, a.min, a.max, TrieId::All, 0);
  // Numbers at the beginning of a value. The bytes that may follow a number are known only in arrays and
  // objects.
  std::vector<bool> bare(program.numbers.size(), false);
  for (const NetState& state : program.net)
    for (const Edge& e : state.edges)
      if (e.kind == Edge::Value)
        for (const uint32_t n : program.nodes[e.arg].numbers) bare[n] = true;
  for (uint32_t n = 0; n < program.numbers.size(); ++n) {
    const NumberAtom& a = program.numbers[n];
    if (v.reaches(*a.language, a.max)) continue;
    if (bare[n]) one(Lexeme::Plain, a.language.get(), 0, 0, kInf, TrieId::Symbols, 0);
    one(Lexeme::Member, a.language.get(), 0, 0, kInf, TrieId::Symbols, 0);
  }
  // Then the entries of the next states, nearest first. If the length is counted outside the automaton, the
  // key of an entry has the number of remaining characters, which is not known yet.
  auto later = [&](const Language* language) {
    if (language->empty() || language->trie || language->uid == every_text()->uid) return;
    std::vector<uint32_t> near{0};
    std::vector<bool> seen(language->n_states(), false);
    seen[0] = true;
    for (size_t i = 0; i < near.size() && near.size() < kLater; ++i)
      for (uint32_t c = 0; c < language->n_classes; ++c)
        if (const uint32_t t = language->table[size_t{near[i]} * language->n_classes + c];
            t != kDead && !seen[t])
          seen[t] = true, near.push_back(t);
    for (size_t i = 1; i < near.size() && i < kLater; ++i)
      one(kind, language, near[i], 0, kInf, TrieId::All, 0);
  };
  for (const StringAtom& a : program.strings)
    if (a.min == 0 && a.max == kInf) later(a.language.get());
}

}  // namespace llamay::grammar
